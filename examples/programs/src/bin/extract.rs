//! Typed extraction: text on stdin, a validated value of a Rust type as the answer.

use endstop::Agent;
use endstop::provider::http::HttpProvider;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An invoice.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Invoice {
    /// The name of the company that sent the invoice.
    sender: String,
    /// The date of the invoice as YYYY-MM-DD, if there is one.
    date: Option<String>,
    items: Vec<Item>,
}

/// A line of an invoice.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Item {
    name: String,
    /// The price in cents, taxes included.
    cents: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::io::read_to_string(std::io::stdin())?;
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?)
        .system("Extract the invoice from the text.")
        .build()?;
    let invoice: Invoice = agent.run_typed(text)?.await.into_result()?;
    println!("{}", serde_json::to_string_pretty(&invoice)?);
    println!("{} cents in total", invoice.items.iter().map(|item| item.cents).sum::<u64>());
    Ok(())
}

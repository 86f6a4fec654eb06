//! Typed extraction: text on stdin, a validated value of a Rust type as the answer.
use rig::extractor::ExtractorBuilder;
use rig::providers::openai::OpenAI;
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
    let model = OpenAI::from_env()?.chat("gpt-4.1-mini");
    let extractor = ExtractorBuilder::<Invoice>::new(model).retries(2).build();
    let invoice = extractor.extract(text).await?.output;
    println!("{}", serde_json::to_string_pretty(&invoice)?);
    println!("{} cents in total", invoice.items.iter().map(|item| item.cents).sum::<u64>());
    Ok(())
}

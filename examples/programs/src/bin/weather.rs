//! The program of the book's page on other libraries: an agent with a tool, streamed.

use endstop::provider::http::HttpProvider;
use endstop::tool::tool_fn;
use endstop::{Agent, AgentEventKind, Limits};

/// The weather in a city.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Weather {
    /// The city's name.
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: weather MODEL")?;
    let weather = |args: Weather, _| async move { format!("It rains in {}.", args.city) };
    let agent = Agent::builder(HttpProvider::builder(format!("openai/{model}")).build()?)
        .system("Be brief.")
        .tool(tool_fn("weather", "", weather))
        .finish_tool(false)
        .limits(Limits { max_turns: Some(10), ..Limits::default() })
        .build()?;
    let mut run = agent.run("What is the weather in Paris?")?;
    while let Some(event) = run.next().await {
        match event.kind {
            AgentEventKind::TextDelta { text, .. } => print!("{text}"),
            AgentEventKind::Finished { outcome, .. } => println!("\n[{outcome}]"),
            _ => {}
        }
    }
    run.await.into_result()?;
    Ok(())
}

use futures::StreamExt;
use rig::agent::MultiTurnStreamItem;
use rig::core::streaming::{Item, StreamEvent};
use rig::core::tool::ToolExecutionError;
use rig::prelude::*;
use rig::providers::openai::OpenAI;
use rig::rig_tool;

/// The weather in a city.
#[rig_tool(params(city = "The city's name."))]
fn weather(city: String) -> Result<String, ToolExecutionError> {
    Ok(format!("It rains in {city}."))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: agent MODEL")?;
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat(&model))
        .preamble("Be brief.")
        .tool(Weather)
        .default_max_turns(10)
        .build();
    let mut run = agent.prompt("What is the weather in Paris?").stream();
    while let Some(item) = run.next().await {
        match item? {
            MultiTurnStreamItem::StreamAssistantItem(Item::Event(StreamEvent::Text { text, .. })) => print!("{text}"),
            MultiTurnStreamItem::FinalResponse(done) => println!("\n[{:?}]", done.usage),
            _ => {}
        }
    }
    Ok(())
}

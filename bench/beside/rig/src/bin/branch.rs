//! Branches of one conversation: the same history is continued in three directions at once.
use futures::future::join_all;
use rig::prelude::*;
use rig::providers::openai::OpenAI;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat("gpt-4.1-mini")).build();
    let first = agent.prompt("Name a city for a weekend in May.").await?;
    let history = first.messages().to_vec();
    let branches = ["What to eat there?", "What to see there?", "Another city, please."];
    let runs = branches.map(|question| {
        let run = agent.prompt(question).history(history.clone());
        async move { (question, run.await) }
    });
    for (question, run) in join_all(runs).await {
        println!("{question} {}", run?.output());
    }
    println!("{} messages in the original", history.len());
    Ok(())
}

//! A chat on the terminal: the text appears as it arrives, and Ctrl-C stops the answer, not the chat.
use futures::StreamExt;
use rig::agent::MultiTurnStreamItem;
use rig::core::message::Message;
use rig::core::streaming::{Item, StreamEvent};
use rig::prelude::*;
use rig::providers::openai::OpenAI;
use std::io::Write;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(OpenAI::from_env()?.chat("gpt-4.1-mini")).preamble("Be brief.").build();
    let mut history: Vec<Message> = Vec::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let mut run = agent.prompt(line).history(history.clone()).stream();
        loop {
            tokio::select! {
                item = run.next() => match item {
                    Some(Ok(MultiTurnStreamItem::StreamAssistantItem(Item::Event(StreamEvent::Text { text, .. })))) => print!("{text}"),
                    Some(Ok(MultiTurnStreamItem::FinalResponse(done))) => {
                        history.extend(done.messages().iter().cloned());
                        println!("\n[{} turns]", done.completion_calls.len());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => println!("\n[{error}]"),
                    None => break,
                },
                _ = tokio::signal::ctrl_c() => break,
            }
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

//! A chat on the terminal: the text appears as it arrives, and Ctrl-C stops the answer, not the chat.

use endstop::provider::http::HttpProvider;
use endstop::{Agent, AgentEventKind};
use std::io::Write;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?)
        .system("Be brief.")
        .build()?;
    let session = agent.session();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let mut run = session.run(line)?;
        loop {
            tokio::select! {
                event = run.next() => match event.map(|event| event.kind) {
                    Some(AgentEventKind::TextDelta { text, .. }) => print!("{text}"),
                    Some(AgentEventKind::Finished { outcome, .. }) => println!("\n[{outcome}]"),
                    Some(_) => {}
                    None => break,
                },
                stop = tokio::signal::ctrl_c() => { stop?; run.cancel() }
            }
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

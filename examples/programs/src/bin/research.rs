//! Parallel research: a lead agent calls sub-agents at the same time, all under one budget.

use endstop::agent::AgentTool;
use endstop::provider::http::HttpProvider;
use endstop::{Agent, Limits};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = HttpProvider::builder("openai/gpt-4.1-mini").build()?;
    let researcher = Agent::builder(provider.clone())
        .system("Answer the question in one sentence, and name your source.")
        .limits(Limits { max_turns: Some(5), ..Limits::default() })
        .max_output_tokens(1024)
        .build()?;
    let lead = Agent::builder(provider)
        .system(
            "Split the question, ask `research` about each part at the same time, then conclude.",
        )
        .tool(AgentTool::new("research", "Answers one question.", researcher))
        // The ceiling covers the lead and its researchers, also while they run in parallel.
        .limits(Limits { max_budget_usd: Some(0.50), ..Limits::default() })
        .max_output_tokens(2048)
        .build()?;
    let question = std::env::args().nth(1).ok_or("usage: research QUESTION")?;
    let outcome = lead.run(question)?.await;
    println!("{}\n[{outcome}]", outcome.answer().unwrap_or_default());
    Ok(())
}

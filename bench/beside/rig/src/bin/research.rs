//! Parallel research: a lead agent calls sub-agents at the same time. rig has no budget.
use rig::prelude::*;
use rig::providers::openai::OpenAI;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let openai = OpenAI::from_env()?;
    let researcher = AgentBuilder::new(openai.chat("gpt-4.1-mini"))
        .name("research")
        .description("Answers one question.")
        .preamble("Answer the question in one sentence, and name your source.")
        .default_max_turns(5)
        .build();
    let lead = AgentBuilder::new(openai.chat("gpt-4.1-mini"))
        .preamble("Split the question, ask `research` about each part at the same time, then conclude.")
        .dynamic_tool(researcher.into_tool()?)
        .default_max_turns(25)
        .build();
    let question = std::env::args().nth(1).ok_or("usage: research QUESTION")?;
    println!("{}", lead.prompt(question).tool_concurrency(8).await?.output());
    Ok(())
}

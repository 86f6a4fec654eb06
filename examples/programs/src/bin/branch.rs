//! Branches of one conversation: the same history is continued in three directions at once.

use endstop::Agent;
use endstop::provider::http::HttpProvider;
use futures_util::future::try_join_all;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?).build()?;
    let session = agent.session();
    session.run("Name a city for a weekend in May.")?.await.into_result()?;

    let branches = ["What to eat there?", "What to see there?", "Another city, please."];
    let runs = branches.map(|question| {
        let branch = session.fork();
        async move { Ok::<_, endstop::StartError>((question, branch.run(question)?.await)) }
    });
    for (question, outcome) in try_join_all(runs).await? {
        println!("{question} {}", outcome.answer().unwrap_or_default());
    }
    // The original has the first question only, and can be asked something else.
    println!("{} messages in the original", session.messages().len());
    Ok(())
}

//! A run that survives its process: started again, it continues where the last process was killed.

use endstop::Agent;
use endstop::journal::SqliteJournal;
use endstop::provider::http::HttpProvider;
use endstop::tool::Shell;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [file, task] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: resume JOURNAL TASK".into());
    };
    let journal = SqliteJournal::open(file)?;
    let agent = Agent::builder(HttpProvider::builder("openai/gpt-4.1-mini").build()?)
        .tool(Shell::default())
        .journal(journal.clone())
        .build()?;
    let run = match journal.interrupted()?.into_iter().next() {
        Some(left) => agent.resume(left.id)?,
        None => agent.run(task.as_str())?,
    };
    let outcome = run.await;
    println!("{}\n[{outcome}]", outcome.answer().unwrap_or_default());
    Ok(())
}

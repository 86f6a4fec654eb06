//! A program for other programs: its last line is the outcome, and its exit status that of the ending.

use endstop::process::keeper;
use endstop::provider::http::HttpProvider;
use endstop::tool::Shell;
use endstop::{Agent, Limits, NanoUsd, Price};
use serde_json::json;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Before the runtime: a second instance of this program keeps its commands.
    if let Some(code) = keeper::serve_if_asked() {
        return Ok(code);
    }
    keeper::adopt_orphans();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let task = words.next().ok_or("usage: judged TASK [LIMIT=VALUE]...")?;
    let mut limits = Limits::default();
    for word in words {
        let (name, value) = word.split_once('=').ok_or("expected LIMIT=VALUE")?;
        limits.set(name, &serde_json::from_str(value).unwrap_or_else(|_| json!(value)))?;
    }
    let price = Price::usd_per_million_tokens(3.0, 15.0);
    let price = Price { cached_input: Some(NanoUsd::from_usd(0.3)), ..price };
    let model = HttpProvider::builder("openai/gpt-4o").price(price).build()?;
    let agent = Agent::builder(model).tool(Shell::default()).limits(limits).build()?;
    let mut run = std::pin::pin!(agent.run(task)?.into_future());
    let outcome = tokio::select! {
        outcome = &mut run => outcome,
        stop = stopped() => {
            stop?;
            agent.terminate();
            run.await
        }
    };
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(ExitCode::from(outcome.termination.exit_status()))
}

/// Waits for Ctrl-C or, on Unix, SIGTERM.
async fn stopped() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

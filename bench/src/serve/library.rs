//! The runs by the library alone, in a process of its own.

use crate::Result;
use crate::client::{Delays, delay_of};
use crate::process::{memory_mb, processor_s};
use endstop::event::AgentEventKind;
use endstop::journal::SqliteJournal;
use endstop::provider::http::HttpProvider;
use endstop::tool::ReadFile;
use endstop::{Agent, Limits, RunInput, Termination};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

/// The limits of all runs. A call of each turn is the same.
pub(crate) fn limits() -> Limits {
    Limits { max_unproductive_turns: None, ..Limits::default() }
}

/// The arguments of this role: the folder, the port of the model, runs, runs at once, the task, and
/// whether there is a journal.
pub(crate) fn perform(words: &[String]) -> Result<()> {
    let [folder, port, runs, at_once, task, journal] = words else {
        return Err("the role `library` takes six arguments".into());
    };
    let (runs, at_once): (usize, usize) = (runs.parse()?, at_once.parse()?);
    // As in `endstop serve`.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let journal = (journal == "journal")
        .then(|| SqliteJournal::open(Path::new(folder).join("library.db")))
        .transpose()?;
    let line = runtime.block_on(measured(folder, port, runs, at_once, task, journal))?;
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

async fn measured(
    folder: &str,
    port: &str,
    runs: usize,
    at_once: usize,
    task: &str,
    journal: Option<SqliteJournal>,
) -> Result<String> {
    let options = HttpProvider::builder("script").base_url(format!("http://127.0.0.1:{port}/v1"));
    let provider = Arc::new(options.env(|_| None).build()?);
    let left = Arc::new(AtomicUsize::new(runs));
    let (began, own) = (Instant::now(), std::process::id());
    let cpu = processor_s(own)?;
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let (left, provider, journal) = (Arc::clone(&left), Arc::clone(&provider), journal.clone());
        let (folder, task) = (folder.to_owned(), task.to_owned());
        clients.spawn(async move {
            let mut delays = Delays::default();
            while taken(&left) {
                // A server builds the agent of each run, too.
                let mut builder = Agent::builder(Arc::clone(&provider))
                    .tool(ReadFile::default())
                    .limits(limits())
                    .working_dir(&folder);
                if let Some(journal) = &journal {
                    builder = builder.journal(journal.clone());
                }
                let agent = builder.build()?;
                let mut handle = agent.run(RunInput::new(&task))?;
                while let Some(event) = handle.next().await {
                    delays.events += 1;
                    if let AgentEventKind::TextDelta { text, .. } = &event.kind {
                        delays.all.extend(delay_of(text));
                    }
                }
                let outcome = handle.await;
                if outcome.termination != Termination::Stop || outcome.tool_calls != 9 {
                    return Err(format!("a run ended as {:?}", outcome.decided_by).into());
                }
            }
            Result::Ok(delays)
        });
    }
    let mut delays = Delays::default();
    for client in clients.join_all().await {
        delays.add(client?);
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), processor_s(own)? - cpu);
    let (p50, p99) = delays.quantiles();
    let figures = json!({"wall": wall, "cpu": cpu, "peak_mb": memory_mb(own, "VmHWM"),
        "p50_ms": p50, "p99_ms": p99, "events": delays.events});
    Ok(figures.to_string())
}

/// Takes a run; `false` if none is left.
pub(crate) fn taken(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

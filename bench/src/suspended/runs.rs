//! Starts, measures and ends the runs of `bench-suspended`.
//!
//! ```text
//! println!("{}", measured(1_000)?);
//! ```

use crate::server::{Silent, raise_descriptors};
use endstop::event::AgentEventKind;
use endstop::provider::http::HttpProvider;
use endstop::tool::ReadFile;
use endstop::{Agent, RunHandle, Termination};
use std::error::Error;
use std::time::{Duration, Instant};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Time limit for all connections to close.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of connections that are opened at once.
// The system drops connection attempts beyond the server's backlog, and the client repeats them a
// second later.
const AT_ONCE: usize = 64;

/// Returns the resident memory in kB.
fn resident() -> Result<f64> {
    // Not `VmRSS`, which is inaccurate, because the kernel updates its counters in batches.
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("no Rss")?;
    Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Starts a run of a new loop.
fn begun(provider: &HttpProvider) -> Result<(Agent, RunHandle)> {
    let agent = Agent::builder(provider.clone()).tool(ReadFile::default()).build()?;
    let handle = agent.run("go")?;
    Ok((agent, handle))
}

/// Waits for the first delta, after which the stream is silent.
async fn until_silent(handle: &mut RunHandle) -> Result<()> {
    loop {
        match handle.next().await.map(|event| event.kind) {
            Some(AgentEventKind::TextDelta { .. }) => return Ok(()),
            Some(AgentEventKind::Finished { outcome, .. }) => {
                return Err(
                    format!("{}: {}", outcome.termination, outcome.decided_by.evidence).into()
                );
            }
            Some(_) => {}
            None => return Err("it ended".into()),
        }
    }
}

/// Returns the memory of this many runs, and the time to end them.
pub(crate) fn measured(count: usize) -> Result<String> {
    raise_descriptors()?;
    let mut server = Silent::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let options = HttpProvider::builder("script").base_url(server.base_url.clone());
        let provider = options.env(|_| None).build()?;
        // A first run allocates everything that later runs share.
        let (agent, mut handle) = begun(&provider)?;
        until_silent(&mut handle).await?;
        agent.terminate();
        let _ = handle.outcome().await;
        drop(agent);

        let before = resident()?;
        let mut runs = Vec::with_capacity(count);
        while runs.len() < count {
            let from = runs.len();
            for _ in 0..AT_ONCE.min(count - from) {
                runs.push(begun(&provider)?);
            }
            for (_, handle) in &mut runs[from..] {
                until_silent(handle).await?;
            }
        }
        // Lets tasks of the setup end and free their memory.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (after, open) = (resident()?, server.open()?);
        // Each run must be suspended in its stream; otherwise the figures would be of fewer runs.
        if open < count {
            return Err(format!("{open} connections for {count} runs").into());
        }

        // All are terminated before any outcome is awaited, as a server does when it shuts down.
        let began = Instant::now();
        for (agent, _) in &runs {
            agent.terminate();
        }
        let asked = began.elapsed();
        for (_, handle) in runs {
            let outcome = handle.outcome().await;
            if outcome.termination != Termination::Terminated {
                return Err(format!("a run ended as {}", outcome.termination).into());
            }
        }
        let ended = began.elapsed();
        while server.open()? > 0 {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} connections stay open", server.open()?).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let closed = began.elapsed();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(format!(
            "{count} runs: {:.1} MB before, {:.1} MB after, {:.1} kB a run; \
             terminate: {:.1} ms to ask all, {:.1} ms to the last outcome, {:.1} ms to the last close",
            before / 1024.0,
            after / 1024.0,
            (after - before) / count as f64,
            ms(asked),
            ms(ended),
            ms(closed)
        ))
    })
}

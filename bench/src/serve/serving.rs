//! The runs by `endstop serve`, for clients of this process.

use crate::Result;
use crate::client::{Connection, Delays, run};
use crate::library::taken;
use crate::process::{Process, memory_mb, processor_s};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tokio::task::JoinSet;

/// A running server.
pub(crate) struct Serving {
    pub(crate) process: Process,
    pub(crate) address: String,
}

impl Serving {
    /// Starts a server with a journal of its own in this folder.
    pub(crate) fn start(
        endstop: &str,
        folder: &Path,
        port: &str,
        at_once: usize,
    ) -> Result<Serving> {
        std::fs::create_dir_all(folder)?;
        let dir = folder.parent().and_then(Path::to_str).ok_or("the folder is not UTF-8")?;
        // Without time limits, because the silent run is open for as long as its readers are
        // measured.
        let settings = format!(
            "base_url = \"http://127.0.0.1:{port}/v1\"\nmodel = \"script\"\ndir = {dir:?}\n\
             [limits]\nmax_unproductive_turns = \"off\"\nturn_timeout = \"off\"\n\
             stall_timeout = \"off\"\n[agents.load]\ntools = [\"read_file\"]\n"
        );
        let config = folder.join("serve.toml");
        std::fs::write(&config, settings)?;
        let mut command = Command::new(endstop);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--journal", "journal.db", "--json"])
            .args(["--max-running", &at_once.to_string(), "--max-queued", "4096", "--grace", "0s"])
            .arg("--config")
            .arg(&config)
            .current_dir(folder)
            // The settings of the user must not change the figures.
            .env("XDG_STATE_HOME", folder)
            .env("XDG_CONFIG_HOME", folder)
            .env_remove("ENDSTOP_SERVE_TOKEN")
            .stderr(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let line: Value = serde_json::from_str(&process.line()?)?;
        let address = line["address"].as_str().ok_or("no address")?.to_owned();
        Ok(Serving { process, address })
    }
}

/// Performs runs through a server; returns the figures as the library's role does.
pub(crate) async fn measured(
    serving: &Serving,
    runs: usize,
    at_once: usize,
    task: &str,
) -> Result<Value> {
    let left = Arc::new(AtomicUsize::new(runs));
    let process = serving.process.id();
    let (began, cpu) = (Instant::now(), processor_s(process)?);
    let mut clients = JoinSet::new();
    for _ in 0..at_once {
        let (left, address) = (Arc::clone(&left), serving.address.clone());
        let task = task.to_owned();
        clients.spawn(async move {
            let mut delays = Delays::default();
            let mut connection = Connection::open(&address).await?;
            while taken(&left) {
                connection = run(connection, &task, &mut delays).await?;
            }
            Result::Ok(delays)
        });
    }
    let mut delays = Delays::default();
    for client in clients.join_all().await {
        delays.add(client?);
    }
    let (wall, cpu) = (began.elapsed().as_secs_f64(), processor_s(process)? - cpu);
    let (p50, p99) = delays.quantiles();
    Ok(json!({"wall": wall, "cpu": cpu, "peak_mb": memory_mb(process, "VmHWM"),
        "p50_ms": p50, "p99_ms": p99, "events": delays.events}))
}

//! The command that runs when a run parks or ends (`--notify`). It gets one line of JSON on its
//! standard input; nothing of the run is in its arguments.
//!
//! ```json
//! {"type":"run_parked","run_id":"4k2v9x0abc","request":{"kind":"approval","tool":"shell", …}}
//! {"type":"run_ended","run_id":"4k2v9x0abc","termination":"stop","category":"success", …}
//! ```

use crate::output;
use crate::visible::visible;
use endstop::Outcome;
use endstop::park::ParkRequest;
use endstop::process::CommandLine;
use endstop::process::talk::{self, Talk};
use endstop::wire::redact::Redacted;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Time that the command has. The run is over for its user while it waits for the command.
const LONGEST: Duration = Duration::from_secs(30);

/// Most bytes of the command's standard error that are shown.
const MOST_ERRORS: usize = 2000;

/// Returns the notice of a parked run.
pub(crate) fn parked(run_id: &str, request: &ParkRequest) -> Value {
    json!({"type": "run_parked", "run_id": run_id, "request": request})
}

/// Returns the notice of an ended run. The answer is not part of it, because it may be long.
pub(crate) fn ended(outcome: &Outcome) -> Value {
    json!({
        "type": "run_ended",
        "run_id": outcome.run_id,
        "termination": outcome.termination,
        "category": outcome.category(),
        "verified": outcome.verified,
        "turns": outcome.turns,
        "cost_usd": outcome.known_cost().map(endstop::NanoUsd::to_usd),
        "cost_unknown": outcome.cost_unknown,
    })
}

/// Runs the command. A failure of it is reported, and changes nothing.
pub(crate) async fn notify(command: &str, notice: &Value) {
    let told = match output::keys().redact_json(notice) {
        Ok(line) => tokio::time::timeout(LONGEST, tell(command, &line))
            .await
            .unwrap_or_else(|_| Err(format!("it was killed after {} s", LONGEST.as_secs()))),
        Err(error) => Err(error.to_string()),
    };
    if let Err(problem) = told {
        output::note(&format!("endstop: --notify: {}", visible(&problem)));
    }
}

async fn tell(command: &str, line: &Redacted) -> Result<(), String> {
    let line_of = CommandLine::new(command).whole_environment();
    let Talk { mut command, mut input, mut output, mut errors } =
        talk::start(&line_of).map_err(|error| error.to_string())?;
    let (mut printed, mut failed) = (Vec::new(), Vec::new());
    let write = async move {
        // A command that reads nothing closes its input. That does not count as a failure.
        let _ = input.write_all(format!("{line}\n").as_bytes()).await;
        let _ = input.shutdown().await;
    };
    // Its output is read, so that the command never waits for a reader.
    let read = read_most(&mut output, &mut printed);
    let read_errors = read_most(&mut errors, &mut failed);
    tokio::join!(write, read, read_errors);
    let how = command.ended().await;
    if how == "exit status 0" {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&failed);
    Err(format!("{how}: {}", said.trim()))
}

/// Reads a stream to its end, and keeps its beginning.
async fn read_most(from: &mut (impl AsyncReadExt + Unpin), kept: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = MOST_ERRORS.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
    }
}

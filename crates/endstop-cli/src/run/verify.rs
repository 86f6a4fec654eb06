//! The verifier of a run (`--verify`): a command that decides if the work is right.

use super::signals::{Signals, StopSignal};
use crate::output;
use endstop::process::{CommandLine, StopTokens};
use std::path::Path;
use std::time::Duration;

/// Time that a verifier has to end after a signal.
const VERIFIER_GRACE: Duration = Duration::from_secs(2);

/// Runs the verifier and prints its output to standard error. The first signal asks it to stop,
/// a second one kills it; in both cases there is no result.
pub(crate) async fn verified(
    command: &str,
    dir: Option<&Path>,
    json: bool,
    signals: &mut Signals,
) -> (Option<bool>, StopSignal) {
    // Lets the runtime look for signals that arrived since it last waited, so that a verifier is not
    // started after a stop.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        signal = signals.next() => {
            output::note("endstop: --verify was not started, because the run was stopped");
            return (None, signal);
        }
        () = std::future::ready(()) => {}
    }
    let mut line = CommandLine::new(command).whole_environment();
    if let Some(dir) = dir {
        line = line.in_dir(dir);
    }
    let stop = StopTokens { grace: VERIFIER_GRACE, ..StopTokens::never() };
    let mut running = std::pin::pin!(line.run(&stop));
    let mut heard = StopSignal::Nothing;
    let done = loop {
        tokio::select! {
            // Biased, so that the stop wins over a verifier that has not started yet.
            biased;
            signal = signals.next() => {
                if heard == StopSignal::Nothing {
                    heard = signal;
                    stop.ask.cancel();
                } else {
                    stop.kill.cancel();
                }
            }
            done = &mut running => break done,
        }
    };
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            output::note(&format!("endstop: --verify {command:?} could not be started: {error}"));
            // A verifier that cannot start counts as a rejection, so that the run is not
            // reported as verified.
            return (Some(false), heard);
        }
    };
    for pid in &done.left {
        let told = "started by --verify, could not be killed and may still be running";
        output::note(&format!("endstop: process {pid}, {told}"));
    }
    let text = done.output.text();
    // With --json the output of a successful verifier is noise, but a failure needs its
    // explanation.
    let shown = !json || !done.success();
    if shown && !text.trim().is_empty() {
        output::note(&format!("verify: {}", text.trim_end().replace('\n', "\nverify: ")));
    }
    if heard != StopSignal::Nothing {
        output::note("endstop: --verify was stopped before it gave a result");
        return (None, heard);
    }
    if !done.success() {
        output::note(&format!("verify: {}", done.how()));
    }
    (Some(done.success()), heard)
}

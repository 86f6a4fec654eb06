//! Waits for the end of a program, and ends it for a signal or a limit.
//!
//! ```text
//! let ended = supervise(&mut agent, &mut signals, limit_reached, GRACE, |_| {}).await?;
//! ended.exit_code() // 143 after SIGTERM, otherwise the program's
//! ```

use super::signals::{GuardSignal, Reaction, SignalRule, Signals};
use endstop_process::{AgentEnd, AgentExit, AgentProcess};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Time between the steps that end a program: SIGINT, SIGTERM, SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// The end of a supervised program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Supervised {
    /// The program's end.
    pub end: AgentEnd,
    /// Time from the last SIGINT to the end of the program.
    pub interrupted: Option<Duration>,
    /// `true` if guard has ended the program.
    pub stopped: bool,
    /// Exit status that a signal to guard determines.
    pub exit: Option<u8>,
}

impl Supervised {
    /// Returns guard's exit status if it passes on that of the program: 128 and the number of the
    /// signal for a program that a signal has ended, as shells do.
    pub fn exit_code(&self) -> u8 {
        // A status above 255 does not exist on Unix; on Windows it is an error of the system.
        self.exit.unwrap_or_else(|| match self.end.exit() {
            AgentExit::Code(code) => u8::try_from(code).unwrap_or(1),
            AgentExit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
            AgentExit::Unknown => 1,
        })
    }
}

/// Waits until the program and all of its processes have ended. They are ended if `limit` completes,
/// or if a [signal](SignalRule) asks for it. `on_interrupt` is called for each SIGINT, with the reaction: the
/// first one is left to the program.
///
/// # Errors
/// The program could not be started.
pub async fn supervise(
    agent: &mut AgentProcess,
    signals: &mut Signals,
    limit: impl Future<Output = ()>,
    grace: Duration,
    mut on_interrupt: impl FnMut(Reaction),
) -> io::Result<Supervised> {
    let mut rule = SignalRule::new();
    let mut limit = pin!(limit);
    let exit = loop {
        tokio::select! {
            biased;
            // First: an end that coincides with a signal counts as an end.
            end = agent.wait() => {
                let interrupted = rule.interrupted().map(|at| at.elapsed());
                return Ok(Supervised { end: end?, interrupted, stopped: false, exit: None });
            }
            // Also while the terminal belongs to the program, which gets the same key.
            signal = signals.next() => {
                let reaction = rule.react(signal, Instant::now());
                if signal == GuardSignal::Interrupt {
                    on_interrupt(reaction);
                }
                match reaction {
                    Reaction::Note => {}
                    Reaction::Stop { exit } => break exit,
                    Reaction::Kill => break None,
                }
            }
            () = &mut limit => {
                rule.stopping();
                break None;
            }
        }
    };
    let ended = tokio::select! {
        biased;
        end = agent.stop(grace) => Some(end?),
        // Any further signal: the user does not want to wait for the steps.
        _ = signals.next() => None,
    };
    let end = match ended {
        Some(end) => end,
        None => agent.kill().await?,
    };
    let interrupted = rule.interrupted().map(|at| at.elapsed());
    Ok(Supervised { end, interrupted, stopped: true, exit })
}

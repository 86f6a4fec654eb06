//! The signals that guard gets while a program runs, and the reactions to them.
//!
//! ```
//! use endstop_guard::process::{GuardSignal, Reaction, SignalRule};
//! use std::time::{Duration, Instant};
//! let mut rule = SignalRule::new();
//! let at = Instant::now();
//! // The key has reached the program too, which may only stop its current answer.
//! assert_eq!(rule.react(GuardSignal::Interrupt, at), Reaction::Note);
//! // Ten seconds later it is that of another answer.
//! let later = at + Duration::from_secs(10);
//! assert_eq!(rule.react(GuardSignal::Interrupt, later), Reaction::Note);
//! assert_eq!(rule.react(GuardSignal::Interrupt, later), Reaction::Stop { exit: None });
//! assert_eq!(rule.react(GuardSignal::Terminate, later), Reaction::Kill);
//! ```

use std::io;
use std::time::{Duration, Instant};

/// Time within which a second SIGINT stops the program.
pub const TWICE: Duration = Duration::from_secs(2);

/// A signal to guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardSignal {
    /// SIGINT: usually Ctrl-C, which the terminal sends to the program too.
    Interrupt,
    /// SIGQUIT: usually Ctrl-\\.
    Quit,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

/// The reaction to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Remember a SIGINT, and leave the program alone: it has got the key too and decides what to
    /// stop.
    Note,
    /// End the program and all of its processes. `exit` is guard's own exit status if the signal
    /// determines it.
    Stop {
        /// Exit status of guard.
        exit: Option<u8>,
    },
    /// Kill the program at once, because it is being ended already.
    Kill,
}

/// Decides the reaction to each signal of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignalRule {
    interrupted: Option<Instant>,
    stopping: bool,
}

impl SignalRule {
    /// Starts without a signal.
    pub fn new() -> SignalRule {
        SignalRule::default()
    }

    /// Returns the reaction to a signal that arrives at this time.
    pub fn react(&mut self, signal: GuardSignal, at: Instant) -> Reaction {
        if self.stopping {
            return Reaction::Kill;
        }
        // In raw mode the key is a character. This signal is from `kill` or from a cooked terminal.
        if signal == GuardSignal::Interrupt {
            let before = self.interrupted.replace(at);
            if before.is_none_or(|before| at.saturating_duration_since(before) > TWICE) {
                return Reaction::Note;
            }
        }
        self.stopping = true;
        let exit = match signal {
            // The keys reach the program too, whose own status then is the answer.
            GuardSignal::Interrupt | GuardSignal::Quit => None,
            GuardSignal::Terminate | GuardSignal::Hangup => Some(143),
        };
        Reaction::Stop { exit }
    }

    /// Records that the program is being ended for another reason, for example a limit.
    pub fn stopping(&mut self) {
        self.stopping = true;
    }

    /// Returns the time of the last SIGINT.
    pub fn interrupted(&self) -> Option<Instant> {
        self.interrupted
    }
}

/// Receives the signals to this process. From its creation on they no longer end the process.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    kinds: [(GuardSignal, tokio::signal::unix::Signal); 4],
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    #[cfg(unix)]
    pub fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            kinds: [
                (GuardSignal::Interrupt, signal(SignalKind::interrupt())?),
                (GuardSignal::Quit, signal(SignalKind::quit())?),
                (GuardSignal::Terminate, signal(SignalKind::terminate())?),
                (GuardSignal::Hangup, signal(SignalKind::hangup())?),
            ],
        })
    }

    /// Returns the next signal.
    #[cfg(unix)]
    pub async fn next(&mut self) -> GuardSignal {
        std::future::poll_fn(|context| {
            for (kind, signal) in &mut self.kinds {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*kind);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// None on this system.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "the shape of the other platforms")]
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {})
    }

    /// Returns the next signal.
    #[cfg(not(unix))]
    pub async fn next(&mut self) -> GuardSignal {
        let _ = tokio::signal::ctrl_c().await;
        GuardSignal::Interrupt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GuardSignal::{Hangup, Interrupt, Quit, Terminate};

    #[test]
    fn termination_stops_at_once() {
        for (signal, exit) in [(Terminate, Some(143)), (Hangup, Some(143)), (Quit, None)] {
            let (mut rule, at) = (SignalRule::new(), Instant::now());
            assert_eq!(rule.react(signal, at), Reaction::Stop { exit });
            assert_eq!(rule.interrupted(), None);
            assert_eq!(rule.react(Interrupt, at), Reaction::Kill);
        }
    }

    #[test]
    fn interrupt_then_termination_stops() {
        let (mut rule, at) = (SignalRule::new(), Instant::now());
        assert_eq!(rule.react(Interrupt, at), Reaction::Note);
        assert_eq!(rule.interrupted(), Some(at));
        assert_eq!(rule.react(Terminate, at), Reaction::Stop { exit: Some(143) });
    }

    #[test]
    fn interrupt_during_stop_kills() {
        let mut rule = SignalRule::new();
        rule.stopping();
        assert_eq!(rule.react(Interrupt, Instant::now()), Reaction::Kill);
    }

    #[test]
    fn only_second_interrupt_in_time_stops() {
        let (mut rule, mut last) = (SignalRule::new(), Instant::now());
        for _ in 0..5 {
            last += TWICE + Duration::from_millis(1);
            assert_eq!(rule.react(Interrupt, last), Reaction::Note);
        }
        last += TWICE;
        assert_eq!(rule.react(Interrupt, last), Reaction::Stop { exit: None });
        assert_eq!(rule.interrupted(), Some(last));
    }
}

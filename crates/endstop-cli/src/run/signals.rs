//! The signals that stop a run.

use crate::failure::{Failure, Result};
use endstop::agent::Lifecycle;

/// The first stop signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    Nothing,
    /// SIGINT: the exit status is the outcome's (130).
    Interrupt,
    /// SIGTERM or SIGHUP: the exit status is 143.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no such signals"))]
    Terminate,
}

impl StopSignal {
    /// Describes the signal and its effect.
    pub(crate) fn words(self, lifecycle: Lifecycle) -> String {
        let what = match self {
            StopSignal::Nothing => "nothing",
            StopSignal::Interrupt => "SIGINT",
            StopSignal::Terminate => "SIGTERM or SIGHUP",
        };
        match lifecycle {
            Lifecycle::Terminated => format!("{what} again: terminating"),
            _ => format!("{what}: cancelling; send it again to terminate"),
        }
    }
}

/// The signals that stop a run.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::fault(format!("could not listen for signals: {error}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    #[cfg(unix)]
    pub(crate) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
            // A hangup ends the run like SIGTERM, because its terminal is gone.
            _ = self.hangup.recv() => StopSignal::Terminate,
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "the shape of the other platforms")]
    pub(crate) fn listen() -> Result<Signals> {
        Ok(Signals {})
    }

    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) -> StopSignal {
        // Without a handler the system ends the process at Ctrl-C, and a failure is not a signal.
        if tokio::signal::ctrl_c().await.is_err() {
            return std::future::pending().await;
        }
        StopSignal::Interrupt
    }
}

//! Messages while a run works need Unix: FIFOs, and a terminal that can be waited for.

use crate::failure::{Failure, Result};
use std::path::PathBuf;

/// The sources of messages that the user has named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steer {
    pub(crate) fifo: Option<PathBuf>,
    pub(crate) typed: bool,
}

/// A message of the user; none ever comes.
pub(crate) enum Steered {
    Line(String),
    TooLong,
}

/// No sources.
pub(crate) struct Messages;

impl Messages {
    pub(crate) fn open(steer: &Steer, _asks: bool) -> Result<Messages> {
        match steer.fifo {
            Some(_) => Err(Failure::usage("--steer needs a system with FIFOs")),
            None => Ok(Messages),
        }
    }

    pub(crate) async fn next(&mut self) -> Steered {
        std::future::pending().await
    }
}

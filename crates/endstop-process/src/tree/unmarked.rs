//! Unix without `/proc`: marks cannot be found, so none are set, and processes that leave the group
//! of their command are not found.

use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::Instant;

/// Stands in for the mark of a command.
#[derive(Clone, Debug)]
pub(crate) struct Mark;

#[expect(clippy::unused_self, reason = "the same shape as where there are marks")]
impl Mark {
    pub(crate) fn new() -> Mark {
        Mark
    }
    pub(crate) fn of(_text: OsString) -> Mark {
        Mark
    }
    pub(crate) fn of_run(_id: OsString) -> Mark {
        Mark
    }
    pub(crate) fn text(&self) -> &OsStr {
        OsStr::new("unmarked")
    }
    pub(crate) fn put(&self, _command: &mut Command) {}
    pub(crate) fn kill_all(&self, _end: Instant) -> Vec<u32> {
        Vec::new()
    }
}

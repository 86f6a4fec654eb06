//! The compactions that a run has tried.

use super::outcome::CompactionAttempt;

/// The compaction history of a run.
#[derive(Debug, Default)]
pub(super) struct Compactions {
    pub(super) tried: Vec<CompactionAttempt>,
    pub(super) failed_in_a_row: u32,
    pub(super) forced_this_turn: bool,
}

impl Compactions {
    pub(super) fn any(&self) -> bool {
        !self.tried.is_empty()
    }

    /// Describes the attempts: how many, and the results of the last few.
    pub(super) fn told(&self) -> String {
        // Long runs compact often; the last few attempts explain an ending.
        const SHOWN: usize = 4;
        let of = |attempt: &CompactionAttempt| match (&attempt.failed, attempt.after) {
            (Some(why), _) => format!("failed: {why}"),
            (None, Some(after)) => format!("{} to {} bytes", attempt.before.bytes, after.bytes),
            (None, None) => "failed".to_owned(),
        };
        let hidden = self.tried.len().saturating_sub(SHOWN);
        let mut gave: Vec<String> = self.tried[hidden..].iter().map(of).collect();
        if hidden > 0 {
            gave.insert(0, "…".to_owned());
        }
        match self.tried.len() {
            1 => format!("1 compaction was tried: {}", gave.join("; ")),
            n => format!("{n} compactions were tried: {}", gave.join("; ")),
        }
    }
}

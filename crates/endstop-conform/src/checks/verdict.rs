//! Levels, severities and verdicts.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The edition of the sentences.
pub const EDITION: &str = "2027-01";

/// A level. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Level {
    /// A run ends.
    Ends = 1,
    /// The ending is honest.
    Honest = 2,
    /// The ending is clean.
    Clean = 3,
    /// The ending is accountable.
    Accountable = 4,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 4] = [Level::Ends, Level::Honest, Level::Clean, Level::Accountable];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ends => "Ends",
            Level::Honest => "Honest",
            Level::Clean => "Clean",
            Level::Accountable => "Accountable",
        }
    }
}

impl From<Level> for u8 {
    fn from(level: Level) -> u8 {
        level as u8
    }
}

impl TryFrom<u8> for Level {
    type Error = String;

    fn try_from(number: u8) -> Result<Level, String> {
        let found = Level::ALL.into_iter().find(|level| u8::from(*level) == number);
        found.ok_or_else(|| format!("invalid level {number}: expected 1 to 4"))
    }
}

/// Cost of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Severity {
    /// The run misleads, loses, is unsafe or unbounded.
    A,
    /// The run costs more.
    B,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The program declares that it lacks what the check needs.
    NotApplicable,
    /// The expectation holds.
    Pass,
    /// The situation did not arise, or its time was not waited for.
    NotReached,
    /// A SHOULD that does not hold.
    Warn,
    /// A MUST that does not hold.
    Fail,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Verdict; 5] =
        [Verdict::Pass, Verdict::Fail, Verdict::Warn, Verdict::NotReached, Verdict::NotApplicable];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Warn => "warn",
            Verdict::NotReached => "not reached",
            Verdict::NotApplicable => "not applicable",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, with what was observed.
    pub why: String,
}

impl Finding {
    pub(super) fn new(verdict: Verdict, why: impl Into<String>) -> Finding {
        Finding { verdict, why: why.into() }
    }
}

pub(super) fn pass(why: impl Into<String>) -> Finding {
    Finding::new(Verdict::Pass, why)
}

pub(super) fn fail(why: impl Into<String>) -> Finding {
    Finding::new(Verdict::Fail, why)
}

pub(super) fn warn(why: impl Into<String>) -> Finding {
    Finding::new(Verdict::Warn, why)
}

pub(crate) fn not_reached(why: impl Into<String>) -> Finding {
    Finding::new(Verdict::NotReached, why)
}

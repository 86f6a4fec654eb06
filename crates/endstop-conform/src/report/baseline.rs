//! A baseline: the checks that are expected to fail, one id in each line. A check that fails and is not listed is new; one
//! that is listed and passes is stale, so that the list can only become shorter.
//!
//! ```
//! use endstop_conform::report::Baseline;
//! let baseline = Baseline::read("known.txt", "# why\nT-01\nX-03 # no program passes\n")?;
//! assert_eq!(baseline.ids, ["T-01", "X-03"]);
//! # Ok::<(), String>(())
//! ```

use crate::checks::{Verdict, find};
use crate::suite::SuiteResult;

/// The checks that are expected to fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// The ids.
    pub ids: Vec<String>,
}

/// The differences from a baseline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// MUSTs that failed or were not reached, and are not listed.
    pub new: Vec<String>,
    /// Listed ids that pass.
    pub passing: Vec<String>,
}

impl Baseline {
    /// Reads a list. Text after `#` is a comment.
    ///
    /// # Errors
    /// A line is not an id; the message names the file and the line.
    pub fn read(file: &str, text: &str) -> Result<Baseline, String> {
        let mut ids = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if id.is_empty() {
                continue;
            }
            let known = id.to_uppercase();
            if find(&known).is_none() {
                let line = at + 1;
                return Err(format!(
                    "{file}, line {line}: unknown id {id:?}; `endstop conform list` lists them"
                ));
            }
            ids.push(known);
        }
        Ok(Baseline { ids })
    }

    /// Compares a result with the list.
    pub fn stale(&self, result: &SuiteResult) -> Stale {
        let is_listed = |id: &str| self.ids.iter().any(|one| one == id);
        let ids = |so: &dyn Fn(&crate::suite::CheckResult) -> bool| {
            result.checks.iter().filter(|one| so(one)).map(|one| one.id.clone()).collect()
        };
        Stale {
            new: ids(&|one| {
                one.must
                    && matches!(one.verdict, Verdict::Fail | Verdict::NotReached)
                    && !is_listed(&one.id)
            }),
            passing: ids(&|one| one.verdict == Verdict::Pass && is_listed(&one.id)),
        }
    }
}

impl Stale {
    /// `true` if the result is as the baseline expects.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.passing.is_empty()
    }
}

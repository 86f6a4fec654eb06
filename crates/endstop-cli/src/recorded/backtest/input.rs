//! The recorded runs that a backtest reads.

use crate::failure::{Failure, Result};
use crate::recorded::{journal_runs, opencode};
use crate::recorded_args::BacktestArgs;
use endstop_trajectory::read::{Options, Outcomes, UnknownFormat, formats};
use std::path::PathBuf;

/// The input: files for the readers, and Endstop journals.
pub(crate) struct Input {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) journals: Vec<PathBuf>,
    /// Number of journals that the user named. The others were found in folders, where the readers
    /// skip them.
    pub(crate) named: usize,
    /// Databases of opencode: those that the user named come first.
    pub(crate) databases: Vec<PathBuf>,
    named_databases: usize,
    pub(crate) options: Options,
    pub(crate) outcomes: Option<Outcomes>,
}

impl Input {
    pub(crate) fn of(args: &BacktestArgs) -> Result<Input> {
        let mut options = Options::default();
        if let Some(name) = &args.format {
            if formats().iter().all(|(known, _)| known != name) {
                let unknown = UnknownFormat(name.clone());
                return Err(Failure::usage(format!("--format: {unknown}")));
            }
            options.format = Some(name.clone());
        }
        let outcomes = match &args.outcomes {
            Some(file) => Some(
                Outcomes::read(file)
                    .map_err(|problem| Failure::usage(format!("--outcomes {problem}")))?,
            ),
            None => None,
        };
        let (mut databases, others): (Vec<_>, Vec<_>) =
            args.paths.iter().cloned().partition(|path| opencode::is_one(path));
        let (mut journals, files): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|path| journal_runs::is_one(path));
        let (named, named_databases) = (journals.len(), databases.len());
        if args.format.is_none() {
            journals.extend(files.iter().flat_map(|path| journal_runs::in_folder(path)));
        }
        if args.format.as_deref().is_none_or(|format| format == "opencode") {
            databases.extend(files.iter().flat_map(|path| opencode::in_folder(path)));
        }
        Ok(Input { files, journals, named, databases, named_databases, options, outcomes })
    }

    /// Returns the number of journals and databases that were found in folders, where the readers
    /// skip them.
    pub(crate) fn found(&self) -> usize {
        self.journals.len() - self.named + self.databases.len() - self.named_databases
    }
}

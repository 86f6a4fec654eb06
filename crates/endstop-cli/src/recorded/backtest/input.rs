//! The recorded runs that a backtest reads.

use crate::failure::{Failure, Result};
use crate::recorded::journal_runs;
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
        let (mut journals, files): (Vec<_>, Vec<_>) =
            args.paths.iter().cloned().partition(|path| journal_runs::is_one(path));
        let named = journals.len();
        if args.format.is_none() {
            journals.extend(files.iter().flat_map(|path| journal_runs::in_folder(path)));
        }
        Ok(Input { files, journals, named, options, outcomes })
    }
}

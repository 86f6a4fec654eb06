//! The files under a path, and the entries that are not read.

use crate::exit::enter;
use crate::json;
use endstop_trajectory::read::{Findings, Problem, Source, Walk};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// Returns the files that a backtest or an audit reads of a folder, sorted; of a file, only itself.
/// The second value is what `tally_skipped` counts: the entries that are not read, as JSON; `None` if
/// there are none.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
pub(crate) fn run_files(py: Python<'_>, path: PathBuf) -> PyResult<(Vec<PathBuf>, Option<String>)> {
    let _inside = enter(py);
    let walked = py.detach(|| walk(&path));
    let (files, skipped) = walked.map_err(|problem| PyOSError::new_err(problem.to_string()))?;
    let skipped = (skipped.count() > 0).then(|| json::to_json(py, &skipped)).transpose()?;
    Ok((files, skipped))
}

fn walk(path: &Path) -> Result<(Vec<PathBuf>, Findings), Problem> {
    let mut walk = Walk::new(path);
    let path_of = |source: Result<Source, Problem>| source.map(|one| one.path().to_owned());
    let files = walk.by_ref().map(path_of).collect::<Result<Vec<_>, _>>()?;
    Ok((files, walk.into_skipped()))
}

/// Reads the entries that `run_files` returned.
pub(crate) fn read_skipped(py: Python<'_>, skipped: &str) -> PyResult<Findings> {
    json::from_json(py, skipped, "skipped")
}

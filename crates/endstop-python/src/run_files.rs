//! The files under a path.

use crate::exit::enter;
use endstop_trajectory::read::{Problem, Source, Walk};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// Returns the files that a backtest or an audit reads of a folder, sorted; of a file, only itself.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
pub(crate) fn run_files(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    let _inside = enter(py);
    py.detach(|| walk(&path)).map_err(|problem| PyOSError::new_err(problem.to_string()))
}

fn walk(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    Walk::new(path).map(|source| source.map(|source: Source| source.path().to_owned())).collect()
}

//! The dataset of a run.
//!
//! ```
//! use endstop_trajectory::{Trajectory, backtest::dataset};
//! let mut run = Trajectory::new("run-1");
//! run.origin.file = "runs/sql.jsonl.zst".to_owned();
//! run.origin.at = Some(1);
//! assert_eq!(dataset(&run), "sql");
//! ```

use crate::model::Trajectory;
use std::path::Path;

/// Returns the dataset of a run: its file, or its folder if the whole file is the run.
pub fn dataset(run: &Trajectory<'_>) -> String {
    let path = Path::new(&run.origin.file);
    let named = match run.origin.at {
        Some(_) => path,
        None => path.parent().filter(|folder| folder.file_name().is_some()).unwrap_or(path),
    };
    let name = named.file_name().unwrap_or(named.as_os_str()).to_string_lossy();
    if run.origin.at.is_none() && !std::ptr::eq(named, path) {
        return name.into_owned();
    }
    let mut name = &*name;
    for ending in [".zst", ".gz", ".jsonl", ".ndjson", ".json"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    name.to_owned()
}

//! Reads the sessions of opencode from its SQLite database for `audit` and `backtest`.
//!
//! ```text
//! opencode::each(path, &mut |run| match run { Ok(run) => …, Err(problem) => … });
//! ```
//!
//! At most one session is in memory at a time, with those of its subagents.

mod database;
mod session;

use crate::recorded::journal_runs;
use database::Database;
use endstop_trajectory::read::{Problem, ProblemKind, Walk};
use endstop_trajectory::{Origin, Trajectory};
use std::path::{Path, PathBuf};

/// The name of the format in reports.
const FORMAT: &str = "opencode";

/// Returns `true` if a file is a database of opencode.
pub(crate) fn is_one(path: &Path) -> bool {
    // opencode sets no application id; the databases of programs that set one are left closed.
    journal_runs::application_id(path) == Some(0) && Database::has_names(path)
}

/// Returns the databases of opencode in a folder, ordered by name.
pub(crate) fn in_folder(path: &Path) -> impl Iterator<Item = PathBuf> {
    let walk = path.is_dir().then(|| Walk::new(path)).into_iter().flatten();
    walk.filter_map(|source| Some(source.ok()?.path().to_owned())).filter(|file| is_one(file))
}

/// Calls `with` for each session of a database, oldest first, or with the problem of a session.
pub(crate) fn each(path: &Path, with: &mut dyn FnMut(Result<Trajectory<'_>, Problem>)) {
    let problem = |at: Option<u64>, what: String| Problem {
        file: path.display().to_string(),
        at,
        kind: ProblemKind::Unreadable,
        what,
    };
    let read = Database::open(path).and_then(|database| {
        let tree = database.tree()?;
        for (root, at) in tree.roots().iter().zip(1..) {
            with(match session::load(&database, &tree, root) {
                Ok(Some(mut run)) => {
                    let file = path.display().to_string();
                    run.origin = Origin { format: FORMAT, file, at: Some(at) };
                    Ok(run)
                }
                Ok(None) => Err(Problem {
                    kind: ProblemKind::NoTrajectory,
                    ..problem(Some(at), "a session without a message".to_owned())
                }),
                Err(what) => Err(problem(Some(at), what)),
            });
        }
        Ok(tree.unreached())
    });
    match read {
        Ok(0) => {}
        Ok(unreached) => with(Err(problem(
            None,
            format!("{unreached} sessions are subagents of each other, so none of them is read"),
        ))),
        Err(what) => with(Err(problem(None, what))),
    }
}

//! The files that the process may have open: enough for a run, and as many as possible for a server.

use crate::failure::{Failure, Result};

/// Files that a run needs at once: its journal, its runtime, connections, and a command.
const LEAST: usize = 16;

/// Files of a server that are not connections: its journal, its runtime, and those of single commands. An
/// eighth of the limit, if that is more.
const RESERVED: usize = 24;

/// Checks that enough files can be opened. Without it, the runtime would panic, or calls would fail one by
/// one.
pub(crate) fn check() -> Result<()> {
    #[cfg(unix)]
    {
        // Opened, because the process may have inherited any number of files.
        let opened: std::io::Result<Vec<_>> =
            (0..LEAST).map(|_| std::fs::File::open("/dev/null")).collect();
        if let Err(error) = opened {
            return Err(too_few(&error.to_string(), LEAST + 8));
        }
    }
    Ok(())
}

/// Raises the limit of this process as far as it may, and returns the number of connections that a server
/// may have, of which each needs this number of files: at most `most`.
pub(crate) fn connections(most: usize, files_of_each: usize) -> Result<usize> {
    #[cfg(unix)]
    if let Some(limit) = endstop::process::open_files::raise() {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(RESERVED.max(limit / 8)) / files_of_each;
        if room == 0 {
            let problem = format!("only {limit} files may be open");
            return Err(too_few(&problem, RESERVED + files_of_each));
        }
        return Ok(most.min(room));
    }
    Ok(most)
}

fn too_few(problem: &str, least: usize) -> Failure {
    Failure::fault(format!(
        "too few open files are allowed ({problem}); allow at least {least}, for example with \
         `ulimit -n 1024`"
    ))
}

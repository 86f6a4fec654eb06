//! The default session folders of known agents.

use crate::config::journal_path;
use endstop_report::audit::Looked;
use endstop_trajectory::read::Walk;
use std::path::{Path, PathBuf};

/// A folder to search.
pub(crate) struct Place {
    /// The agent that writes to it.
    agent: &'static str,
    /// The folder.
    folder: PathBuf,
    /// Returns `true` if a file of this name is a session.
    wants: fn(&str) -> bool,
}

/// Starts the search of a folder.
pub(crate) fn looked(place: &Place) -> Looked {
    Looked {
        agent: place.agent,
        folder: place.folder.display().to_string(),
        exists: place.folder.is_dir(),
        ..Looked::default()
    }
}

impl Place {
    /// Returns the files whose names look like sessions.
    pub(crate) fn files<'l>(&self, looked: &'l mut Looked) -> impl Iterator<Item = PathBuf> + 'l {
        let wants = self.wants;
        let walk = looked.exists.then(|| Walk::new(&self.folder)).into_iter().flatten();
        walk.filter_map(move |source| match source {
            Ok(source) => {
                let path = source.path();
                let name = path.file_name()?.to_str()?;
                if !wants(name) {
                    return None;
                }
                looked.files += 1;
                Some(path.to_owned())
            }
            Err(problem) => {
                // Three are enough to show the problem; a folder without access may contain
                // thousands.
                if looked.unreadable.len() < 3 {
                    looked.unreadable.push(problem.to_string());
                }
                None
            }
        })
    }
}

/// Returns the session folders of all agents whose formats are supported: those in the user's home,
/// and those in the working folder.
pub(crate) fn places() -> Vec<Place> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME").or_else(|| variable("USERPROFILE"));
    let at_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let config = variable("XDG_CONFIG_HOME").or_else(|| at_home(".config"));
    let here = std::env::current_dir().unwrap_or_default();
    let claude = [
        variable("CLAUDE_CONFIG_DIR"),
        at_home(".claude"),
        config.map(|config| config.join("claude")),
    ];
    let codex = variable("CODEX_HOME").or_else(|| at_home(".codex"));
    let logs = variable("INSPECT_LOG_DIR").unwrap_or_else(|| here.join("logs"));
    let mut places: Vec<Place> = Vec::new();
    let mut add = |agent, folder: PathBuf, wants| {
        // A variable may name the default folder, whose sessions would then count twice.
        if places.iter().all(|place| place.folder != folder) {
            places.push(Place { agent, folder, wants });
        }
    };
    for folder in claude.into_iter().flatten() {
        add("Claude Code", folder.join("projects"), is_transcript);
    }
    for folder in
        codex.iter().flat_map(|codex| ["sessions", "archived_sessions"].map(|at| codex.join(at)))
    {
        add("Codex", folder, is_rollout);
    }
    if let Some(folder) = at_home(".copilot/session-state") {
        add("Copilot CLI", folder, |name| name == "events.jsonl");
    }
    if let Some(folder) = at_home(".cursor/projects") {
        add("Cursor", folder, |name| ends(name, "jsonl"));
    }
    if let Some(folder) = journal_path::usual().as_deref().and_then(Path::parent) {
        add("Endstop", folder.to_owned(), |name| ends(name, "db"));
    }
    add("Inspect", logs, |name| ends(name, "eval"));
    add("Harbor", here.join("jobs"), |name| name == "trajectory.json");
    add("SWE-agent", here.join("trajectories"), |name| ends(name, "traj"));
    places
}

fn ends(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|own| own.eq_ignore_ascii_case(ending))
}

fn is_transcript(name: &str) -> bool {
    // `journal.jsonl` holds messages between agents and is not a session.
    ends(name, "jsonl") && name != "journal.jsonl"
}

fn is_rollout(name: &str) -> bool {
    let plain = name.strip_suffix(".zst").unwrap_or(name);
    name.starts_with("rollout-") && (ends(plain, "jsonl") || ends(plain, "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_files_are_recognised_by_name() {
        assert!(is_transcript("0193.jsonl") && is_transcript("agent-1.jsonl"));
        assert!(!is_transcript("journal.jsonl") && !is_transcript("agent-1.meta.json"));
        assert!(is_rollout("rollout-2026-01-01.jsonl") && is_rollout("rollout-1.jsonl.zst"));
        assert!(is_rollout("rollout-1.json"));
        assert!(!is_rollout("history.jsonl") && !is_rollout("rollout-1.txt"));
    }
}

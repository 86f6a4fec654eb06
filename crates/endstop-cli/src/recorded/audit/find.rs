//! The default session folders of known agents.

use crate::config::state::default_journal;
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
    /// Returns the entry of a home directory that contains the place: `.claude` for
    /// `.claude/projects`.
    pub(crate) fn entry_of(&self, home: &Path) -> Option<PathBuf> {
        let below = self.folder.strip_prefix(home).ok()?;
        Some(home.join(below.components().next()?))
    }

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

/// The folders of agents in a home directory: the agent, the folder, and the names of its sessions.
type AtHome = (&'static str, &'static str, fn(&str) -> bool);

/// Folders that no variable moves.
const AT_HOME: &[AtHome] = &[
    ("Gemini CLI", ".gemini/tmp", is_chat),
    ("Qwen Code", ".qwen/projects", |name| ends(name, "jsonl")),
    ("Copilot CLI", ".copilot/session-state", |name| name == "events.jsonl"),
    ("Cursor", ".cursor/projects", |name| ends(name, "jsonl")),
];

/// Folders that a variable can move, at their default place.
const MOVABLE: &[AtHome] = &[
    ("Claude Code", ".claude/projects", is_transcript),
    ("Codex", ".codex/sessions", is_rollout),
    ("Codex", ".codex/archived_sessions", is_rollout),
    ("pi", ".pi/agent/sessions", |name| ends(name, "jsonl")),
    ("opencode", ".local/share/opencode", is_opencode),
];

/// Returns the session folders of agents in a folder that is a home directory, or a copy of one. A
/// walk skips them, because their names begin with a dot.
pub(crate) fn places_in(home: &Path) -> Vec<Place> {
    let all = MOVABLE.iter().chain(AT_HOME);
    let places =
        all.map(|(agent, path, wants)| Place { agent, folder: home.join(path), wants: *wants });
    places.filter(|place| place.folder.is_dir()).collect()
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
    let pi = variable("PI_CODING_AGENT_DIR").or_else(|| at_home(".pi/agent"));
    let data = variable("XDG_DATA_HOME").or_else(|| at_home(".local/share"));
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
    for (agent, path, wants) in AT_HOME {
        if let Some(folder) = at_home(path) {
            add(agent, folder, *wants);
        }
    }
    if let Some(folder) = pi.map(|pi| pi.join("sessions")) {
        add("pi", folder, |name| ends(name, "jsonl"));
    }
    if let Some(folder) = data.map(|data| data.join("opencode")) {
        add("opencode", folder, is_opencode);
    }
    if let Some(folder) = default_journal().as_deref().and_then(Path::parent) {
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

/// Chats of Gemini CLI lie next to its logs, which are not sessions.
fn is_chat(name: &str) -> bool {
    name.starts_with("session-") && (ends(name, "jsonl") || ends(name, "json"))
}

/// Other channels have a database of their own, for example `opencode-dev.db`.
fn is_opencode(name: &str) -> bool {
    name.starts_with("opencode") && ends(name, "db")
}

fn is_rollout(name: &str) -> bool {
    let plain = name.strip_suffix(".zst").unwrap_or(name);
    name.starts_with("rollout-") && (ends(plain, "jsonl") || ends(plain, "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_agent_folders_are_places() {
        let home = tempfile::tempdir().unwrap();
        assert!(places_in(home.path()).is_empty());
        for folder in [".claude/projects", ".qwen/projects", ".local/share/opencode", ".pi"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        let found: Vec<_> = places_in(home.path()).iter().map(|place| place.agent).collect();
        assert_eq!(found, ["Claude Code", "opencode", "Qwen Code"]);
    }

    #[test]
    fn session_files_are_recognised_by_name() {
        assert!(is_transcript("0193.jsonl") && is_transcript("agent-1.jsonl"));
        assert!(!is_transcript("journal.jsonl") && !is_transcript("agent-1.meta.json"));
        assert!(is_rollout("rollout-2026-01-01.jsonl") && is_rollout("rollout-1.jsonl.zst"));
        assert!(is_rollout("rollout-1.json"));
        assert!(is_chat("session-2026-11-22T08-03-1.jsonl") && !is_chat("logs.json"));
        assert!(is_opencode("opencode.db") && !is_opencode("opencode.db-wal"));
        assert!(!is_rollout("history.jsonl") && !is_rollout("rollout-1.txt"));
    }
}

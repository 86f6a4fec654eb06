//! Words that cases and profiles share, and the error of their files.

use serde::{Deserialize, Serialize};

/// A file of the suite that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {file}: {problem}")]
pub struct BadData {
    /// The file.
    pub file: String,
    /// The field, the problem and the line.
    pub problem: String,
}

impl BadData {
    pub(crate) fn new(file: &str, problem: impl Into<String>) -> BadData {
        BadData { file: file.to_owned(), problem: problem.into() }
    }
}

/// A capability that a program declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// A tool that runs a command.
    Tools,
    /// A machine-readable verdict.
    Json,
    /// A tool that starts a sub-agent.
    SubAgents,
    /// Sub-agents with a cap on turns.
    SubAgentCap,
    /// A shell with background commands.
    Background,
    /// A tool that needs the permission of a person.
    Permissions,
    /// An option for a cap on turns.
    TurnCap,
    /// A summary at the cap on turns.
    WrapUp,
    /// An option for a ceiling in dollars.
    Budget,
    /// Prices of caches.
    CachePrices,
    /// An option for a limit on time.
    TimeCap,
    /// An option for a structured answer.
    Structured,
    /// An option for a hook before the end.
    StopHook,
    /// A start that continues a conversation.
    Resume,
    /// Knowledge of turns that a provider pauses.
    Pauses,
    /// A protocol that it serves.
    Protocol,
}

impl Capability {
    /// All capabilities.
    pub const ALL: [Capability; 16] = [
        Capability::Tools,
        Capability::Json,
        Capability::SubAgents,
        Capability::SubAgentCap,
        Capability::Background,
        Capability::Permissions,
        Capability::TurnCap,
        Capability::WrapUp,
        Capability::Budget,
        Capability::CachePrices,
        Capability::TimeCap,
        Capability::Structured,
        Capability::StopHook,
        Capability::Resume,
        Capability::Pauses,
        Capability::Protocol,
    ];

    /// Returns the name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Capability::Tools => "tools",
            Capability::Json => "json",
            Capability::SubAgents => "sub_agents",
            Capability::SubAgentCap => "sub_agent_cap",
            Capability::Background => "background",
            Capability::Permissions => "permissions",
            Capability::TurnCap => "turn_cap",
            Capability::WrapUp => "wrap_up",
            Capability::Budget => "budget",
            Capability::CachePrices => "cache_prices",
            Capability::TimeCap => "time_cap",
            Capability::Structured => "structured",
            Capability::StopHook => "stop_hook",
            Capability::Resume => "resume",
            Capability::Pauses => "pauses",
            Capability::Protocol => "protocol",
        }
    }
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// Runs a command.
    Shell,
    /// Starts a sub-agent.
    SubAgent,
    /// Needs the permission of a person.
    Permission,
}

impl Tool {
    /// All kinds.
    pub const ALL: [Tool; 3] = [Tool::Shell, Tool::SubAgent, Tool::Permission];

    /// Returns the name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Shell => "shell",
            Tool::SubAgent => "sub_agent",
            Tool::Permission => "permission",
        }
    }
}

/// Describes the known names, and the one that is most like a wrong one.
pub(crate) fn expected<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let near = |name: &&&str| {
        strsim::osa_distance(&wrong.chars().take(64).collect::<String>(), name)
            <= 1 + name.len() / 4
    };
    let hint =
        known.iter().find(near).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("expected one of {}{hint}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::Capability;

    #[test]
    fn description_of_cases_has_each_capability() {
        let text = include_str!("../cases/README.md");
        let row = text.lines().find(|line| line.starts_with("| `needs` |"));
        let names: Vec<&str> = row.unwrap_or_default().split('`').skip(3).step_by(2).collect();
        assert_eq!(names, Capability::ALL.map(Capability::name));
    }
}

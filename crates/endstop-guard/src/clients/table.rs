//! The clients that are known, as data.

use super::plan::Plan;
use super::wiring::{Unguardable, Warning};
use super::{aider, claude, codex, gemini, opencode, pi, qwen};

/// A client that is known.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Client {
    /// Name for people.
    pub name: &'static str,
    /// Names of its program.
    pub programs: &'static [&'static str],
    /// Names of its package on npm or PyPI.
    pub packages: &'static [&'static str],
    /// Names of its Python module, for `python -m`.
    pub modules: &'static [&'static str],
    /// Version with which the wiring was tested; empty if it was not.
    pub tested: &'static str,
    /// Adds its options, files and upstreams to those of every program.
    pub(super) wire: fn(&mut Plan<'_>),
}

/// The clients. Scripts with an SDK need no row, because the variables are enough for them.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "Claude Code",
        programs: &["claude"],
        packages: &["@anthropic-ai/claude-code"],
        modules: &[],
        tested: "2.1.330",
        wire: claude::wire,
    },
    Client {
        name: "codex",
        programs: &["codex"],
        packages: &["@openai/codex"],
        modules: &[],
        tested: "0.169.0",
        wire: codex::wire,
    },
    Client {
        name: "Gemini CLI",
        programs: &["gemini"],
        packages: &["@google/gemini-cli"],
        modules: &[],
        tested: "0.61.0",
        wire: gemini::wire,
    },
    Client {
        name: "opencode",
        programs: &["opencode"],
        packages: &["opencode-ai"],
        modules: &[],
        tested: "1.18.33",
        wire: opencode::wire,
    },
    Client {
        name: "Qwen Code",
        programs: &["qwen"],
        packages: &["@qwen-code/qwen-code"],
        modules: &[],
        tested: "0.24.4",
        wire: qwen::wire,
    },
    Client {
        name: "aider",
        programs: &["aider"],
        packages: &["aider-chat"],
        modules: &["aider"],
        tested: "0.86.2",
        wire: aider::wire,
    },
    Client {
        name: "pi",
        programs: &["pi"],
        packages: &["@mariozechner/pi-coding-agent"],
        modules: &[],
        tested: "0.73.1",
        wire: pi::wire,
    },
    Client {
        name: "crush",
        programs: &["crush"],
        packages: &["@charmland/crush"],
        modules: &[],
        tested: "",
        wire: |plan| plan.warn(Warning::Untested("crush")),
    },
    Client {
        name: "Cursor",
        programs: &["cursor-agent", "cursor"],
        packages: &[],
        modules: &[],
        tested: "",
        wire: |plan| plan.warn(Warning::Unguardable(Unguardable::Cursor)),
    },
];

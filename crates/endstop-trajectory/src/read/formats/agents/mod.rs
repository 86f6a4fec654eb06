//! Readers of the sessions of coding agents.

pub(crate) mod claude_code;
pub(crate) mod codex;
pub(crate) mod copilot;
pub(crate) mod cursor;
pub(crate) mod endstop;
pub(crate) mod gemini_cli;
pub(crate) mod opencode;
pub(crate) mod openhands;
pub(crate) mod pi;
pub(crate) mod qwen_code;
pub(crate) mod swe_agent;

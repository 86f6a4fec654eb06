//! The agent loop that reports why it stopped: every run ends exactly once, with a typed
//! reason, its cost, and the evidence.
//!
//! ```
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Limits, Termination};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([Turn::text("Half an ans").finish("length")]);
//! let agent = Agent::builder(model)
//!     .limits(Limits { max_turns: Some(10), ..Limits::default() })
//!     .build()?;
//! let outcome = agent.run("Tell me a story.")?.outcome().await;
//! // A truncated answer never counts as success, and its text is preserved.
//! assert_eq!(outcome.termination, Termination::ErrorOutputTruncated);
//! assert_eq!(outcome.last_text.as_deref(), Some("Half an ans"));
//! # Ok(()) }
//! ```
//!
//! The root has the types of everyday use: agents, messages, limits and outcomes. Each extension
//! point has a module with its trait and the types of its methods: [`tool`], [`hook`], [`policy`],
//! [`provider`], [`compaction`], [`journal`]. Two crates below are re-exported whole: [`core`], the
//! kernel, free of I/O, for programs that drive a run by hand, and [`wire`], the wire formats of
//! the providers.
//!
//! # Cargo features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `http` | yes | [`provider::http`]: the models of all providers over HTTP |
//! | `bedrock` | | Amazon Bedrock with AWS access keys; with a Bedrock API key, `http` is enough |
//! | `google-login` | | Google's application default credentials, for Vertex AI |
//! | `journal` | | [`journal::SqliteJournal`]: runs on disk, to be explained, replayed, resumed |
//! | `mcp` | | [`mcp`]: tools of MCP servers |
//! | `opentelemetry` | | spans in the traces of other programs, by the header `traceparent` |
//! | `regex` | | patterns in Python's syntax: `final_pattern` with `matching = "regex"`, `text_mention` |
//! | `testkit` | | [`testkit`]: a scripted model and scripted servers, for tests and the examples of these pages |
//! | `tracing` | | spans of runs, model calls and tools |
//!
//! ```toml
//! [dependencies]
//! endstop = { version = "0.1", features = ["journal"] }
//! [dev-dependencies]
//! endstop = { version = "0.1", features = ["testkit"] }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
pub mod budget;
mod clock;
pub mod compaction;
mod control;
pub mod event;
pub mod hook;
pub mod journal;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod park;
pub mod policy;
pub mod provider;
mod redacted;
pub mod schema;
pub mod simulate;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tool;
pub mod verifier;

pub use agent::{
    Agent, AgentBuilder, Approval, Branch, BuildError, Lifecycle, NoValue, Resume, RunHandle,
    RunInput, Session, SessionSnapshot, StartError, SteerError, Steering, TypedHandle,
    TypedOutcome,
};
pub use endstop_core as core;
pub use endstop_core::{
    Attachment, BranchPoint, CacheUse, Category, DecidedBy, Document, Image, LimitChanges, Limits,
    MediaError, Message, MessageId, NanoUsd, Outcome, Part, Permission, Price, Role, Termination,
    ToolCall, ToolResult, ToolStatus, Unsuccessful, Usage, Watch, WatchMode,
};
pub use endstop_wire as wire;
pub use endstop_wire::{Caching, Effort, ModelParams, ParamError, Thinking, ToolChoice};
pub use event::{AgentEvent, AgentEventKind};

/// Runs shell commands and kills the whole process tree of a command when it ends.
pub mod process {
    #[cfg(unix)]
    #[doc(inline)]
    pub use endstop_process::open_files;
    #[doc(inline)]
    pub use endstop_process::{
        Capture, CommandLine, Finished, Orphans, StopTokens, environment_secrets,
        hide_from_other_processes, keeper, talk,
    };
}

#[cfg(doctest)]
mod mistakes;

/// Compiles the examples of the README and of the book.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[cfg(feature = "testkit")]
    #[doc = include_str!("../../../docs/src/start/first-program.md")]
    struct FirstProgram;
    #[doc = include_str!("../../../docs/src/library.md")]
    struct Library;
    #[doc = include_str!("../../../docs/src/providers.md")]
    struct Providers;
    #[doc = include_str!("../../../docs/src/processes.md")]
    struct Processes;
    #[doc = include_str!("../../../docs/src/recording.md")]
    struct RecordAndReplay;
    #[doc = include_str!("../../../docs/src/hooks.md")]
    struct HooksAndApprovals;
    #[doc = include_str!("../../../docs/src/defining-tools.md")]
    struct DefiningTools;
    #[doc = include_str!("../../../docs/src/events.md")]
    struct Events;
    #[doc = include_str!("../../../docs/src/steering.md")]
    struct Steering;
    #[doc = include_str!("../../../docs/src/guests.md")]
    struct Guests;
    #[doc = include_str!("../../../docs/src/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../../../docs/src/choosing-a-policy.md")]
    struct ChoosingAPolicy;
    #[doc = include_str!("../../../docs/src/compaction.md")]
    struct Compaction;
    #[doc = include_str!("../../../docs/src/limits.md")]
    struct Limits;
    #[doc = include_str!("../../../docs/src/extending.md")]
    struct Extending;
    #[cfg(feature = "journal")]
    #[doc = include_str!("../../../docs/src/journal.md")]
    struct Journal;
    #[cfg(feature = "journal")]
    #[doc = include_str!("../../../docs/src/branch.md")]
    struct Branches;
    #[cfg(feature = "journal")]
    #[doc = include_str!("../../../docs/src/parked.md")]
    struct Parked;
    #[cfg(feature = "mcp")]
    #[doc = include_str!("../../../docs/src/mcp.md")]
    struct Mcp;
}

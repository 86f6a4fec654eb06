//! Runs shell commands and kills the whole process tree of a command when it ends.
//!
//! ```
//! use endstop_process::{CommandLine, StopTokens};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! let command = CommandLine::new("echo out; echo err >&2; exit 3");
//! let finished = command.run(&StopTokens::never()).await?;
//! assert_eq!(finished.output.text().replace('\r', ""), "out\nerr\n");
//! assert_eq!(finished.how(), "exit status 3");
//! # Ok(()) }
//! ```
//!
//! - Each command runs in its own process group (Windows: a job object). However the command ends,
//!   the rest of its group is then killed, so no background child outlives it.
//! - [`StopTokens`] asks the whole group to end (SIGTERM) and kills it after a grace period. Dropping the
//!   future kills it at once.
//! - On Linux, children that left the group (`setsid`, daemons) are killed too when the command
//!   ends or is killed. On other systems they are not found.
//! - If this process is killed itself, even with SIGKILL, its commands die with it: on Windows
//!   always, on Unix if its `main` has called [`keeper::serve_if_asked`]. Without that call they
//!   keep running, and children that left the group are found only by a mark in their environment.
//! - If a command kills its [keeper] (the supervisor process between this process and the command),
//!   this process kills the command instead. On Linux all of its processes are found if `main` has
//!   called [`keeper::adopt_orphans`]. [`Orphans`] reports what was not found.
//! - Processes that could not be killed are listed in [`Finished::left`].
//! - [`AgentProgram`] is a program that shares the terminal of this process, for example a coding
//!   agent. Its whole process tree is interrupted, then asked to end, then killed.
//! - The result does not wait for the end of a pipe that another process still holds.
//! - The output of a command is bounded in memory ([`Capture`]). Standard output and standard error
//!   stay in the order in which they came.
//!
//! This crate is the part of [Endstop](https://docs.rs/endstop) that runs processes; `endstop`
//! re-exports it as `endstop::process`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod agent;
mod command;
mod ended;
mod hidden;
pub mod keeper;
#[cfg(unix)]
pub mod open_files;
mod shell;
mod tree;

pub use agent::{AgentEnd, AgentExit, AgentProcess, AgentProgram, StopStep};
pub use command::capture::Capture;
pub use command::environment::environment_secrets;
pub use command::finished::Finished;
pub use command::stop::StopTokens;
pub use command::{CommandLine, pipe, talk};
pub use ended::Orphans;
pub use hidden::hide_from_other_processes;
pub use tree::descendants::{carriers, command_lines};
pub use tree::survivor::Survivor;

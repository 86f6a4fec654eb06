//! Starts a run: a new one, a stored one that is resumed, or a branch of a stored one.
//!
//! ```text
//! let handle = start(&agent, Begin::Task(input), &mut screen)?;
//! ```

use super::earlier::{Earlier, accepted};
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::screen::Screen;
use endstop::agent::{Agent, RunHandle};
use endstop::{Branch, Resume, RunInput, StartError};

/// The start of a run: a new task, a resume, or a branch with the line that announces it.
pub(crate) enum Begin {
    Task(Box<RunInput>),
    Again(Box<Resume>, Box<Earlier>),
    Branch(Box<Branch>, String),
}

/// Starts the run, or resumes it.
pub(super) fn start(agent: &Agent, begin: Begin, screen: &mut Screen) -> Result<RunHandle> {
    match begin {
        Begin::Task(task) => agent.run(*task).map_err(|error| Failure::usage(error.to_string())),
        Begin::Again(how, earlier) => {
            let handle = match agent.resume(Resume::clone(&how)) {
                Err(StartError::Changed(changes)) => {
                    accepted(&changes)?;
                    agent.resume(how.accept_changes()).map_err(not_resumed)?
                }
                resumed => resumed.map_err(not_resumed)?,
            };
            output::note(&earlier.words);
            screen.run_resumed(earlier.calls);
            Ok(handle)
        }
        Begin::Branch(how, words) => {
            let handle = match agent.branch(Branch::clone(&how)) {
                Err(StartError::Changed(changes)) => {
                    accepted(&changes)?;
                    agent.branch(how.accept_changes()).map_err(not_branched)?
                }
                branched => branched.map_err(not_branched)?,
            };
            output::note(&words);
            Ok(handle)
        }
    }
}

fn not_resumed(error: StartError) -> Failure {
    match error {
        error
        @ (StartError::Ended { .. } | StartError::Damaged { .. } | StartError::Journal(_)) => {
            Failure::usage(format!("--resume: {error}"))
        }
        error @ StartError::Redacted(_) => {
            Failure::usage(format!("--resume: {error} (pass --accept-redacted to resume anyway)"))
        }
        error => Failure::usage(error.to_string()),
    }
}

fn not_branched(error: StartError) -> Failure {
    match error {
        error @ StartError::Redacted(_) => {
            Failure::usage(format!("{error} (pass --accept-redacted to branch anyway)"))
        }
        error @ StartError::Answered { .. } => {
            Failure::usage(format!("{error} (--message TEXT, or a lower --at)"))
        }
        error => Failure::usage(error.to_string()),
    }
}

//! Steers a run while it works: messages of the user, and other limits.
//!
//! ```
//! # use endstop::testkit::{ScriptedModel, Turn};
//! # use endstop::tool::{ToolOutput, tool_fn};
//! # use endstop::{Agent, AgentEventKind, LimitChanges};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = ScriptedModel::new([Turn::call("look", &serde_json::json!({})), Turn::text("Done.")]);
//! # let told = std::sync::Arc::new(tokio::sync::Notify::new());
//! # let waits = told.clone();
//! # let look = tool_fn("look", "Looks.", move |_: serde_json::Value, _| {
//! #     let waits = waits.clone();
//! #     async move { waits.notified().await; ToolOutput::ok("a.txt") }
//! # });
//! # let agent = Agent::builder(model).tool(look).build()?;
//! let mut run = agent.run("Fix the tests.")?;
//! let steering = run.steering(); // for another task; `run.say` and `run.set_limits` do the same
//! while let Some(event) = run.next().await {
//!     if let AgentEventKind::ToolStarted { .. } = event.kind {
//!         steering.say("Leave the database alone.")?;
//!         steering.set_limits(LimitChanges::new().set("max_turns", 80.into())?)?;
//! #         told.notify_one(); // the scripted run would otherwise end before the message
//!     }
//! }
//! let outcome = run.await;
//! # assert!(outcome.messages.iter().any(|message| message.plain_text() == "Leave the database alone."));
//! assert!(steering.say("Thanks.").is_err(), "the run has ended");
//! # Ok(()) }
//! ```

use super::ending::EndingCell;
use crate::agent::shared::Shared;
use crate::control::{Closed, Control};
use endstop_core::{EventKind, Limit, LimitChanges, LimitError, Limits, is_blank};
use std::fmt;
use std::sync::Arc;

/// Maximum length of a message in bytes.
const MOST_TEXT: usize = 64 << 10;
/// Maximum length of all messages to one run in bytes.
const MOST_SAID: usize = 4 << 20;

/// The reason why a message or a change of limits was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SteerError {
    /// The run has ended. A message for a later run is its input.
    #[error("the run has ended; start another run of the session with the message")]
    Ended,
    /// The run is parked. The process that resumes it takes messages again.
    #[error(
        "the run is parked, and continues in another process; send the message when it was resumed"
    )]
    Parked,
    /// The message is blank.
    #[error("the message is blank; send text")]
    Blank,
    /// The message is too long.
    #[error(
        "the message has {bytes} bytes, and at most {MOST_TEXT} are allowed; put the text into a file that the model can read"
    )]
    TooLong {
        /// Length of the message in bytes.
        bytes: usize,
    },
    /// The messages to this run are too long together.
    #[error(
        "the messages to this run have more than {MOST_SAID} bytes together; start another run"
    )]
    TooMuch,
    /// A limit cannot be changed while the run works.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The limits would permit more, and the sender may only tighten them.
    #[error("the change would loosen {}, and this sender may only tighten limits", .0.join(", "))]
    Loosens(Vec<&'static str>),
}

impl From<Closed> for SteerError {
    fn from(closed: Closed) -> SteerError {
        match closed {
            Closed::Parked => SteerError::Parked,
            Closed::Ended => SteerError::Ended,
        }
    }
}

/// Checks a message as [`Steering::say`] does, for a server that sends it to another process.
///
/// # Errors
/// The message is blank or longer than 64 KiB.
pub fn check_text(text: &str) -> Result<(), SteerError> {
    if is_blank(text) {
        return Err(SteerError::Blank);
    }
    if text.len() > MOST_TEXT {
        return Err(SteerError::TooLong { bytes: text.len() });
    }
    Ok(())
}

/// Steers a run while it works. Clones steer the same run.
///
/// Each message and each change of limits is an event in the journal, so a replay of the run includes
/// it. Nothing of it reaches runs inside this one.
#[derive(Clone)]
pub struct Steering {
    control: Control,
    ending: EndingCell,
    agent: Option<Arc<Shared>>,
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering")
            .field("ended", &self.ending.get().is_some())
            .finish_non_exhaustive()
    }
}

impl Steering {
    pub(in crate::agent) fn new(
        control: Control,
        ending: EndingCell,
        agent: Option<Arc<Shared>>,
    ) -> Steering {
        Steering { control, ending, agent }
    }

    /// Sends the model a message of the user. It enters the conversation before the next model call:
    /// after the response that is streamed, the tools that run, or a compaction in progress. If the
    /// model answers in text before that, the run continues with the message, as long as its limits
    /// permit another turn. A declared answer (`finish`, a policy) stands; the message is then at the
    /// end of the conversation.
    ///
    /// # Errors
    /// The run has ended or is parked, or the message is blank or longer than 64 KiB.
    pub fn say(&self, text: impl Into<String>) -> Result<(), SteerError> {
        let text = text.into();
        check_text(&text)?;
        self.check_live()?;
        self.control.send(|mailbox| {
            let said = mailbox.said.saturating_add(text.len());
            if said > MOST_SAID {
                return Err(SteerError::TooMuch);
            }
            mailbox.said = said;
            Ok(EventKind::Said { text })
        })
    }

    /// Changes limits of the run. What was used so far counts against them: a limit that is now
    /// reached ends the run before its next turn, and `timeout` ends it at once.
    ///
    /// # Errors
    /// The run has ended or is parked, or a limit cannot be set while the run works: `max_budget_usd`
    /// without a price, `verify_rounds` without a verifier, or `wrap_up` if the run began without it.
    pub fn set_limits(&self, changes: LimitChanges) -> Result<(), SteerError> {
        self.change(changes, false)
    }

    /// Changes limits of the run for a sender that may not loosen any of them, for example a client
    /// of a server.
    ///
    /// # Errors
    /// Those of [`set_limits`](Self::set_limits), or a limit would permit more than now.
    pub fn tighten_limits(&self, changes: LimitChanges) -> Result<(), SteerError> {
        self.change(changes, true)
    }

    /// Returns the limits of the run with all changes that were sent.
    pub fn limits(&self) -> Limits {
        self.control.sent_limits().unwrap_or_else(|| self.first_limits())
    }

    /// Returns the limits with which the run began.
    fn first_limits(&self) -> Limits {
        self.agent.as_ref().map(|agent| agent.config.limits.clone()).unwrap_or_default()
    }

    fn check_live(&self) -> Result<(), SteerError> {
        if self.ending.get().is_some() { Err(SteerError::Ended) } else { Ok(()) }
    }

    fn change(&self, changes: LimitChanges, only_tighter: bool) -> Result<(), SteerError> {
        self.check_live()?;
        self.control.send(|mailbox| {
            let before = mailbox.limits.clone().unwrap_or_else(|| self.first_limits());
            if only_tighter {
                let looser = changes.looser_than(&before);
                if !looser.is_empty() {
                    return Err(SteerError::Loosens(looser));
                }
            }
            let mut after = before.clone();
            changes.apply(&mut after);
            self.check_possible(&before, &after)?;
            mailbox.limits = Some(after);
            Ok(EventKind::LimitsChanged { limits: changes })
        })
    }

    /// Refuses limits for which the run lacks something that it needed at its beginning.
    fn check_possible(&self, before: &Limits, after: &Limits) -> Result<(), SteerError> {
        let Some(agent) = &self.agent else { return Ok(()) };
        let config = &agent.config;
        let refuse = |key: &str, problem: &str| {
            Err(LimitError { key: key.to_owned(), problem: problem.to_owned() }.into())
        };
        let counts_money = after.bounds_cost_by().map(Limit::name);
        if let Some(name) = counts_money.filter(|name| config.check_prices(name).is_err()) {
            return refuse(
                name,
                "no price is known of the model or of a fallback, so no cost can be limited",
            );
        }
        if after.verify_rounds.is_some() && config.verifier.is_none() {
            return refuse("verify_rounds", "the run has no verifier");
        }
        if after.wrap_up && !before.wrap_up {
            return refuse("wrap_up", "it can only be switched off while the run works");
        }
        Ok(())
    }
}

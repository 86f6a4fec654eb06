//! Branches a run: starts a new run with the conversation of a journalled one up to a turn, and
//! continues from there.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use endstop::journal::SqliteJournal;
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Branch};
//! use serde_json::json;
//!
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let look = Turn::call("look", &json!({}));
//! let script = [look, Turn::text("Rome."), Turn::text("Paris.")];
//! let agent = Agent::builder(ScriptedModel::new(script)).journal(journal.clone()).build()?;
//! let first = agent.run("What is the capital of France?")?.await;
//! assert_eq!(first.last_text.as_deref(), Some("Rome."));
//!
//! // Another run continues after the first turn of that run, and makes no call of it again.
//! let id = first.run_id.unwrap_or_default();
//! let second = agent.branch(Branch::new(id, 1).message("Check it before you answer."))?.await;
//! assert_eq!(second.last_text.as_deref(), Some("Paris."));
//! assert_eq!((second.turns, second.branched_from.map(|from| from.turn)), (1, Some(1)));
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))] fn main() {}
//! ```

use crate::agent::driver::Beginning;
use crate::agent::handle::RunHandle;
use crate::agent::session::Session;
use crate::agent::setup::config::Config;
use crate::agent::setup::policy::PolicyTemplate;
use crate::agent::shared::Agent;
use crate::agent::start::conversation::{Conversation, Fork, RunInput, check_history};
use crate::agent::start::run_setup::Opened;
use crate::agent::start::start_error::StartError;
use crate::journal::{Change, Journal, Prefix, RecordedRun, RunHeader};
use crate::provider::{ModelParams, Provider};
use crate::schema::OutputSchema;
use endstop_core::{Message, MessageId, Part, RunSpec};
use std::sync::Arc;

/// The run and the turn to branch at, and what the new run does differently.
#[derive(Clone, Debug)]
#[must_use]
pub struct Branch {
    run: String,
    turn: u32,
    message: Option<RunInput>,
    id: Option<String>,
    params: ModelParams,
    schema: Option<Arc<OutputSchema>>,
    accept_changes: bool,
    accept_redacted: bool,
}

impl Branch {
    /// Branches from the run with this id after this turn, counted from 1. 0 is the beginning of the
    /// run.
    pub fn new(run: impl Into<String>, turn: u32) -> Branch {
        Branch {
            run: run.into(),
            turn,
            message: None,
            id: None,
            params: ModelParams::default(),
            schema: None,
            accept_changes: false,
            accept_redacted: false,
        }
    }

    /// Adds a message of the user, which the model reads after the turn.
    pub fn message(mut self, message: impl Into<RunInput>) -> Branch {
        self.message = Some(message.into());
        self
    }

    /// Sets the id of the new run, as [`RunInput::id`] does.
    pub fn id(mut self, id: impl Into<String>) -> Branch {
        self.id = Some(id.into());
        self
    }

    /// Sets parameters of the requests, as [`RunInput::params`] does. Those that are set replace the
    /// agent's.
    pub fn params(mut self, params: ModelParams) -> Branch {
        self.params = params;
        self
    }

    /// Sets the schema of the answer, which replaces the agent's.
    pub fn output_schema(mut self, schema: OutputSchema) -> Branch {
        self.schema = Some(Arc::new(schema));
        self
    }

    /// Branches even if the agent's tools, system prompt or schema of the answer differ from those
    /// of the other run: the model then reads calls of tools that it does not have, for example.
    /// Model, limits, policy, hooks and parameters may always differ.
    pub fn accept_changes(mut self) -> Branch {
        self.accept_changes = true;
        self
    }

    /// Branches even if secrets were removed from the conversation when it was journalled
    /// ([`RecordedRun::redacted`]). The model receives `[redacted]` in their place.
    pub fn accept_redacted(mut self) -> Branch {
        self.accept_redacted = true;
        self
    }
}

impl Agent {
    /// Starts a run with the beginning of a journalled one, in a new conversation; see
    /// [`Session::branch`].
    ///
    /// # Errors
    /// Those of [`Session::branch`].
    pub fn branch(&self, how: Branch) -> Result<RunHandle, StartError> {
        self.session().branch(how)
    }
}

impl Session {
    /// Starts a new run with the conversation that a run of the agent's journal had after a turn. It
    /// replaces the conversation of the session.
    ///
    /// The conversation is that of the other run's next request, byte for byte. No tool of it runs
    /// again, whether the tool is repeatable or not: the model reads the recorded results. What the
    /// tools have changed outside the run is not undone. The new run pays only for what it does
    /// itself; [`Outcome::branched_from`](endstop_core::Outcome::branched_from) has the other run,
    /// and its cost at that turn. Limits, turns, policies and progress detection count from zero.
    ///
    /// The other run is not changed. It may still work, or be parked; only its complete turns count.
    /// Parts that belong to another API (signed reasoning, for example) are not sent, and are counted
    /// in [`BranchPoint::left_out`](endstop_core::BranchPoint::left_out).
    ///
    /// # Errors
    /// Those of [`run`](Self::run). The journal has no such run, or the run has no such turn; it
    /// belonged to another program; its answer is at this turn, and there is no message; tools,
    /// system prompt or schema differ; or secrets were removed from the conversation.
    pub fn branch(&self, mut how: Branch) -> Result<RunHandle, StartError> {
        let id = how.id.take().map(|id| RunInput::default().id(id).take_id());
        let id = id.transpose()?.flatten();
        let slot = self.take_slot()?;
        let config = &slot.agent().config;
        let Some(journal) = &config.journal else {
            return Err(StartError::NoJournal);
        };
        let message = how.message.take().map(|input| {
            how.params = input.params.over(&how.params);
            input.into_message(&*config.provider)
        });
        let params = how.params.over(&config.params);
        let schema = how.schema.clone().or_else(|| config.schema.clone());
        if !how.params.is_empty() || how.schema.is_some() {
            config.check_params(&params, schema.as_ref())?;
        }
        let conversation = forked(&**journal, config, &how, schema.as_ref(), message.transpose()?)?;
        Ok(slot.launch(Beginning::New(conversation, Box::new(params), schema, id)))
    }
}

/// Returns the conversation that the branch begins with.
fn forked(
    journal: &dyn Journal,
    config: &Config,
    how: &Branch,
    schema: Option<&Arc<OutputSchema>>,
    message: Option<Message>,
) -> Result<Conversation, StartError> {
    let recorded = journal.load(&how.run)?;
    // Only the policy of the run replays it. One that was built in code is the agent's.
    let in_code = recorded.spec(None).is_err();
    let policy = config.policy.as_ref().filter(|_| in_code).map(PolicyTemplate::copy);
    let prefix = recorded.prefix(how.turn, policy)?;
    let changes = read_changes(&recorded, config, schema);
    if !changes.is_empty() && !how.accept_changes {
        return Err(StartError::Changed(changes));
    }
    if recorded.redacted > 0 && !how.accept_redacted {
        return Err(StartError::Redacted(recorded.redacted));
    }
    let Prefix { mut messages, epoch, task, task_message, mut point, answered } = prefix;
    if answered && message.is_none() {
        return Err(StartError::Answered { run: point.run_id, turn: point.turn });
    }
    if let Some(message) = message {
        let last = messages.iter().map(|message| message.id.0).max().unwrap_or(0);
        messages.push(Message { id: MessageId(last.saturating_add(1)), ..message });
    }
    check_history(&messages)?;
    check_attachments(&messages, &*config.provider)?;
    point.left_out = left_out(&messages, config.provider.wire_format());
    let redacted = recorded.redacted;
    let fork = Some(Box::new(Fork { point, task, task_message, redacted }));
    Ok(Conversation { messages, epoch, fork })
}

/// Returns the differences in what the model reads in front of the conversation. The others are what
/// a branch is for.
fn read_changes(
    recorded: &RecordedRun,
    config: &Config,
    schema: Option<&Arc<OutputSchema>>,
) -> Vec<Change> {
    let now = RunHeader {
        system: config.system.clone(),
        tools: Opened::default().tool_definitions(config),
        output_schema: schema.map(|schema| schema.as_value().clone()),
        // Permissions and time limits of the tools are not part of what the model reads.
        spec: RunSpec { tools: recorded.header.spec.tools.clone(), ..RunSpec::default() },
        ..RunHeader::default()
    };
    let mut changes = recorded.changes(&now);
    changes.retain(|change| {
        matches!(&*change.what, "instructions" | "output schema")
            || change.what.starts_with("tool ")
    });
    changes
}

/// Refuses images and documents that the model does not take, because it may be another one.
fn check_attachments(messages: &[Message], provider: &dyn Provider) -> Result<(), StartError> {
    for attachment in
        messages.iter().flat_map(|message| &message.parts).filter_map(Part::attachment)
    {
        provider.check_attachment(&attachment).map_err(|source| {
            let attachment = attachment.to_string();
            StartError::UnsupportedMedia { attachment, source }
        })?;
    }
    Ok(())
}

/// Counts the parts that belong to another wire format than that of the provider.
fn left_out(messages: &[Message], own: Option<&str>) -> u64 {
    let Some(own) = own else { return 0 };
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter(|part| matches!(part, Part::Opaque { api, .. } if api != own)).count() as u64
}

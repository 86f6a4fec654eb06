//! A session: one conversation, and the runs on it, one at a time.
//!
//! ```text
//! let slot = session.take_slot()?; // no other run of the session starts
//! let handle = slot.launch(Beginning::New(conversation, params, schema, None));
//! ```

pub(super) mod state;

use super::driver::{Beginning, Driver};
use super::handle::RunHandle;
use super::handle::ending::EndingCell;
use super::shared::{Agent, Lifecycle, Shared};
use super::start::conversation::{Conversation, RunInput, check_history, number};
use super::start::start_error::StartError;
use crate::control::Control;
use crate::schema::OutputSchema;
use crate::tool::ToolContext;
use endstop_core::{Message, MessageId};
use serde::{Deserialize, Serialize, Serializer};
use state::{Running, SessionShared, UnderWay};
use std::fmt;
use std::sync::Arc;

/// One conversation of an [`Agent`](crate::Agent), with one run at a time. A second run while one
/// is in progress is refused as [`StartError::Busy`].
///
/// Clones share the conversation, for example to cancel its run from another task;
/// [`fork`](Self::fork) creates an independent one. Serialize a session, or take a
/// [`snapshot`](Self::snapshot), to store the conversation, and continue it with
/// [`Agent::session_from`](crate::Agent::session_from).
///
/// A run in which the model produced no output leaves the conversation as it was before that run.
#[derive(Clone)]
pub struct Session(Arc<SessionShared>);

/// A stored conversation. The messages are those that the model received, so they may contain
/// secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
}

impl From<Vec<Message>> for SessionSnapshot {
    fn from(messages: Vec<Message>) -> SessionSnapshot {
        SessionSnapshot { messages }
    }
}

/// A reservation of the session's single run slot. The caller prepares the run while it holds the
/// reservation, but no lock: preparation calls the provider, hooks and observers, and a stop must
/// not wait for their code.
pub(super) struct RunSlot {
    shared: Arc<SessionShared>,
    runtime: tokio::runtime::Handle,
    number: u64,
    control: Control,
    conversation: Conversation,
    _under_way: UnderWay,
    started: bool,
}

impl RunSlot {
    pub(super) fn agent(&self) -> &Shared {
        &self.shared.agent
    }

    pub(super) fn launch(mut self, beginning: Beginning) -> RunHandle {
        let ending = EndingCell::default();
        let (handle, sink) = RunHandle::new(ending.clone(), self.control.clone());
        let shared = Arc::clone(&self.shared);
        let keys = beginning.keys();
        let approvals = handle.approvals();
        let control = self.control.clone();
        let driver = Driver::new(shared, self.number, control, ending, sink, approvals, beginning);
        // From here on, the driver releases the slot.
        self.started = true;
        let agent = Arc::clone(&self.shared.agent);
        let handle = handle.describe(Arc::clone(driver.place()), agent, keys);
        // Observers receive `true` before the driver can end the run and queue `false`.
        self.shared.agent.tell_busy();
        self.runtime.spawn(self.shared.track(driver.drive()));
        handle
    }
}

impl Drop for RunSlot {
    /// Releases the slot if no run was started.
    fn drop(&mut self) {
        if !self.started {
            self.shared.finished(self.number, None);
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lifecycle = self.lifecycle();
        f.debug_struct("Session")
            .field("messages", &self.0.state().messages.len())
            .field("lifecycle", &lifecycle)
            .finish_non_exhaustive()
    }
}

/// Serializes the [`snapshot`](Session::snapshot).
impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.snapshot().serialize(serializer)
    }
}

impl Agent {
    /// Starts a run in a new conversation, which ends with it. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// The agent was terminated or has an invalid configuration, or the input is blank.
    pub fn run(&self, input: impl Into<RunInput>) -> Result<RunHandle, StartError> {
        self.session().run(input)
    }

    /// Starts a conversation. Costs almost nothing.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::new(Arc::clone(&self.0), Vec::new(), 0)
    }

    /// Starts a conversation from stored messages or a [`SessionSnapshot`]. Messages without a
    /// number, such as those of [`Message::user`], are numbered.
    ///
    /// ```
    /// # use endstop::{Agent, SessionSnapshot, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("Hello, Ada.")])).build()?;
    /// let session = agent.session();
    /// session.run("I am Ada.")?.await;
    /// let stored = serde_json::to_string(&session)?;
    /// // Later, maybe in another process:
    /// let session = agent.session_from(serde_json::from_str::<SessionSnapshot>(&stored)?)?;
    /// assert_eq!(session.messages().len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Providers would refuse the conversation ([`history::problem`](endstop_core::history::problem)): a
    /// duplicate message id, a call without a result, a result without a call, an empty message.
    /// The error names the message. An empty list is a new conversation.
    pub fn session_from(&self, stored: impl Into<SessionSnapshot>) -> Result<Session, StartError> {
        let SessionSnapshot { mut messages } = stored.into();
        number(&mut messages);
        check_history(&messages)?;
        Ok(Session::new(Arc::clone(&self.0), messages, 0))
    }
}

impl Session {
    pub(super) fn new(agent: Arc<Shared>, messages: Vec<Message>, epoch: u64) -> Session {
        Session(Arc::new(SessionShared::new(agent, messages, epoch)))
    }

    /// Creates a session for a tool call of another run.
    pub(super) fn within(agent: &Agent, context: &ToolContext) -> Session {
        Session(Arc::new(SessionShared::within(Arc::clone(&agent.0), context)))
    }

    /// Returns the lifecycle state. It is `Terminated` if the agent was terminated, too.
    pub fn lifecycle(&self) -> Lifecycle {
        match self.0.check_idle(&self.0.state()) {
            Ok(()) => Lifecycle::Idle,
            Err(StartError::Busy) => Lifecycle::Running,
            Err(_) => Lifecycle::Terminated,
        }
    }

    /// Returns the conversation. The messages of the current run are added when it ends.
    pub fn messages(&self) -> Vec<Message> {
        self.0.state().messages.clone()
    }

    /// Returns the id of the last message, to which [`rollback`](Self::rollback) can return later.
    pub fn last_message(&self) -> Option<MessageId> {
        self.0.state().messages.last().map(|message| message.id)
    }

    /// Returns the conversation in a form that can be stored.
    pub fn snapshot(&self) -> SessionSnapshot {
        SessionSnapshot { messages: self.messages() }
    }

    /// Creates an independent session with the same conversation. The messages of a run in progress
    /// are not part of it.
    #[must_use]
    pub fn fork(&self) -> Session {
        let state = self.0.state();
        Session::new(Arc::clone(&self.0.agent), state.messages.clone(), state.epoch)
    }

    /// Starts a run with this input, which continues the conversation. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// The session or its agent was terminated, another run of the session is in progress, or the
    /// input is blank, or the provider does not take one of its parameters.
    pub fn run(&self, input: impl Into<RunInput>) -> Result<RunHandle, StartError> {
        self.start(input.into(), None)
    }

    /// Starts a run whose answer must satisfy this schema, or else the agent's.
    pub(super) fn start(
        &self,
        mut input: RunInput,
        schema: Option<Arc<OutputSchema>>,
    ) -> Result<RunHandle, StartError> {
        let run_id = input.take_id()?;
        let config = &self.0.agent.config;
        let params = input.params.over(&config.params);
        let own = !input.params.is_empty() || schema.is_some();
        let schema = schema.or_else(|| config.schema.clone());
        if own {
            config.check_params(&params, schema.as_ref())?;
        }
        let input = input.into_message(&*config.provider)?;
        let slot = self.take_slot()?;
        let Conversation { mut messages, epoch, .. } = slot.conversation.clone();
        // After a compaction the last message need not have the highest id.
        let last = messages.iter().map(|message| message.id.0).max().unwrap_or(0);
        let id = MessageId(last.saturating_add(1));
        messages.push(Message { id, ..input });
        let conversation = Conversation::new(messages, epoch);
        Ok(slot.launch(Beginning::New(conversation, Box::new(params), schema, run_id)))
    }

    /// Removes every message after `to`, or all messages if it is `None`.
    ///
    /// ```
    /// # use endstop::{Agent, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("Paris.")])).build()?;
    /// let session = agent.session();
    /// let before = session.last_message();
    /// session.run("What is the capital of France?")?.await;
    /// session.rollback(before)?; // to the state before the question
    /// assert!(session.messages().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`edit`](Self::edit), or there is no such message. A message whose tool calls would
    /// lose their results is refused.
    pub fn rollback(&self, to: Option<MessageId>) -> Result<(), StartError> {
        self.change(|messages| {
            let keep = match to {
                None => 0,
                Some(id) => match messages.iter().position(|message| message.id == id) {
                    Some(at) => at + 1,
                    None => return Err(StartError::UnknownMessage(id)),
                },
            };
            messages.truncate(keep);
            Ok(())
        })
    }

    /// Changes the conversation. An empty one is a new conversation.
    ///
    /// # Errors
    /// The session was terminated or is busy, also if it became so during the change, or providers
    /// would refuse the changed conversation ([`history::problem`](endstop_core::history::problem)). The conversation is then
    /// unchanged.
    pub fn edit(&self, change: impl FnOnce(&mut Vec<Message>)) -> Result<(), StartError> {
        self.change(|messages| {
            change(messages);
            Ok(())
        })
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Message>) -> Result<(), StartError>,
    ) -> Result<(), StartError> {
        let (mut messages, changes) = {
            let state = self.0.state();
            self.0.check_idle(&state)?;
            (state.messages.clone(), state.changes)
        };
        // Without the lock, because the change is the caller's code and may call the session.
        change(&mut messages)?;
        number(&mut messages);
        check_history(&messages)?;
        let mut state = self.0.state();
        self.0.check_idle(&state)?;
        if state.changes != changes {
            return Err(StartError::Busy);
        }
        // Encoded provider state (such as signed reasoning) belongs to the old messages only. The
        // new epoch makes providers drop it.
        state.epoch += 1;
        state.changes += 1;
        state.messages = messages;
        Ok(())
    }

    /// Reserves the single run slot.
    pub(super) fn take_slot(&self) -> Result<RunSlot, StartError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let shared = &self.0;
        let agent = &shared.agent;
        let mut state = shared.state();
        shared.check_idle(&state)?;
        let outer = shared.outer.as_ref().and_then(ToolContext::control);
        let control = Control::within(outer);
        // From here on a stop of the agent reaches the run.
        let number = agent.admit(&control).ok_or(StartError::Terminated)?;
        state.running = Some(Running { number, control: control.clone() });
        let conversation = Conversation::new(state.messages.clone(), state.epoch);
        drop(state);
        Ok(RunSlot {
            shared: Arc::clone(shared),
            runtime,
            number,
            control,
            conversation,
            // `settled` must also wait for a run that is still being prepared.
            _under_way: shared.under_way(),
            started: false,
        })
    }

    /// Cancels the session's run; the session can run again. Does nothing if there is none. The
    /// guarantees are those of [`Agent::cancel`](crate::Agent::cancel).
    pub fn cancel(&self) {
        // Release the lock first: `cancel` wakes tasks that may read this session's state.
        let running = self.0.state().running.as_ref().map(|running| running.control.clone());
        if let Some(control) = running {
            control.cancel();
        }
    }

    /// Terminates the session: stops its run without a grace period and refuses further runs and
    /// changes. Other sessions of the agent continue. Idempotent, never fails or panics. No event
    /// of the session reaches an observer after that.
    pub fn terminate(&self) {
        let running = {
            let mut state = self.0.state();
            state.terminated = true;
            state.running.as_ref().map(|running| (running.number, running.control.clone()))
        };
        if let Some((number, control)) = running {
            control.terminate();
            // The session is no longer busy, although its last task may still be ending.
            self.0.agent.release(number);
        }
    }

    /// Waits until no run and no tool of the session is active.
    pub async fn settled(&self) {
        self.0.settled().await;
    }
}

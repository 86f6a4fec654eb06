//! The loop itself: starts runs, one at a time, and stops them.
//!
//! ```text
//! let slot = agent.take_slot()?; // no other run starts
//! let handle = slot.start(Beginning::New(conversation));
//! ```

use super::conversation::{Conversation, check_history};
use super::driver::{Beginning, Driver};
use super::ending::EndingCell;
use super::handle::RunHandle;
use super::shared::{Lifecycle, Running, Shared};
use super::start_error::StartError;
use crate::control::{Control, Request};
use crate::tool::ToolContext;
use endstop_core::{Message, MessageId, Part, Role, history};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A conversation and the runs on it, one at a time. Cheap to clone; clones share the same loop.
#[derive(Clone)]
pub struct AgentLoop(pub(super) Arc<Shared>);

/// A reservation of the loop's single run slot. The caller prepares the run while it holds the
/// reservation, but no lock: preparation calls the provider, hooks and observers, and a stop must
/// not wait for their code.
pub(super) struct RunSlot {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    number: u64,
    control: Control,
    conversation: Conversation,
    _under_way: TaskTrackerToken,
    started: bool,
}

impl RunSlot {
    pub(super) fn start(mut self, beginning: Beginning) -> RunHandle {
        self.started = true;
        let ending = EndingCell::default();
        let (handle, sink) = RunHandle::new(ending.clone(), self.control.clone());
        let shared = Arc::clone(&self.shared);
        let driver =
            Driver::new(shared, self.number, self.control.clone(), ending, sink, beginning);
        // Observers receive `true` before the driver can end the run and queue `false`.
        self.shared.tell_busy();
        self.shared.tasks.spawn_on(driver.drive(), &self.runtime);
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

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop")
            .field("provider", &self.0.config.provider.name())
            .field("model", &self.0.config.provider.model())
            .field("lifecycle", &self.lifecycle())
            .finish_non_exhaustive()
    }
}

impl AgentLoop {
    /// Returns the lifecycle state.
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.state().lifecycle
    }

    /// Returns the conversation. The messages of the current run are added when it ends.
    pub fn messages(&self) -> Vec<Message> {
        self.0.state().messages.clone()
    }

    /// Starts a run with this input. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The loop was terminated, is busy, or has an invalid configuration; or the input is blank.
    pub fn run(&self, input: impl Into<String>) -> Result<RunHandle, StartError> {
        let parts = vec![Part::Text { text: input.into() }];
        self.run_parts(parts)
    }

    /// Starts a run with an input of several parts (text and images).
    ///
    /// # Errors
    /// The same as [`run`](Self::run).
    pub fn run_parts(&self, input: Vec<Part>) -> Result<RunHandle, StartError> {
        let input = Message::new(MessageId(1), Role::User, input);
        if let Some(problem) = history::problem(std::slice::from_ref(&input)) {
            return Err(StartError::Config(match problem.name {
                "empty_message" => {
                    "the input is blank: expected text or an image for the model".to_owned()
                }
                _ => format!("invalid input: {}; expected text and images", problem.what),
            }));
        }
        let slot = self.take_slot()?;
        let Conversation { mut messages, epoch } = slot.conversation.clone();
        // After a compaction the last message need not have the highest id.
        let id = MessageId(messages.iter().map(|message| message.id.0 + 1).max().unwrap_or(1));
        messages.push(Message { id, ..input });
        Ok(slot.start(Beginning::New(Conversation { messages, epoch })))
    }

    /// Replaces the conversation: to edit it, to roll it back, or to continue a stored one. An
    /// empty list starts a new conversation.
    ///
    /// ```
    /// # use endstop::{AgentLoop, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = AgentLoop::builder(ScriptedModel::new([Turn::text("Paris.")])).build()?;
    /// let before = agent.messages();
    /// agent.run("What is the capital of France?")?.await;
    /// agent.set_messages(before)?; // roll back to the state before the question
    /// assert!(agent.messages().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The loop was terminated or is busy, or providers would refuse the conversation
    /// ([`history::problem`]). The conversation is then unchanged.
    pub fn set_messages(&self, messages: Vec<Message>) -> Result<(), StartError> {
        check_history("messages", &messages)?;
        let mut state = self.0.state();
        match state.lifecycle {
            Lifecycle::Terminated => return Err(StartError::Terminated),
            Lifecycle::Running => return Err(StartError::Busy),
            Lifecycle::Idle => {}
        }
        // Encoded provider state (such as signed reasoning) belongs to the old messages only. The
        // new epoch makes sessions drop it.
        state.epoch += 1;
        state.messages = messages;
        Ok(())
    }

    /// Reserves the single run slot. Busy observers are notified later, when the run starts.
    pub(super) fn take_slot(&self) -> Result<RunSlot, StartError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            StartError::Config("a run needs a tokio runtime: call it within one".to_owned())
        })?;
        let shared = &self.0;
        let mut state = shared.state();
        match state.lifecycle {
            Lifecycle::Terminated => return Err(StartError::Terminated),
            Lifecycle::Running => return Err(StartError::Busy),
            Lifecycle::Idle => {}
        }
        // Relaxed is enough because the counter is only read and changed under the state lock.
        let number = shared.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let outer = shared.config.outer.as_ref().and_then(ToolContext::control);
        let control = Control::within(shared.token.child_token(), outer);
        state.lifecycle = Lifecycle::Running;
        state.running = Some(Running { number, control: control.clone() });
        state.now_busy(true);
        let conversation = Conversation { messages: state.messages.clone(), epoch: state.epoch };
        drop(state);
        Ok(RunSlot {
            shared: Arc::clone(shared),
            runtime,
            number,
            control,
            conversation,
            // `settled` must also wait for a run that is still being prepared.
            _under_way: shared.tasks.token(),
            started: false,
        })
    }

    /// Cancels the current run; the loop can run again. Does nothing on an idle or terminated loop.
    /// The outcome has the termination `cancelled`.
    ///
    /// No tool, model call, hook, approval or compaction of the run starts after `cancel` has
    /// returned. This includes runs of agents that the run's tools started. `cancel` can be called
    /// from any thread, and from inside an observer, a hook or a tool. It returns at once, unless
    /// such code is in its first poll on another thread. In that case it waits until the poll has
    /// returned, or until that thread is observed to work or to sleep: some milliseconds on Linux,
    /// at most a quarter of a second elsewhere.
    pub fn cancel(&self) {
        // Release the lock first: `cancel` wakes tasks that may read this loop's state.
        let running = self.0.state().running.as_ref().map(|running| running.control.clone());
        if let Some(control) = running {
            control.cancel();
        }
    }

    /// Terminates the loop: stops the current run without a grace period and refuses further runs.
    ///
    /// Idempotent, never fails or panics, and returns as fast as [`cancel`](Self::cancel). Busy
    /// observers receive `false` exactly once, even if the loop never ran. No callback fires after
    /// that.
    pub fn terminate(&self) {
        let (first, running) = {
            let mut state = self.0.state();
            let first = state.lifecycle != Lifecycle::Terminated;
            state.lifecycle = Lifecycle::Terminated;
            if first {
                state.now_busy(false);
            }
            (first, state.running.as_ref().map(|running| running.control.clone()))
        };
        // Record the request before the token is cancelled. Otherwise a tool that ends as soon as
        // its token is cancelled could return a result before the driver knows about the stop, and
        // the run would continue.
        let starting = running.filter(|control| control.request(Request::Terminate));
        self.0.token.cancel();
        if let Some(control) = starting {
            control.until_started(Request::Terminate);
        }
        if first {
            self.0.tell_busy();
        }
    }

    /// Waits until no run and no tool of the loop is active.
    pub async fn settled(&self) {
        // The tracker is closed from the start, which does not prevent new tasks. If it were opened
        // and closed per run, a caller could start waiting while it is open and never be woken.
        self.0.tasks.wait().await;
    }
}

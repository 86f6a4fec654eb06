//! An agent whose model is played by the conversation, so that any attempt can continue it, and a
//! counter of what its tool did.

use endstop::hook::ParkApprovals;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, ParamError, Provider, Response, SessionSpec,
    TerminationSignal, stream_of,
};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Limits, Part, Permission, Role, ToolCall, Usage};
use endstop_restate::{AgentSource, Attempt, BuiltAgent, Past, RunPlan, Step, StepEnd, Task};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A model that calls `work` with the number of results so far, and answers after some calls.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) calls: usize,
    pub(crate) made: Arc<AtomicUsize>,
}

struct Counted(Counting);

impl ModelSession for Counted {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        self.0.made.fetch_add(1, Ordering::SeqCst);
        let done = call.messages.iter().filter(|message| message.role == Role::Tool).count();
        let mut response = if done < self.0.calls {
            let arguments = json!({"number": done}).to_string();
            let call = ToolCall { id: format!("c{done}"), name: "work".to_owned(), arguments };
            Response { parts: vec![Part::ToolCall(call)], ..Response::default() }
        } else {
            Response::text("Done.")
        };
        response.usage =
            Usage { input_tokens: Some(10), output_tokens: Some(5), ..Usage::default() };
        stream_of([CallEvent::Ended(Box::new(response))])
    }
}

impl Provider for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }
    fn model(&self) -> &'static str {
        "counting"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Counted(self.clone()))
    }
    fn check_params(&self, _: &SessionSpec) -> Result<(), ParamError> {
        Ok(())
    }
    fn is_terminal(&self, response: &Response) -> bool {
        !response.parts.iter().any(|part| matches!(part, Part::ToolCall(_)))
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        response.signal.clone()
    }
}

/// The agent of the tests.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) model: Counting,
    /// The arguments of each call of the tool whose body has started.
    pub(crate) worked: Arc<Mutex<Vec<Value>>>,
    /// Bytes of each result.
    pub(crate) size: usize,
    pub(crate) asks: bool,
    pub(crate) expires: Option<Duration>,
    /// A secret at the beginning of each result; none if it is empty.
    pub(crate) secret: String,
    /// `true` while the tool must not return.
    pub(crate) blocked: Arc<AtomicBool>,
}

impl Worker {
    pub(crate) fn new(calls: usize) -> Worker {
        Worker {
            model: Counting { calls, made: Arc::default() },
            worked: Arc::default(),
            size: 10,
            asks: false,
            expires: None,
            secret: String::new(),
            blocked: Arc::default(),
        }
    }

    pub(crate) fn task(&self) -> Task {
        Task {
            id: "r1".to_owned(),
            task: "Work.".to_owned(),
            limits: Limits::default(),
            source: Arc::new(self.clone()),
            fork: None,
            trace_parent: None,
        }
    }

    pub(crate) fn worked(&self) -> Vec<Value> {
        self.worked.lock().unwrap().clone()
    }

    /// Begins an attempt after these steps.
    pub(crate) fn attempt(&self, past: &Past) -> Attempt {
        Attempt::begin(self.task(), Arc::new(past.clone()), None, None)
    }
}

impl AgentSource for Worker {
    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let worked = Arc::clone(&self.worked);
        let (secret, size) = (self.secret.clone(), self.size);
        let blocked = Arc::clone(&self.blocked);
        let work = tool_fn("work", "Works.", move |arguments: Value, _| {
            worked.lock().unwrap().push(arguments);
            let (secret, blocked) = (secret.clone(), Arc::clone(&blocked));
            async move {
                while blocked.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                ToolOutput::ok(secret + &"x".repeat(size))
            }
        });
        let mut approver = ParkApprovals::new();
        if let Some(expiry) = self.expires {
            approver = approver.expires_after(expiry);
        }
        let permission = if self.asks { Permission::Ask } else { Permission::Allow };
        let agent = Agent::builder(self.model.clone())
            .tool(work)
            .permission("work", permission)
            .approver(approver)
            .limits(plan.limits.clone())
            .journal(plan.journal.clone())
            .build()
            .map_err(|error| error.to_string())?;
        let known = (!self.secret.is_empty()).then(|| self.secret.clone());
        let secrets = endstop::provider::KnownKeys::new(known);
        Ok(BuiltAgent { agent, secrets, resources: Box::new(()) })
    }
}

/// Waits for the next step, at most for a minute.
pub(crate) async fn next(attempt: &mut Attempt) -> Step {
    let step = tokio::time::timeout(Duration::from_secs(60), attempt.next()).await;
    step.expect("a step within a minute")
}

/// Drives the attempt until it has ended or parked, and returns the last step.
pub(crate) async fn finish(attempt: &mut Attempt, past: &mut Past) -> Step {
    loop {
        let step = next(attempt).await;
        past.take(&step);
        attempt.stored();
        if step.end.is_some() {
            return step;
        }
    }
}

/// Returns the outcome of the run's last step.
pub(crate) fn outcome(step: &Step) -> Value {
    match &step.end {
        Some(StepEnd::Ended { outcome }) => serde_json::from_str(outcome).unwrap(),
        other => panic!("the run has not ended: {other:?}"),
    }
}

/// Checks that a replay of the steps gives the same outcome.
pub(crate) fn assert_replays(past: &Past, outcome: &Value) {
    let replay = past.recorded().unwrap().replay(None).unwrap();
    let replayed = serde_json::to_value(replay.outcome().expect("an ending")).unwrap();
    for name in ["termination", "turns", "tool_calls", "usage", "messages"] {
        assert_eq!(replayed[name], outcome[name], "{name}");
    }
}

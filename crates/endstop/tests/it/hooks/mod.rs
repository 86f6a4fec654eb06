//! Hooks: each answer at each point, changed calls and results, requests and events; approvals by
//! events.

mod approvals;
mod calls;
mod cells;

use crate::support::results;
use endstop::hook::{Approver, Hook, HookFuture};
use endstop::hook::{ConsultPoint, HookDecision, Hooks};
use endstop::provider::{CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolOutput, tool_fn};
use endstop::{Agent, AgentBuilder, Permission, ToolCall};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The arguments with which a tool ran, in order.
type Ran = Arc<Mutex<Vec<Value>>>;

/// A tool that records its arguments.
fn act(ran: &Ran) -> impl Tool + 'static {
    let ran = Arc::clone(ran);
    tool_fn("act", "Acts.", move |arguments: Value, _| {
        ran.lock().unwrap().push(arguments);
        async { ToolOutput::ok("done") }
    })
}

/// A hook from a function.
struct Asks<F>(Hooks, F);

impl<F: Fn(ConsultPoint) -> HookDecision + Send + Sync> Hook for Asks<F> {
    fn points(&self) -> Hooks {
        self.0
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        let answer = (self.1)(point);
        Box::pin(async { answer })
    }
}

impl<F: Fn(ConsultPoint) -> HookDecision + Send + Sync> Approver for Asks<F> {
    fn approve(&self, call: ToolCall) -> HookFuture<'_> {
        self.consult(ConsultPoint::Approval { call })
    }
}

fn pre_tool() -> Hooks {
    Hooks { pre_tool: true, ..Hooks::default() }
}

fn post_tool() -> Hooks {
    Hooks { post_tool: true, ..Hooks::default() }
}

/// Returns a hook that sets the arguments of each call.
fn sets(arguments: &Value) -> impl Hook + Approver + 'static {
    let arguments = arguments.to_string();
    Asks(pre_tool(), move |point| match point {
        ConsultPoint::PreTool { call } | ConsultPoint::Approval { call } => {
            HookDecision::ChangeCall(ToolCall { arguments: arguments.clone(), ..call })
        }
        _ => HookDecision::Proceed,
    })
}

/// A model that calls `act` once, and then answers; it records the output cap of each call.
#[derive(Clone)]
struct Model {
    script: ScriptedModel,
    caps: Arc<Mutex<Vec<Option<u64>>>>,
}

impl Model {
    fn new() -> Model {
        let turns = [Turn::text("I look.").and_call("act", &json!({"n": 1})), Turn::text("fine")];
        Model { script: ScriptedModel::new(turns).repeat_last(), caps: Arc::default() }
    }
}

impl Provider for Model {
    fn name(&self) -> &str {
        self.script.name()
    }
    fn model(&self) -> &str {
        self.script.model()
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Talks(self.clone(), self.script.open(spec)))
    }
    fn is_terminal(&self, response: &Response) -> bool {
        self.script.is_terminal(response)
    }
}

struct Talks(Model, Box<dyn ModelSession>);

impl ModelSession for Talks {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        self.0.caps.lock().unwrap().push(call.output_cap);
        self.1.call(call)
    }
}

/// An agent whose model calls `act` once with `{"n": 1}`.
fn acts(ran: &Ran) -> AgentBuilder {
    Agent::builder(Model::new()).tool(act(ran))
}

/// An agent whose tool `act` needs approval.
fn asks(ran: &Ran) -> AgentBuilder {
    acts(ran).permission("act", Permission::Ask)
}

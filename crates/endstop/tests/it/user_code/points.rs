//! The points at which a run calls user code, with a loop that calls it at each.
//!
//! ```text
//! for point in points() { let builder = (point.make)(&code); … }
//! ```

use super::code::{Code, Veto};
use endstop::compaction::CompactionRequest;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::hook::{Approver, CompactionFuture, Compactor, Hook, HookFuture};
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop::{
    Agent, AgentBuilder, Message, MessageId, Permission, Role, ToolCall,
    compaction::{Compaction, ProactiveCompaction},
    hook::{ConsultPoint, HookDecision, Hooks},
    policy::{StepContext, StepResult, Stop, TerminationPolicy, Verdict},
    provider::{Confidence, SignalReason, TerminationSignal},
};
use serde_json::{Map, Value, json};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The place at which the code runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Runs {
    /// On a separate task.
    Apart,
    /// On the run's task.
    Within,
    /// On the run's task, inside the kernel: its result precedes stop requests made in the
    /// meantime.
    InKernel,
    /// On the thread that starts the run.
    AtStart,
}

pub struct Point {
    pub name: &'static str,
    pub runs: Runs,
    /// The name in `decided_by` if the code panics.
    pub decides: &'static str,
    /// `true` for a future, which may wait.
    pub waits: bool,
    /// `true` if the answer already exists; it is never discarded.
    pub answered: bool,
    pub make: Box<dyn Fn(&Code) -> AgentBuilder>,
}

/// Returns all points.
pub fn points() -> Vec<Point> {
    let mut all = Vec::new();
    let mut add = |name, runs, decides, make: Box<dyn Fn(&Code) -> AgentBuilder>| {
        all.push(Point { name, runs, decides, waits: false, answered: false, make });
    };
    let hooks: [(&'static str, Hooks); 7] = [
        ("prompt", Hooks { prompt: true, ..Hooks::default() }),
        ("pre_iteration", Hooks { pre_iteration: true, ..Hooks::default() }),
        ("chat_params", Hooks { chat_params: true, ..Hooks::default() }),
        ("pre_call", Hooks { pre_call: true, ..Hooks::default() }),
        ("pre_tool", Hooks { pre_tool: true, ..Hooks::default() }),
        ("post_tool", Hooks { post_tool: true, ..Hooks::default() }),
        ("stop", Hooks { stop: true, ..Hooks::default() }),
    ];
    for (name, at) in hooks {
        let make = move |code: &Code| acts(&Code::idle()).hook(Asked(code.clone(), at));
        add(name, Runs::Apart, name, Box::new(make));
    }
    add(
        "approval",
        Runs::Apart,
        "approval",
        Box::new(|code| {
            acts(&Code::idle())
                .permission("act", Permission::Ask)
                .approver(Asked(code.clone(), none()))
        }),
    );
    add(
        "compaction",
        Runs::Apart,
        "compaction",
        Box::new(|code| {
            says("fine")
                .compactor(Asked(code.clone(), none()))
                .proactive_compaction(ProactiveCompaction::Ask)
        }),
    );
    add(
        "forced compaction",
        Runs::Apart,
        "compaction",
        Box::new(|code| {
            script([Turn::error(413, "too large"), Turn::text("fine")])
                .compactor(Asked(code.clone(), none()))
        }),
    );
    add("tool", Runs::Apart, "act", Box::new(acts));

    let policies =
        ["reset", "begin_turn", "look", "on_text_complete", "step of tools", "step of text"];
    for at in policies {
        let make = move |code: &Code| acts(&Code::idle()).policy(Watches(code.clone(), at));
        add(at, Runs::InKernel, "watches", Box::new(make));
    }

    for (name, wanted) in HEARD {
        let make = move |code: &Code| {
            let code = code.clone();
            let turns = match name {
                "attempt failed" => vec![Turn::error(500, "oops"), Turn::text("fine")],
                "told" => vec![Turn::text(""), Turn::text("fine")],
                _ => vec![Turn::text("well").and_call("act", &json!({})), Turn::text("fine")],
            };
            with_act(script(turns), &Code::idle()).on_event(move |event| {
                if wanted(event) {
                    code.now();
                }
            })
        };
        add(name, Runs::Within, "observer", Box::new(make));
    }

    let provider = [
        ("open", Runs::AtStart),
        ("call", Runs::Within),
        ("stream", Runs::Within),
        ("detect_termination", Runs::Within),
        ("is_terminal", Runs::Within),
    ];
    for (at, runs) in provider {
        let make = move |code: &Code| Agent::builder(Model::new(at, code));
        add(at, runs, "provider", Box::new(make));
    }
    add(
        "on_event",
        Runs::Within,
        "on_event",
        Box::new(|code| acts(&Code::idle()).hook(Hears(code.clone()))),
    );
    add(
        "points of a hook",
        Runs::AtStart,
        "hook",
        Box::new(|code| says("fine").hook(Lists(code.clone()))),
    );
    for at in ["description", "schema"] {
        let make = move |code: &Code| {
            script([Turn::call("act", &json!({})), Turn::text("fine")]).tool(Act(code.clone(), at))
        };
        add(at, Runs::AtStart, "act", Box::new(make));
    }
    for point in &mut all {
        point.waits = match point.runs {
            Runs::Apart => true,
            _ => point.name == "stream",
        };
        let answers = ["step of text", "detect_termination", "is_terminal"];
        point.answered = answers.contains(&point.name);
    }
    all
}

type Heard = fn(&AgentEvent) -> bool;

const HEARD: [(&str, Heard); 7] = [
    ("turn started", |event| matches!(event.kind, AgentEventKind::TurnStarted { .. })),
    ("attempt failed", |event| matches!(event.kind, AgentEventKind::AttemptFailed { .. })),
    ("delta", |event| matches!(event.kind, AgentEventKind::TextDelta { .. })),
    ("turn ended", |event| matches!(event.kind, AgentEventKind::TurnFinished { .. })),
    ("tool started", |event| matches!(event.kind, AgentEventKind::ToolStarted { .. })),
    ("tool ended", |event| matches!(event.kind, AgentEventKind::ToolFinished { .. })),
    ("told", |event| matches!(event.kind, AgentEventKind::MessageInjected { .. })),
];

fn none() -> Hooks {
    Hooks::default()
}

/// Plays a script and repeats its last turn, so that the next run can continue.
fn script(turns: impl IntoIterator<Item = Turn>) -> AgentBuilder {
    Agent::builder(ScriptedModel::new(turns).repeat_last())
}

fn says(text: &str) -> AgentBuilder {
    script([Turn::text(text)])
}

/// Returns a turn with a tool call, and one that answers.
fn acts(code: &Code) -> AgentBuilder {
    let turns = [Turn::text("I look.").and_call("act", &json!({})), Turn::text("fine")];
    with_act(script(turns), code)
}

fn with_act(builder: AgentBuilder, code: &Code) -> AgentBuilder {
    builder.tool(Act(code.clone(), "call"))
}

/// A hook, an approver and a compactor.
struct Asked(Code, Hooks);

impl Hook for Asked {
    fn points(&self) -> Hooks {
        self.1
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async {
            self.0.later().await;
            match self.0.vetoes() {
                Some(Veto::No) => HookDecision::Deny("no".to_owned()),
                Some(Veto::Halt) => HookDecision::Halt("halt".to_owned()),
                None => HookDecision::Proceed,
            }
        })
    }
}

impl Approver for Asked {
    fn approve(&self, call: ToolCall) -> HookFuture<'_> {
        self.consult(ConsultPoint::Approval { call })
    }
}

impl Compactor for Asked {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            self.0.later().await;
            match self.0.vetoes() {
                Some(_) => Compaction::Failed("no".to_owned()),
                None if request.forced => {
                    let asked = |message: &Message| request.task == Some(message.id);
                    let task = request.messages.into_iter().filter(asked).collect();
                    Compaction::done("task alone", task)
                }
                None => Compaction::NotNeeded,
            }
        })
    }
}

/// A hook for the given points.
struct Lists(Code);

impl Hook for Lists {
    fn points(&self) -> Hooks {
        self.0.now();
        Hooks { prompt: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(std::future::ready(HookDecision::Proceed))
    }
}

/// A hook that receives the events.
struct Hears(Code);

impl Hook for Hears {
    fn points(&self) -> Hooks {
        Hooks { on_event: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(std::future::ready(HookDecision::Proceed))
    }
    fn on_event(&self, event: &AgentEvent) {
        if matches!(event.kind, AgentEventKind::ToolStarted { .. }) {
            self.0.now();
        }
    }
}

/// A tool that calls the code in one of its functions.
struct Act(Code, &'static str);

impl Act {
    fn at(&self, place: &str) {
        if self.1 == place {
            self.0.now();
        }
    }
}

impl Tool for Act {
    fn name(&self) -> &'static str {
        "act"
    }
    fn description(&self) -> &'static str {
        self.at("description");
        "Acts."
    }
    fn schema(&self) -> Value {
        self.at("schema");
        json!({"type": "object"})
    }
    fn call(&self, _: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async {
            if self.1 != "call" {
                return ToolOutput::ok("done");
            }
            self.0.later().await;
            match self.0.vetoes() {
                Some(Veto::No) => ToolOutput::error("no"),
                Some(Veto::Halt) => ToolOutput::halt("halt"),
                None => ToolOutput::ok("done"),
            }
        })
    }
}

/// A policy that calls the code in one of its functions.
#[derive(Clone)]
struct Watches(Code, &'static str);

impl Watches {
    fn at(&self, place: &str) -> Option<Stop> {
        if self.1 != place {
            return None;
        }
        self.0.now();
        let mut stop = Stop::submitted("watches", "the text matches").answer("it");
        if self.0.vetoes()? == Veto::Halt {
            stop.ends_as = endstop::policy::PolicyEnd::Halted;
        }
        Some(stop)
    }
}

impl TerminationPolicy for Watches {
    fn name(&self) -> &str {
        "watches"
    }
    fn should_terminate(&mut self, step: &StepResult, _: &StepContext) -> Verdict {
        let place = if step.calls.is_empty() { "step of text" } else { "step of tools" };
        self.at(place).map_or(Verdict::Continue, Verdict::Stop)
    }
    fn begin_turn(&mut self) {
        self.at("begin_turn");
    }
    fn on_delta(&mut self, piece: &str, _: &StepContext) -> Option<Stop> {
        if piece.is_empty() { None } else { self.at("look") }
    }
    fn on_text_complete(&mut self, _: &str, _: &StepContext) -> Option<Stop> {
        self.at("on_text_complete")
    }
    fn reset(&mut self) {
        self.at("reset");
    }
}

/// A provider that calls the code in one of its functions; its answer is `fine`.
#[derive(Clone)]
struct Model(ScriptedModel, &'static str, Code);

impl Model {
    fn new(at: &'static str, code: &Code) -> Model {
        Model(ScriptedModel::new([Turn::text("fine")]).repeat_last(), at, code.clone())
    }
    fn at(&self, place: &str) {
        if self.1 == place {
            self.2.now();
        }
    }
}

impl Provider for Model {
    fn name(&self) -> &str {
        "mine"
    }
    fn model(&self) -> &str {
        "mine"
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        self.at("open");
        Box::new(Talks(self.clone(), self.0.open(spec)))
    }
    fn is_terminal(&self, response: &Response) -> bool {
        self.at("is_terminal");
        self.0.is_terminal(response)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        self.at("detect_termination");
        if self.1 == "detect_termination" && self.2.vetoes().is_some() {
            let reason = SignalReason::Unknown;
            return Some(TerminationSignal::new(reason, Confidence::Low));
        }
        // `is_terminal` is called only if this returns `None`.
        self.0.detect_termination(response).filter(|_| self.1 != "is_terminal")
    }
}

struct Talks(Model, Box<dyn ModelSession>);

impl ModelSession for Talks {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        self.0.at("call");
        let code = (self.0.1 == "stream").then(|| self.0.2.later());
        Box::pin(Streams(code.map(|code| Box::pin(code) as _), self.1.call(call)))
    }
}

struct Streams(Option<Pin<Box<dyn Future<Output = ()> + Send>>>, CallStream);

impl futures_core::Stream for Streams {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        if let Some(code) = &mut self.0 {
            std::task::ready!(code.as_mut().poll(cx));
            self.0 = None;
        }
        self.1.as_mut().poll_next(cx)
    }
}

/// The conversation before the run of `forced compaction`, which has something to shorten.
pub fn earlier() -> Vec<Message> {
    vec![
        Message::text(MessageId(1), Role::User, "hello"),
        Message::text(MessageId(2), Role::Assistant, "hello to you"),
    ]
}

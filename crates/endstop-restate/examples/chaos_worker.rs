//! A worker with scripted agents, which `bench/restate/run.py` starts, kills and stops.
//!
//! Its model reads what to do from the task and from the conversation, so that any worker can continue
//! any run: `{"steps": 20, "ms": 10, "bytes": 100}` is 20 calls of the tool `work`, of 10 ms and 100
//! bytes each. Each start and end of a call is a line of the file EFFECTS.

use endstop::hook::ParkApprovals;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, KnownKeys, ModelSession, ParamError, Price, Provider,
    Response, SessionSpec, TerminationSignal,
};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{Agent, Limits, NanoUsd, Part, Permission, Role, ToolCall, Usage};
use endstop_restate::engine::{Worker, WorkerOptions, listen};
use endstop_restate::{AgentSource, Agents, BudgetCeiling, BuiltAgent, RunPlan, Store};
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The work of a run.
#[derive(Clone, Debug, Deserialize)]
struct Script {
    steps: usize,
    #[serde(default)]
    ms: u64,
    #[serde(default)]
    bytes: usize,
}

/// The log of what the tools did.
#[derive(Clone)]
struct Effects(Arc<File>);

impl Effects {
    fn log(&self, what: &str, run: &str, number: &Value) {
        let line = format!("{} {} {what} {run} {number}\n", wall_us(), std::process::id());
        // One write of a line to a file that is only appended to is not mixed with other lines.
        let _ = (&*self.0).write_all(line.as_bytes());
    }
}

fn wall_us() -> u128 {
    #[expect(clippy::disallowed_methods, reason = "the lines of all workers need one clock")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

/// A line when a call ends, also if it is dropped.
struct Ended(Effects, String, Value, bool);

impl Drop for Ended {
    fn drop(&mut self) {
        let what = if self.3 { "end" } else { "dropped" };
        self.0.log(what, &self.1, &self.2);
    }
}

#[derive(Clone)]
struct Model {
    script: Script,
    effects: Effects,
    run: String,
}

impl ModelSession for Model {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        let done = call.messages.iter().filter(|message| message.role == Role::Tool).count();
        self.effects.log("model", &self.run, &json!(done));
        let mut response = if done < self.script.steps {
            let arguments = json!({"number": done}).to_string();
            let call = ToolCall { id: format!("c{done}"), name: "work".to_owned(), arguments };
            Response { parts: vec![Part::ToolCall(call)], ..Response::default() }
        } else {
            Response::text("Done.")
        };
        response.usage =
            Usage { input_tokens: Some(100), output_tokens: Some(10), ..Usage::default() };
        let wait = Duration::from_millis(self.script.ms);
        Box::pin(After(
            Box::pin(tokio::time::sleep(wait)),
            Some(CallEvent::Ended(Box::new(response))),
        ))
    }
}

/// A stream of one event after a delay.
struct After(Pin<Box<tokio::time::Sleep>>, Option<CallEvent>);

impl futures::Stream for After {
    type Item = CallEvent;
    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<CallEvent>> {
        self.0.as_mut().poll(cx).map(|()| self.1.take())
    }
}

impl Provider for Model {
    fn name(&self) -> &'static str {
        "script"
    }
    fn model(&self) -> &'static str {
        "script"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(self.clone())
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
    fn price(&self) -> Option<Price> {
        Some(Price::usd_per_million_tokens(1.0, 1.0))
    }
    fn max_output(&self) -> Option<u64> {
        Some(1_000)
    }
}

/// The ceiling of a run with a shared budget, in dollars.
const RUN_USD: f64 = 0.05;

/// The agents: `steps`, `asks` with a question before each call, and `shared` with a shared budget.
struct Source {
    name: &'static str,
    effects: Effects,
}

impl AgentSource for Source {
    fn limits(&self) -> Limits {
        let ceiling = (self.name == "shared").then_some(RUN_USD);
        Limits { max_turns: Some(1_000), max_budget_usd: ceiling, ..Limits::default() }
    }

    fn budget(&self) -> Option<BudgetCeiling> {
        let usd = std::env::var("BUDGET_USD").ok()?.parse().ok()?;
        let named = BudgetCeiling { name: "bench".to_owned(), usd: NanoUsd::from_usd(usd) };
        (self.name == "shared").then_some(named)
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let script: Script = serde_json::from_str(&plan.task).map_err(|error| error.to_string())?;
        let (effects, run) = (self.effects.clone(), plan.run_id.clone());
        let model = Model { script: script.clone(), effects: effects.clone(), run: run.clone() };
        let work = tool_fn("work", "Works.", move |arguments: Value, context: ToolContext| {
            let (effects, run) = (effects.clone(), run.clone());
            let script = script.clone();
            async move {
                let number = arguments["number"].clone();
                effects.log("begin", &run, &number);
                let mut ended = Ended(effects, run, number, false);
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(script.ms)) => ended.3 = true,
                    () = context.cancelled() => {}
                }
                ToolOutput::ok("x".repeat(script.bytes))
            }
        });
        let permission = if self.name == "asks" { Permission::Ask } else { Permission::Allow };
        let agent = Agent::builder(model)
            .tool(work)
            .permission("work", permission)
            .approver(ParkApprovals::new().expires_after(Duration::from_secs(60)))
            .limits(plan.limits.clone())
            .journal(plan.journal.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(BuiltAgent { agent, secrets: KnownKeys::default(), resources: Box::new(()) })
    }
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("set {name}"))
}

/// Waits for SIGTERM.
async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut signal) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        signal.recv().await;
        return;
    }
    std::future::pending::<()>().await;
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let effects = OpenOptions::new().create(true).append(true).open(variable("EFFECTS")?)?;
    let effects = Effects(Arc::new(effects));
    let agents = ["steps", "asks", "shared"].map(|name| {
        let source = Source { name, effects: effects.clone() };
        (name.to_owned(), Arc::new(source) as Arc<dyn AgentSource>)
    });
    let store = Store::open(variable("STORE")?)?;
    let mut options = WorkerOptions::new(variable("INGRESS")?);
    let address = variable("LISTEN")?;
    options.advertised = format!("http://{address}");
    options.admin = variable("ADMIN").ok();
    options.grace = Duration::from_secs(5);
    if let Ok(streams) = variable("STREAMS") {
        options.streams_per_connection = streams.parse()?;
    }
    let worker = Worker::open(Agents::new(agents), store, options, |problem| {
        #[expect(clippy::print_stderr, reason = "a program of a benchmark")]
        {
            eprintln!("{problem}");
        }
    })?;
    worker.serve(listen(address.parse()?, true)?, terminated()).await?;
    Ok(())
}

//! The same runs locally and step by step, with a crash after each step: the same endings.

use crate::support::next;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, AgentBuilder, Limits};
use endstop_restate::{AgentSource, Attempt, BuiltAgent, Past, RunPlan, Task};
use serde_json::{Value, json};
use std::sync::Arc;

/// A scripted run. Its script is a list, from which each attempt drops the turns that were played.
#[derive(Clone)]
struct Scenario {
    name: &'static str,
    script: Vec<Turn>,
    limits: Limits,
    schema: Option<Value>,
    /// The model, whose script continues over all attempts of a run.
    model: ScriptedModel,
}

impl Scenario {
    fn new(name: &'static str, script: Vec<Turn>, limits: Limits) -> Scenario {
        let model = ScriptedModel::new(script.clone());
        Scenario { name, script, limits, schema: None, model }
    }

    /// Returns the scenario before its first turn.
    fn again(&self) -> Scenario {
        Scenario { model: ScriptedModel::new(self.script.clone()).repeat_last(), ..self.clone() }
    }

    fn builder(&self) -> AgentBuilder {
        let work = tool_fn("work", "Works.", |_: Value, _| async { ToolOutput::ok("worked") });
        let fail = tool_fn("fail", "Fails.", |_: Value, _| async { ToolOutput::error("failed") });
        let builder = Agent::builder(self.model.clone()).tool(work).tool(fail);
        let builder = match &self.schema {
            Some(schema) => builder.output_schema(schema.clone()),
            None => builder,
        };
        builder.finish_tool(true).limits(self.limits.clone())
    }
}

impl AgentSource for Scenario {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
        let agent = self.builder().journal(plan.journal.clone()).build();
        let agent = agent.map_err(|error| error.to_string())?;
        let secrets = endstop::provider::KnownKeys::default();
        Ok(BuiltAgent { agent, secrets, resources: Box::new(()) })
    }
}

fn scenarios() -> Vec<Scenario> {
    let turns = |most| Limits { max_turns: Some(most), ..Limits::default() };
    let call = |name: &str, number: u32| Turn::call(name, &json!({"number": number}));
    let schema = json!({"type": "object", "required": ["age"]});
    let with_schema = |scenario: Scenario| Scenario { schema: Some(schema.clone()), ..scenario };
    vec![
        Scenario::new("answer", vec![Turn::text("Paris.")], turns(9)),
        Scenario::new(
            "work",
            vec![call("work", 1), call("work", 2), Turn::text("Done.")],
            turns(9),
        ),
        Scenario::new("max_turns", (0..4).map(|number| call("work", number)).collect(), turns(3)),
        Scenario::new("truncated", vec![Turn::text("Half an ans").finish("length")], turns(9)),
        Scenario::new("filtered", vec![Turn::text("").finish("content_filter")], turns(9)),
        Scenario::new("loop", (0..9).map(|_| call("work", 1)).collect(), turns(20)),
        Scenario::new("mistakes", (0..9).map(|number| call("fail", number)).collect(), turns(20)),
        Scenario::new("unknown tool", vec![call("missing", 1), Turn::text("Sorry.")], turns(9)),
        Scenario::new(
            "finish",
            vec![call("work", 1), Turn::call("finish", &json!({"answer": "42"}))],
            turns(9),
        ),
        Scenario::new("no turns", vec![Turn::text("never")], turns(0)),
        with_schema(Scenario::new("structured", vec![Turn::text("{\"age\": 7}")], turns(9))),
        with_schema(Scenario::new(
            "unstructured",
            (0..9).map(|_| Turn::text("seven")).collect(),
            turns(20),
        )),
    ]
}

/// The members that must be the same.
fn essence(outcome: &Value) -> Value {
    let mut essence = json!({});
    for name in ["termination", "category", "turns", "tool_calls", "last_text", "deliverable"] {
        essence[name] = outcome[name].clone();
    }
    essence["decided_by"] = outcome["decided_by"]["name"].clone();
    essence["messages"] = outcome["messages"].clone();
    essence
}

/// Performs a run step by step; the worker dies after this many steps, right after the engine has the
/// last of them.
async fn stepped(scenario: &Scenario, dies_after: Option<u64>) -> (Value, u64) {
    let source = scenario.again();
    let limits = source.limits.clone();
    let (id, source) = ("r1".to_owned(), Arc::new(source));
    let task =
        Task { id, task: "Do it.".to_owned(), limits, source, fork: None, trace_parent: None };
    let mut past = Past::default();
    let mut attempt = Attempt::begin(task.clone(), Arc::new(past.clone()), None, None);
    loop {
        let step = next(&mut attempt).await;
        past.take(&step);
        if let Some(outcome) = step.outcome() {
            return (serde_json::from_str(outcome).unwrap(), past.steps());
        }
        assert!(step.end.is_none(), "{}: {step:?}", scenario.name);
        if Some(past.steps()) == dies_after {
            // The run never learns that the step is stored, so nothing of what it requests begins.
            drop(attempt);
            attempt = Attempt::begin(task.clone(), Arc::new(past.clone()), None, None);
        } else {
            attempt.stored();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endings_are_those_of_local_runs() {
    for scenario in scenarios() {
        let agent = scenario.again().builder().build().unwrap();
        let local = agent.run("Do it.").unwrap().outcome().await;
        let local = essence(&serde_json::to_value(&local).unwrap());
        let (outcome, _) = stepped(&scenario, None).await;
        assert_eq!(essence(&outcome), local, "{}", scenario.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_does_not_change_the_ending() {
    for scenario in scenarios() {
        let (whole, steps) = stepped(&scenario, None).await;
        for dies_after in 1..steps {
            let (outcome, _) = stepped(&scenario, Some(dies_after)).await;
            let name = scenario.name;
            // A tool call that may have run is reported to the model as such, which is a mistake and a
            // failed call less or more; the ending is the same kind of ending.
            assert_eq!(outcome["category"], whole["category"], "{name} after {dies_after}");
        }
    }
}

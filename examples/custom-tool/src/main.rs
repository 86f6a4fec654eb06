//! Custom tools: one made from a closure, and one that is a type.
//!
//! The example shows that `tool_fn` derives the schema from the arguments of a closure, and answers
//! invalid arguments without calling it. A type that implements `Tool` sets a metric and a variable
//! that policies read (`reward_threshold`, `FINAL_VAR`), and reacts to the cancellation of its run,
//! so that it ends at once and cleans up. Run it with `cargo run -p custom-tool`.
#![allow(clippy::print_stdout, reason = "the example prints its results")]

use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput, tool_fn};
use endstop::{Agent, Outcome, policy::Registry};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Converts a temperature; this text and the types of the fields become the schema that the model
/// receives.
#[derive(Debug, Deserialize, JsonSchema)]
struct Convert {
    /// The temperature in degrees Celsius.
    celsius: f64,
}

/// Returns a tool made from a closure.
// `parallel_safe` is correct because the tool changes nothing. Other tools run one at a time.
fn convert() -> impl Tool + 'static {
    tool_fn("to_fahrenheit", "Converts a temperature.", |args: Convert, _context| async move {
        ToolOutput::ok(format!("{} °F", args.celsius * 1.8 + 32.0))
    })
    .parallel_safe()
}

/// A sensor as its owner observes it.
#[derive(Clone, Debug, Default)]
struct Sensor {
    /// Notified when a measurement has started.
    begun: Arc<Notify>,
    /// Number of measurements that were cancelled and stopped.
    stopped: Arc<AtomicUsize>,
}

/// A tool that is a type: it holds a sensor and takes some time.
#[derive(Clone, Debug)]
struct Measure {
    sensor: Sensor,
    takes: Duration,
}

impl Tool for Measure {
    fn name(&self) -> &'static str {
        "measure"
    }

    fn description(&self) -> &'static str {
        "Measures the temperature of the room, in degrees Celsius."
    }

    fn schema(&self) -> Value {
        json!({"type": "object", "properties": {}})
    }

    /// Returns a time limit of its own, because a measurement may exceed the run's `tool_timeout`.
    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(120))
    }

    fn call(&self, _: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            self.sensor.begun.notify_one();
            tokio::select! {
                () = tokio::time::sleep(self.takes) => {
                    // `FINAL_VAR(room)` reads the variable, `reward_threshold` adds up the metric.
                    context.set_variable("room", 21.5);
                    context.set_metric("last_reward", 0.5);
                    ToolOutput::ok("21.5 °C")
                }
                // Cancelled, terminated or over the time limit: clean up and return. A tool that
                // ignores this is aborted after a grace period, in the middle of its work.
                () = context.cancelled() => {
                    // The outcome records the call as aborted, whatever the tool returns.
                    self.sensor.stopped.fetch_add(1, Ordering::SeqCst);
                    ToolOutput::error("the measurement was stopped")
                }
            }
        })
    }
}

type Error = Box<dyn std::error::Error>;

/// Builds an agent with both tools and a scripted model.
fn agent(turns: Vec<Turn>, measure: Measure, policy: &str) -> Result<Agent, Error> {
    Ok(Agent::builder(ScriptedModel::new(turns))
        .tool(convert())
        .tool(measure)
        .boxed_policy(Registry::new().build_text(policy)?.into_inner())
        .build()?)
}

/// Runs a script with invalid arguments, then both tools, then an answer that names a variable.
async fn variable() -> Result<Outcome, Error> {
    let turns = vec![
        Turn::call("to_fahrenheit", &json!({"celsius": "warm"})),
        Turn::call("to_fahrenheit", &json!({"celsius": 100})).and_call("measure", &json!({})),
        Turn::text("FINAL_VAR(room)"),
    ];
    let measure = Measure { sensor: Sensor::default(), takes: Duration::from_millis(1) };
    let agent = agent(turns, measure, "final_pattern")?;
    Ok(agent.run("How warm is the room?")?.outcome().await)
}

/// Runs measurements with a reward each, until their sum meets the threshold.
async fn metric() -> Result<Outcome, Error> {
    let turns = vec![Turn::call("measure", &json!({})).and_text("I measure."); 5];
    let measure = Measure { sensor: Sensor::default(), takes: Duration::from_millis(1) };
    let agent = agent(turns, measure, "reward_threshold={\"min_reward_threshold\": 1.0}")?;
    Ok(agent.run("Measure until you are sure.")?.outcome().await)
}

/// Cancels a measurement that would take an hour.
async fn cancelled() -> Result<(Outcome, usize), Error> {
    let sensor = Sensor::default();
    let measure = Measure { sensor: sensor.clone(), takes: Duration::from_secs(3600) };
    let agent = agent(vec![Turn::call("measure", &json!({}))], measure, "final_pattern")?;
    let run = agent.run("How warm is the room?")?;
    // Cancelling earlier would end the run before the tool has started.
    sensor.begun.notified().await;
    agent.cancel();
    let outcome = run.outcome().await;
    Ok((outcome, sensor.stopped.load(Ordering::SeqCst)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    println!("derived: {}", convert().schema());
    let (cancelled, stopped) = cancelled().await?;
    for (what, outcome) in
        [("a variable", variable().await?), ("a metric", metric().await?), ("a cancel", cancelled)]
    {
        let by = &outcome.decided_by;
        println!("\n{what}: {} after {} tool calls", outcome.termination, outcome.tool_calls);
        println!("  decided by {} `{}`: {}", by.layer, by.decision, by.evidence);
        for result in outcome.messages.iter().flat_map(results) {
            println!("  {result}");
        }
        if let Some(answer) = outcome.deliverable {
            println!("  answer: {answer}");
        }
    }
    println!("  the sensor was stopped {stopped} time");
    Ok(())
}

/// Returns the tool results in a message, one line each.
fn results(message: &endstop::Message) -> Vec<String> {
    message
        .parts
        .iter()
        .filter_map(|part| match part {
            endstop::Part::ToolResult(result) => {
                Some(format!("{}: {}", result.name, result.content))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::{Termination, ToolStatus};

    /// Returns the statuses of all tool calls, in order.
    fn statuses(outcome: &Outcome) -> Vec<ToolStatus> {
        outcome
            .messages
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(|part| match part {
                endstop::Part::ToolResult(result) => Some(result.status),
                _ => None,
            })
            .collect()
    }

    #[tokio::test]
    async fn variable_becomes_the_answer() {
        let outcome = variable().await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.answer().as_deref(), Some("21.5"));
        assert_eq!(statuses(&outcome), [ToolStatus::Error, ToolStatus::Ok, ToolStatus::Ok]);
        let told: Vec<String> = outcome.messages.iter().flat_map(results).collect();
        assert!(told[0].contains("at `celsius`"), "{told:?}");
        assert_eq!(told[1], "to_fahrenheit: 212 °F");
    }

    #[tokio::test]
    async fn metric_counts_as_reward() {
        let outcome = metric().await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.decided_by.decision.as_str(), "reward_threshold");
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 2));
    }

    #[tokio::test]
    async fn cancel_reaches_the_tool() {
        let (outcome, stopped) = cancelled().await.unwrap();
        assert_eq!(outcome.termination, Termination::Cancelled);
        assert_eq!(stopped, 1);
        assert_eq!(statuses(&outcome), [ToolStatus::Aborted]);
    }

    #[test]
    fn closure_schema_matches_arguments() {
        let schema = convert().schema();
        assert_eq!(schema["properties"]["celsius"]["type"], "number");
        assert_eq!(schema["required"], json!(["celsius"]));
    }
}

//! Tools of one's own: one made of a closure, and one that is a type.
//!
//! What this shows: `tool_fn` derives the schema of a closure's arguments, and answers arguments
//! that do not fit without calling it; a type that implements `Tool` sets a metric and a variable
//! that policies read (`reward_threshold`, `FINAL_VAR`), and listens to the cancellation of its
//! run, so that it ends at once and leaves nothing behind. Run it with `cargo run -p custom-tool`.
#![allow(clippy::print_stdout, reason = "an example says what happened")]

use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput, tool_fn};
use endstop::{AgentLoop, Outcome, Registry};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Converts a temperature; this text and the fields' types are the schema that the model is told.
#[derive(Debug, Deserialize, JsonSchema)]
struct Convert {
    /// The temperature in degrees Celsius.
    celsius: f64,
}

/// A tool of a closure: it may run beside other calls, for it changes nothing.
fn convert() -> impl Tool + 'static {
    tool_fn("to_fahrenheit", "Converts a temperature.", |args: Convert, _context| async move {
        ToolOutput::ok(format!("{} °F", args.celsius * 1.8 + 32.0))
    })
    .parallel_safe()
}

/// What the sensor's owner sees of it.
#[derive(Clone, Debug, Default)]
struct Sensor {
    /// Told when a measurement has begun.
    begun: Arc<Notify>,
    /// Measurements that were told to stop, and did.
    stopped: Arc<AtomicUsize>,
}

/// A tool that is a type: it holds a sensor, and takes its time.
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

    /// It may take longer than the run's `tool_timeout`.
    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_secs(120))
    }

    fn call(&self, _: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            self.sensor.begun.notify_one();
            tokio::select! {
                () = tokio::time::sleep(self.takes) => {
                    // `FINAL_VAR(room)` finds the one, `reward_threshold` adds up the other.
                    context.set_variable("room", 21.5);
                    context.set_metric("last_reward", 0.5);
                    ToolOutput::ok("21.5 °C")
                }
                // A cancel, a terminate or the time limit: put away what is held, and return.
                () = context.cancelled() => {
                    self.sensor.stopped.fetch_add(1, Ordering::SeqCst);
                    ToolOutput::error("the measurement was stopped")
                }
            }
        })
    }
}

type Error = Box<dyn std::error::Error>;

/// An agent with both tools, over a script.
fn agent(turns: Vec<Turn>, measure: Measure, policy: &str) -> Result<AgentLoop, Error> {
    Ok(AgentLoop::builder(ScriptedModel::new(turns))
        .tool(convert())
        .tool(measure)
        .boxed_policy(Registry::new().build_text(policy)?.into_inner())
        .build()?)
}

/// Arguments that do not fit, the two tools side by side, and an answer that names a variable.
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

/// Two measurements bring a reward each; the threshold is met by their sum.
async fn metric() -> Result<Outcome, Error> {
    let turns = vec![Turn::call("measure", &json!({})).and_text("I measure."); 5];
    let measure = Measure { sensor: Sensor::default(), takes: Duration::from_millis(1) };
    let agent = agent(turns, measure, "reward_threshold={\"min_reward_threshold\": 1.0}")?;
    Ok(agent.run("Measure until you are sure.")?.outcome().await)
}

/// A measurement that would take an hour, and a person who does not wait for it.
async fn cancelled() -> Result<(Outcome, usize), Error> {
    let sensor = Sensor::default();
    let measure = Measure { sensor: sensor.clone(), takes: Duration::from_secs(3600) };
    let agent = agent(vec![Turn::call("measure", &json!({}))], measure, "final_pattern")?;
    let run = agent.run("How warm is the room?")?;
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
        println!("  decided by {} `{}`: {}", by.layer, by.name, by.evidence);
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

/// What the tools answered, in a message.
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

    /// The statuses of all tool calls, in order.
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
    async fn a_variable_is_an_answer_and_arguments_that_do_not_fit_are_told() {
        let outcome = variable().await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.answer().as_deref(), Some("21.5"));
        assert_eq!(statuses(&outcome), [ToolStatus::Error, ToolStatus::Ok, ToolStatus::Ok]);
        let told: Vec<String> = outcome.messages.iter().flat_map(results).collect();
        assert!(told[0].contains("at `celsius`"), "{told:?}");
        assert_eq!(told[1], "to_fahrenheit: 212 °F");
    }

    #[tokio::test]
    async fn a_metric_is_a_reward() {
        let outcome = metric().await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.decided_by.name, "reward_threshold");
        assert_eq!((outcome.turns, outcome.tool_calls), (2, 2));
    }

    #[tokio::test]
    async fn a_cancel_reaches_the_tool_and_the_history_says_so() {
        let (outcome, stopped) = cancelled().await.unwrap();
        assert_eq!(outcome.termination, Termination::Cancelled);
        assert_eq!(stopped, 1);
        assert_eq!(statuses(&outcome), [ToolStatus::Aborted]);
    }

    #[test]
    fn the_schema_of_a_closure_is_that_of_its_arguments() {
        let schema = convert().schema();
        assert_eq!(schema["properties"]["celsius"]["type"], "number");
        assert_eq!(schema["required"], json!(["celsius"]));
    }
}

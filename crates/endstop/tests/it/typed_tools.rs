//! Outputs and errors of tools made from closures.

use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{
    IntoToolOutput, Json, Tool, ToolContext, ToolError, ToolOutput, ToolSet, tool_fn, try_tool_fn,
};
use endstop::{Agent, Termination, ToolStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Divides two numbers.
#[derive(Deserialize, JsonSchema)]
struct Divide {
    /// The dividend, in digits.
    a: String,
    /// The divisor.
    b: i64,
}

async fn call(tool: &dyn Tool, arguments: Value) -> ToolOutput {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    tool.call(arguments, ToolContext::detached("call_1")).await
}

fn divide() -> impl Tool {
    try_tool_fn("divide", "", |args: Divide, _| async move {
        match args.b {
            0 => return Err(ToolError::denied("division by zero")),
            -1 => return Err(ToolError::timeout("after 3 s")),
            -2 => return Err(ToolError::halt("negative")),
            _ => {}
        }
        let a: i64 = args.a.parse()?;
        Ok(Json(json!({"quotient": a / args.b})))
    })
}

#[tokio::test]
async fn errors_keep_their_variant() {
    let tool = divide();
    let output = call(&tool, json!({"a": "6", "b": 3})).await;
    assert_eq!(output, ToolOutput::ok(r#"{"quotient":2}"#));
    let output = call(&tool, json!({"a": "six", "b": 3})).await;
    assert_eq!(output, ToolOutput::error("invalid digit found in string"));
    let output = call(&tool, json!({"a": "6", "b": 0})).await;
    assert_eq!((output.status, output.content.as_str()), (ToolStatus::Denied, "division by zero"));
    assert!(output.is_error());
    let output = call(&tool, json!({"a": "6", "b": -1})).await;
    assert_eq!((output.status, output.content.as_str()), (ToolStatus::Timeout, "after 3 s"));
    assert_eq!(call(&tool, json!({"a": "6", "b": -2})).await, ToolOutput::halt("negative"));
}

#[tokio::test]
async fn statuses_reach_conversation() {
    let turns = [
        Turn::call("divide", &json!({"a": "6", "b": 0})),
        Turn::call("divide", &json!({"a": "6", "b": -1})),
        Turn::call("divide", &json!({"a": "6", "b": -2})),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns)).tool(divide()).build().unwrap();
    let outcome = agent.run("Divide.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorHalted);
    assert_eq!(outcome.halted_reason.as_deref(), Some("negative"));
    let results = outcome.messages.iter().flat_map(|m| m.tool_results());
    let results: Vec<_> = results.map(|r| (r.status, r.content.as_str())).collect();
    assert_eq!(
        results,
        [
            (ToolStatus::Denied, "division by zero"),
            (ToolStatus::Timeout, "after 3 s"),
            (ToolStatus::Ok, "negative"),
        ]
    );
}

#[test]
fn doc_comments_are_descriptions() {
    let tool = divide();
    assert_eq!(tool.description(), "Divides two numbers.");
    let schema = tool.schema();
    assert!(schema.get("description").is_none(), "{schema}");
    assert_eq!(schema["properties"]["a"]["description"], "The dividend, in digits.");
    let named = tool_fn("divide", "Divides.", |_: Divide, _| async {});
    assert_eq!(named.description(), "Divides.");
}

#[derive(Debug, thiserror::Error)]
#[error("the request failed")]
struct Outer(#[source] std::num::ParseIntError);

#[test]
fn sources_are_part_of_message() {
    let inner = "x".parse::<u8>().unwrap_err();
    let error = ToolError::from(Outer(inner.clone()));
    assert_eq!(error.message(), "the request failed: invalid digit found in string");
    // An error that only can be displayed works without `?`.
    let output = Err::<String, _>("no such city").into_tool_output();
    assert_eq!(output, ToolOutput::error("no such city"));
    let output = Err::<(), _>(ToolError::denied("no")).into_tool_output();
    assert_eq!(output.status, ToolStatus::Denied);
    assert_eq!(ToolOutput::from(Ok::<_, Outer>("done")), ToolOutput::ok("done"));
}

#[derive(Serialize)]
struct Measured {
    name: &'static str,
    values: Vec<Option<f64>>,
}

#[test]
fn value_that_json_lacks_is_error() {
    let measured = |value| Json(Measured { name: "t", values: vec![None, Some(value)] });
    assert_eq!(ToolOutput::from(measured(1.5)).content, r#"{"name":"t","values":[null,1.5]}"#);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let output = ToolOutput::from(measured(value));
        assert!(output.is_error() && output.content.contains("cannot be written"), "{output:?}");
    }
    let nested = Json(BTreeMap::from([("a", (1, [Some(f32::NAN)]))]));
    assert!(ToolOutput::from(nested).is_error());
    let keys = Json(std::collections::HashMap::from([((1, 2), "a")]));
    let output = ToolOutput::from(keys);
    assert!(output.is_error() && output.content.contains("key must be a string"), "{output:?}");
    assert_eq!(ToolOutput::json(&u128::MAX).unwrap().content, u128::MAX.to_string());
}

#[tokio::test]
async fn tools_are_added_from_iterator() {
    let mut set = ToolSet::default();
    set.add(divide()).unwrap();
    let echo: Arc<dyn Tool> = Arc::new(tool_fn(
        "echo",
        "Echoes.",
        |args: Map<String, Value>, _| async move { Json(args) },
    ));
    let turns = [Turn::call("echo", &json!({"a": [1]})), Turn::text("done")];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tools(set)
        .tools([echo])
        .finish_tool(false)
        .build()
        .unwrap();
    let outcome = agent.run("Echo.").unwrap().await;
    assert!(outcome.is_success());
    let result = outcome.messages.iter().flat_map(|m| m.tool_results()).next().unwrap();
    assert_eq!(result.content, r#"{"a":[1]}"#);
    let twice = Agent::builder(ScriptedModel::new([])).tools([divide(), divide()]).build();
    assert!(twice.unwrap_err().to_string().contains("two tools named `divide`"));
}

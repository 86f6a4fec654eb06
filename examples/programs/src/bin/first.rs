//! The first program of the book: a run of a scripted model with a tool, which needs no key.

use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::tool_fn;
use endstop::{Agent, Limits};
use serde_json::json;

/// Adds two numbers.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = ScriptedModel::new([
        Turn::call("add", &json!({"a": 17.5, "b": 24.5})),
        Turn::text("The sum is 42."),
    ]);
    let agent = Agent::builder(model)
        .tool(tool_fn("add", "", |args: Add, _| async move { (args.a + args.b).to_string() }))
        .limits(Limits { max_turns: Some(10), ..Limits::default() })
        .build()?;
    let outcome = agent.run("What is 17.5 + 24.5?")?.await.into_result()?;
    println!("{}\n[{outcome}]", outcome.answer().unwrap_or_default());
    Ok(())
}

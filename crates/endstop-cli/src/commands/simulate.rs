//! `endstop simulate`: runs the kernel on a script, in virtual time.
//!
//! The exit status is that of the simulation and not of the simulated run, so it is 0 for every
//! outcome.

use crate::args::SimulateArgs;
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::output;
use endstop::core::decide::parse_json;
use endstop::policy::Registry;
use endstop::simulate::{Scenario, simulate};
use serde_json::{Value, json};

pub(crate) fn run(args: &SimulateArgs) -> Result {
    let registry = Registry::default();
    let source = Source::of(Some(&args.file));
    if !args.jsonl {
        let outcome = one(&source.json()?, &registry)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", source.name())))?;
        output::json(&outcome);
        return Ok(0);
    }
    let mut status = 0;
    source.each_line(|number, line| {
        if line.is_empty() {
            return Ok(());
        }
        let line = parse_json(line).map_err(|error| error.to_string());
        let id = line.as_ref().ok().and_then(|line| line.get("id").cloned());
        let outcome =
            line.and_then(|line| match line.get("scenario") {
                Some(scenario) => one(scenario, &registry),
                None => Err("missing field `scenario`; expected an object {\"id\", \"scenario\"}"
                    .to_owned()),
            });
        match outcome {
            Ok(outcome) => {
                let mut object = serde_json::Map::new();
                object.insert("id".to_owned(), id.unwrap_or(Value::Null));
                if let Value::Object(fields) = outcome {
                    object.extend(fields);
                }
                output::json(&object);
            }
            Err(problem) => {
                // One invalid line does not hide the others: reading continues, and the status
                // reports it.
                status = 2;
                let problem = format!("line {number}: {problem}");
                output::note_of_line(&source.name(), &problem);
                output::json(&json!({"id": id, "type": "error", "line": number, "error": problem}));
            }
        }
        Ok(())
    })?;
    Ok(status)
}

fn one(scenario: &Value, registry: &Registry) -> std::result::Result<Value, String> {
    let scenario = Scenario::from_value(scenario).map_err(|error| error.to_string())?;
    let outcome = simulate(&scenario, registry).map_err(|error| error.to_string())?;
    serde_json::to_value(&*outcome).map_err(|error| error.to_string())
}

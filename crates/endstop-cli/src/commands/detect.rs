//! `endstop detect`: reads a provider's raw response and prints the turn's signal.

use crate::args::DetectArgs;
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::output;
use endstop::core::decide::parse_json;
use endstop::wire::detect;
use serde_json::{Map, json};

pub(crate) fn run(args: &DetectArgs) -> Result {
    let source = Source::of(args.file.as_deref());
    if !args.jsonl {
        let mut headers = Map::new();
        for header in &args.headers {
            let (name, value) = header.split_once(':').ok_or_else(|| {
                Failure::usage(format!("invalid --header {header:?}: expected 'name: value'"))
            })?;
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().into());
        }
        let row = json!({
            "api": args.api,
            "status": args.status,
            "headers": headers,
            // Base64, because a body may be compressed or in a binary event stream.
            "body_encoding": "base64",
            "body": base64(&source.bytes()?),
        });
        let seen = detect::look(&row).map_err(|error| {
            // The error names the field of a line; on the command line it is a flag.
            Failure::usage(error.to_string().replacen("`api` is", "--api is", 1))
        })?;
        output::json(&seen.object);
        if let Some(family) = seen.looks_like {
            output::note(&format!("endstop: this looks like {family}; pass --api {family}"));
        }
        return Ok(0);
    }
    let mut status = 0;
    source.each_line(|number, line| {
        if line.is_empty() {
            return Ok(());
        }
        let row = parse_json(line).map_err(|error| error.to_string());
        // A recording also has lines that are not exchanges.
        let kind = row.as_ref().ok().and_then(|row| row["type"].as_str());
        if matches!(kind, Some("recording" | "ended")) {
            return Ok(());
        }
        let id = row.as_ref().ok().and_then(|row| row.get("id").cloned());
        let found = row.and_then(|row| detect::detect(&row).map_err(|error| error.to_string()));
        match found {
            Ok(found) => output::json(&found),
            Err(problem) => {
                // One invalid line does not hide the others: reading continues, and the status
                // reports it.
                status = 2;
                let problem = format!("line {number}: {problem}");
                output::note_of_line(&source.name(), &problem);
                output::json(&json!({
                    "id": id,
                    "type": "error",
                    "line": number,
                    "signal": null,
                    "error": {"message": problem},
                }));
            }
        }
        Ok(())
    })?;
    Ok(status)
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

//! `endstop decide`: reads steps and prints a policy's verdicts.

use crate::args::DecideArgs;
use crate::config::kinds::policy;
use crate::failure::Result;
use crate::input::Source;
use crate::output;
use endstop::core::decide::Decider;
use serde_json::json;

pub(crate) fn run(args: &DecideArgs) -> Result {
    let mut decider = Decider::new(policy(&args.policy)?);
    let source = Source::of(args.file.as_deref());
    let mut status = 0;
    source.each_line(|number, line| {
        match decider.line(line) {
            None => {}
            Some(Ok(verdict)) => {
                output::json(&verdict);
            }
            Some(Err(error)) => {
                // An invalid line still prints one line of output, so that input and output lines
                // stay aligned.
                status = 2;
                output::json(&json!({"type": "error", "line": number, "error": error.to_string()}));
                output::note_of_line(&source.name(), &error);
            }
        }
        Ok(())
    })?;
    Ok(status)
}

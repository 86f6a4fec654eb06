//! Values of the kernel by name.

use endstop_core::{ErrorClass, PolicyEnd, Termination, ToolStatus, TurnDelta};
use endstop_guest::choice::{delta, error_class, members, policy_end, tool_status};

#[test]
fn names_are_read_as_written() {
    assert_eq!(tool_status("timeout"), Ok(ToolStatus::Timeout));
    assert_eq!(error_class("rate_limit"), Ok(ErrorClass::RateLimit));
    assert_eq!(policy_end("ends_as", "error_halted"), Ok(PolicyEnd::Halted));
    assert_eq!(delta("né".into(), "call"), Ok(TurnDelta::ToolArguments(2)));
    assert_eq!(delta("no".into(), "refusal"), Ok(TurnDelta::Reasoning(2)));
}

#[test]
fn wrong_name_lists_the_choices() {
    let says = [
        tool_status("skipped").unwrap_err().to_string(),
        policy_end("endsAs", "stop").unwrap_err().to_string(),
        delta(String::new(), "image").unwrap_err().to_string(),
    ];
    assert_eq!(
        says,
        [
            "invalid `status` `skipped`: expected one of ok, error, denied, timeout, aborted",
            "invalid `endsAs` `stop`: expected one of submitted, error_no_progress, \
             error_consecutive_mistakes, error_halted",
            "invalid `kind` `image`: expected one of text, reasoning, refusal, call, arguments, \
             hidden, hidden_reasoning",
        ]
    );
}

#[test]
fn members_have_every_termination() {
    let all = members();
    let (name, terminations) = &all[0];
    assert_eq!((*name, terminations.len()), ("Termination", Termination::all().len()));
    assert_eq!(all.len(), 6);
}

//! Maps the termination reasons of tau2-bench, which its results and the rows of collections share.

/// Maps tau2's termination reasons to the common ones.
pub(crate) fn reason(native: &str) -> &'static str {
    match native {
        "user_stop" => "user_stop",
        "agent_stop" => "final",
        "max_steps" => "max_steps",
        "timeout" => "timeout",
        "too_many_errors" | "agent_error" => "agent_error",
        "user_error" | "infrastructure_error" | "unexpected_error" => "harness_error",
        "context_window_exceeded" => "context_overflow",
        _ => "unknown",
    }
}

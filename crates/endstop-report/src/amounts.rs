//! Formats counts, numbers and durations for the user.

use std::time::Duration;

/// Formats a count with its noun: `1 tool call`, `2 tool calls`.
pub fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// Formats a number with separators: `41,230`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        // Counted from the right, because the first group may be shorter.
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a duration: `48.1 s`, `3 min 20 s`.
pub fn seconds(time: Duration) -> String {
    let secs = time.as_secs();
    if secs >= 120 {
        format!("{} min {} s", secs / 60, secs % 60)
    } else if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

//! The use of a subscription's windows, from the headers of a response.
//!
//! ```
//! use endstop_wire::{Headers, windows};
//! let headers: Headers = [
//!     ("anthropic-ratelimit-unified-5h-utilization", "0.83"),
//!     ("anthropic-ratelimit-unified-5h-reset", "1785182400"),
//! ].into_iter().collect();
//! let windows = windows::of(&headers);
//! assert_eq!((windows[0].name().as_str(), windows[0].used), ("5h", 830));
//! ```
//!
//! Neither vendor documents these headers. Their own clients read them: Claude Code shows the use of its plan, and
//! codex has them in `codex-rs/codex-api/src/rate_limits.rs` (openai/codex, 5d24c10b).

use crate::headers::Headers;
use endstop_core::Window;
use endstop_core::limits::parse_duration;

/// Beginning of the headers of a Claude plan; the window's length and the field follow.
const CLAUDE: &str = "anthropic-ratelimit-unified-";
/// Windows of a ChatGPT plan.
const CHATGPT: [&str; 2] = ["x-codex-primary", "x-codex-secondary"];
/// Number of windows that are read at most.
const MOST: usize = 8;

/// Returns the windows that a response reports. A value that cannot be read is left out.
pub fn of(headers: &Headers) -> Vec<Window> {
    let claude = headers.iter().filter_map(|(name, _)| {
        let name = name.to_ascii_lowercase();
        let label = name.strip_prefix(CLAUDE)?;
        // A window has a status, its use or both, and is read once.
        let label = label.strip_suffix("-status").or_else(|| {
            let label = label.strip_suffix("-utilization")?;
            headers.get(&format!("{CLAUDE}{label}-status")).is_none().then_some(label)
        })?;
        claude(headers, label)
    });
    let chatgpt = CHATGPT.into_iter().filter_map(|window| chatgpt(headers, window));
    claude.chain(chatgpt).take(MOST).collect()
}

/// Reads a window of a Claude plan. Windows of a single model (`7d_sonnet`) have no length in their name, and are left
/// out.
fn claude(headers: &Headers, label: &str) -> Option<Window> {
    let field = |name: &str| headers.get(&format!("{CLAUDE}{label}-{name}")).map(str::trim);
    let length = parse_duration(label).filter(|_| label.ends_with(['h', 'd']))?;
    let used = field("utilization").and_then(|used| used.parse::<f64>().ok());
    let used = match field("status") {
        Some("rejected") => Some(used.unwrap_or_default().max(1.0)),
        _ => used,
    };
    let minutes = u32::try_from(length.as_secs() / 60).ok()?;
    Window::new("anthropic", minutes, used?, moment(field("reset")))
}

/// Reads a window of a ChatGPT plan. Without a length it cannot be named; zeros mean no data.
fn chatgpt(headers: &Headers, window: &str) -> Option<Window> {
    let field = |name: &str| headers.get(&format!("{window}-{name}")).map(str::trim);
    let used: f64 = field("used-percent")?.parse().ok()?;
    let minutes: u32 = field("window-minutes")?.parse().ok()?;
    Window::new("codex", minutes, used / 100.0, moment(field("reset-at")))
}

/// Reads a moment in Unix seconds.
fn moment(value: Option<&str>) -> Option<u64> {
    // Anthropic's may have a fraction, and one that is not a number must not become zero.
    let seconds =
        value?.parse::<f64>().ok().filter(|seconds| *seconds >= 1.0 && seconds.is_finite())?;
    Some(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::Headers;

    /// Headers built from what the clients read; not recorded.
    fn read(headers: &[(&str, &str)]) -> Vec<(String, String, u32, Option<u64>)> {
        let windows = of(&headers.iter().copied().collect::<Headers>());
        let read = windows.into_iter();
        read.map(|one| (one.of.clone(), one.name(), one.used, one.resets_at)).collect()
    }

    fn window(
        of: &str,
        name: &str,
        used: u32,
        at: Option<u64>,
    ) -> (String, String, u32, Option<u64>) {
        (of.to_owned(), name.to_owned(), used, at)
    }

    #[test]
    fn both_plans_report_their_windows() {
        let found = read(&[
            ("Anthropic-RateLimit-Unified-Status", "allowed"),
            ("anthropic-ratelimit-unified-5h-status", "allowed_warning"),
            ("anthropic-ratelimit-unified-5h-utilization", "0.83"),
            ("anthropic-ratelimit-unified-5h-reset", "1785182400"),
            ("anthropic-ratelimit-unified-7d-status", "allowed"),
            ("anthropic-ratelimit-unified-7d-utilization", "0.0"),
            ("anthropic-ratelimit-unified-7d-reset", "1785751200"),
            ("anthropic-ratelimit-unified-7d_oi-status", "rejected"),
            ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
            ("anthropic-ratelimit-unified-overage-status", "rejected"),
        ]);
        let five = window("anthropic", "5h", 830, Some(1_785_182_400));
        assert_eq!(found, [five, window("anthropic", "7d", 0, Some(1_785_751_200))]);
        let found = read(&[
            ("x-codex-primary-used-percent", "12.5"),
            ("x-codex-primary-window-minutes", "300"),
            ("x-codex-primary-reset-at", "1704069000"),
            ("x-codex-secondary-used-percent", "100"),
            ("x-codex-secondary-window-minutes", "10080"),
        ]);
        let five = window("codex", "5h", 125, Some(1_704_069_000));
        assert_eq!(found, [five, window("codex", "7d", 1000, None)]);
    }

    #[test]
    fn window_without_a_status_is_read() {
        let found = read(&[("anthropic-ratelimit-unified-7d-utilization", "0.5")]);
        assert_eq!(found, [window("anthropic", "7d", 500, None)]);
    }

    #[test]
    fn rejected_window_is_used_up() {
        let found = read(&[("anthropic-ratelimit-unified-5h-status", "rejected")]);
        assert_eq!(found, [window("anthropic", "5h", 1000, None)]);
    }

    #[test]
    fn headers_that_say_nothing_are_left_out() {
        for headers in [
            &[("anthropic-ratelimit-unified-5h-status", "allowed")][..],
            &[
                ("anthropic-ratelimit-unified-5h-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-utilization", "NaN"),
            ],
            &[
                ("anthropic-ratelimit-unified-5h-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-utilization", "-0.5"),
            ],
            &[
                ("anthropic-ratelimit-unified--status", "rejected"),
                ("anthropic-ratelimit-unified-0h-status", "rejected"),
                ("anthropic-ratelimit-unified-99999d-status", "rejected"),
            ],
            &[("x-codex-primary-used-percent", "90")],
            &[
                ("x-codex-primary-used-percent", "0"),
                ("x-codex-primary-window-minutes", "0"),
                ("x-codex-primary-reset-at", "0"),
            ],
            &[("x-codex-primary-used-percent", "many"), ("x-codex-primary-window-minutes", "300")],
            &[("x-codex-primary-used-percent", "50"), ("x-codex-primary-window-minutes", "-300")],
        ] {
            assert_eq!(read(headers), [], "{headers:?}");
        }
        for reset in ["", "soon", "NaN", "inf", "-5", "0"] {
            let found = read(&[
                ("anthropic-ratelimit-unified-5h-status", "allowed"),
                ("anthropic-ratelimit-unified-5h-utilization", "0.5"),
                ("anthropic-ratelimit-unified-5h-reset", reset),
            ]);
            assert_eq!(found, [window("anthropic", "5h", 500, None)], "{reset}");
        }
    }
}

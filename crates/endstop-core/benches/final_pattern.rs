//! Benchmark of `final_pattern` on 5 MB of text without a declaration, compared with one `memmem`
//! search of the same text in the same run.
//!
//! ```sh
//! cargo bench -p endstop-core --bench final_pattern
//! ```
//!
//! Times are processor time on Unix. The best of several rounds counts, because other work on the
//! machine only makes a round slower. With chunks of a few bytes the calls themselves dominate, so
//! the last columns measure a loop that only copies the chunks.

use endstop_core::policy::FinalPattern;
use endstop_core::{StepContext, StepResult, TerminationPolicy};
use memchr::memmem;
use serde_json::json;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

const BYTES: usize = 5_000_000;
const ROUNDS: usize = 9;

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("milliseconds for {BYTES} bytes; the best of {ROUNDS} rounds\n");
    println!(
        "| text | memmem | whole | any case | 4096 B | 64 B | 4 B | 64 B, copied | 4 B, copied |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, unit) in TEXTS {
        let text: String = unit.chars().cycle().take(BYTES).collect();
        let text = text.get(..BYTES).unwrap_or(&text);
        let memmem = best(|| memmem::find(black_box(text).as_bytes(), b"TERMINATE").is_some());
        let mut columns = vec![memmem];
        for case_sensitive in [true, false] {
            let config = json!({ "case_sensitive": case_sensitive });
            let mut policy = FinalPattern::from_config(&config)?;
            let step = StepResult {
                action_type: "message".to_owned(),
                output: Some(text.to_owned()),
                ..StepResult::default()
            };
            let context = StepContext::default();
            columns.push(best(|| policy.should_terminate(black_box(&step), &context)));
        }
        for length in [4096, 64, 4] {
            let pieces = pieces(text, length);
            let context = StepContext::default();
            columns.push(best(|| {
                let mut policy = FinalPattern::default();
                pieces.iter().filter(|piece| policy.on_delta(piece, &context).is_some()).count()
            }));
        }
        for length in [64, 4] {
            let pieces = pieces(text, length);
            columns.push(best(|| {
                let mut copy = String::new();
                for piece in &pieces {
                    copy.push_str(black_box(piece));
                }
                copy
            }));
        }
        let columns: Vec<String> =
            columns.iter().map(|time| format!("{:.2}", time.as_secs_f64() * 1e3)).collect();
        println!("| {name} | {} |", columns.join(" | "));
    }
    Ok(())
}

const TEXTS: [(&str, &str); 6] = [
    (
        "prose",
        "The run ended because the model said so (twice), and no check confirmed that it was true. \
         \n\nA sentence about limits, budgets and turns follows, as sentences do; it is short.\n",
    ),
    (
        "code in backticks",
        "Call `f(x)` and `g(y)`, then `run()`.\n```python\nfor i in range(10):\n    print(i, f(i))\n```\n",
    ),
    (
        "capital F and S",
        "FOR SURE THE SAFEST FIFTH STEP FAILS: SUMMARISE, FINISH, SUBTRACT (FOUR). ",
    ),
    ("`FINAL ` repeated", "FINAL "),
    ("`(` repeated", "("),
    ("names and brackets", "FINAL answer (SUBMIT it) is FINALLY (not FINAL) here. "),
];

fn pieces(text: &str, length: usize) -> Vec<&str> {
    let cut = |at: usize| text.get(at..text.len().min(at + length)).unwrap_or_default();
    (0..text.len()).step_by(length).map(cut).collect()
}

fn best<T>(mut work: impl FnMut() -> T) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let began = now();
        black_box(work());
        now().saturating_sub(began)
    });
    times.min().unwrap_or_default()
}

/// Returns the processor time of this thread.
#[cfg(unix)]
fn now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let at = clock_gettime(ClockId::ThreadCPUTime);
    Duration::from_secs_f64(at.tv_sec as f64 + at.tv_nsec as f64 / 1e9)
}

#[cfg(not(unix))]
fn now() -> Duration {
    use std::sync::LazyLock;
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

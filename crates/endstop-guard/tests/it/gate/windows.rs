//! The windows of a subscription in the headers of responses, rates, limits on tool calls, and the warning of the model.
//!
//! The headers are built from what the clients of the vendors read (see `endstop_wire::windows`); they are not recorded.

use super::agents::{ALL, Speaks, Talk, call};
use super::support::{Bills, Guard, Manner, billing};
use crate::proxy::support::{post, run};
use endstop_core::{Limits, RunEvent, Termination, ToolPolicy};
use endstop_guard::run::{GuardEvent, Settings};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

async fn guard(settings: Settings) -> (Guard, Arc<Bills>) {
    let bills = Arc::new(Bills::default());
    let (upstream, stop) = billing(Arc::clone(&bills), Arc::new(|_| Manner::Tool)).await;
    // The upstream serves until the runtime of the test ends.
    std::mem::forget(stop);
    (Guard::start(settings, upstream).await, bills)
}

fn limited(windows: &str, waits: bool) -> Settings {
    let max_window = Some(windows.parse().expect("windows"));
    let limits = Limits { max_window, wait_for_window: waits, ..Limits::none() };
    Settings { limits, ..Settings::default() }
}

/// Lets the upstream report the use of a Claude plan's window of five hours from now on.
fn claude(bills: &Bills, used: f64, resets_in: u64) {
    let at = now() + resets_in;
    let five = "anthropic-ratelimit-unified-5h";
    *bills.headers.lock().expect("a lock") = format!(
        "{five}-status: allowed_warning\r\n{five}-utilization: {used}\r\n{five}-reset: {at}\r\n"
    );
}

/// The same of a ChatGPT plan.
fn codex(bills: &Bills, percent: f64, resets_in: u64) {
    let at = now() + resets_in;
    let first = "x-codex-primary";
    *bills.headers.lock().expect("a lock") = format!(
        "{first}-used-percent: {percent}\r\n{first}-window-minutes: 300\r\n{first}-reset-at: {at}\r\n"
    );
}

#[expect(clippy::disallowed_methods, reason = "a reset is a wall-clock time")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Makes a turn, and returns the body of the response.
async fn turn(guard: &Guard, talk: &mut Talk) -> String {
    let (status, body) = call(guard.address, &talk.request()).await;
    assert_eq!(status, 200);
    let body = body.expect("a body");
    talk.answered(&body);
    body
}

#[test]
fn used_window_ends_the_run_for_all_conversations() {
    type Report = fn(&Bills, f64, u64);
    let plans: [(Report, f64, f64, &str); 2] =
        [(claude, 0.5, 0.83, "anthropic"), (codex, 50.0, 83.0, "codex")];
    for (report, low, high, of) in plans {
        run(async move {
            let (guard, bills) = guard(limited("5h=80%", false)).await;
            report(&bills, low, 3600);
            let mut talk = Talk::new("a", "t", Speaks::Anthropic);
            let mut other = Talk::new("a", "other", Speaks::Anthropic);
            turn(&guard, &mut talk).await;
            turn(&guard, &mut other).await;
            report(&bills, high, 3600);
            turn(&guard, &mut other).await;
            // The report came with a response of the other conversation.
            let (_, body) = call(guard.address, &talk.request()).await;
            let reason = format!("83% of the 5h window of {of} used, of 80%; it resets in ");
            assert!(body.as_deref().expect("a body").contains(&reason), "{body:?}");
            assert_eq!(bills.of("a").calls, 3);
            let outcome = guard.run("a").expect("a run").outcome().expect("an end");
            assert_eq!(outcome.termination, Termination::ErrorMaxWindow);
            let wait = outcome.retry_after.expect("the reset").as_secs();
            assert!((3590..=3600).contains(&wait), "{wait}");
        });
    }
}

#[test]
fn waiting_run_holds_calls_until_the_reset() {
    run(async {
        let (guard, bills) = guard(limited("5h=80%,7d=90%", true)).await;
        claude(&bills, 0.95, 3);
        let mut talk = Talk::new("a", "t", Speaks::Anthropic);
        let began = Instant::now();
        turn(&guard, &mut talk).await;
        claude(&bills, 0.01, 18_000);
        // A client that does not wait leaves no call, and does not end the pause.
        let request = talk.request();
        let held = call(guard.address, &request);
        let short = tokio::time::timeout(Duration::from_millis(300), held);
        assert!(short.await.is_err(), "held back");
        assert_eq!(bills.of("a").calls, 1);
        turn(&guard, &mut talk).await;
        // The reset is a whole second, so that the first may be short.
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(bills.of("a").calls, 2);
        let run = guard.run("a").expect("a run");
        assert!(run.outcome().is_none());
        let events = guard.events.lock().expect("a lock");
        let pauses = events.iter().filter(|event| match event {
            GuardEvent::Run { event, .. } => {
                matches!(event.unredacted(), RunEvent::Paused { evidence, .. } if evidence.contains("95%"))
            }
            _ => false,
        });
        assert_eq!(pauses.count(), 1);
    });
}

#[test]
fn lower_timeout_ends_a_pause() {
    run(async {
        let (guard, bills) = guard(limited("5h=80%", true)).await;
        claude(&bills, 0.95, 3600);
        let mut talk = Talk::new("a", "t", Speaks::Anthropic);
        turn(&guard, &mut talk).await;
        let request = talk.request();
        let waiting = tokio::time::timeout(Duration::from_secs(20), call(guard.address, &request));
        let lowered = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let run = guard.run("a").expect("a run");
            let limits = Limits { timeout: Some(Duration::from_secs(60)), ..run.limits() };
            assert!(run.set_limits(limits));
        };
        let (answer, ()) = tokio::join!(waiting, lowered);
        let (_, body) = answer.expect("the pause ends");
        assert!(body.expect("a body").contains("95% of the 5h window"));
        assert_eq!(bills.of("a").calls, 1);
    });
}

#[test]
fn rate_holds_calls_of_all_conversations() {
    run(async {
        let limits = Limits { max_rate: "1 tokens/m".parse().ok(), ..Limits::none() };
        let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
        let mut talk = Talk::new("a", "t", Speaks::Chat);
        let other = Talk::new("a", "other", Speaks::Chat);
        turn(&guard, &mut talk).await;
        for request in [talk.request(), other.request()] {
            let held = call(guard.address, &request);
            let short = tokio::time::timeout(Duration::from_millis(300), held);
            assert!(short.await.is_err(), "held back");
        }
        assert_eq!(bills.of("a").calls, 1);
        let request = other.request();
        let waiting = tokio::time::timeout(Duration::from_secs(20), call(guard.address, &request));
        let raised = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(guard.run("a").expect("a run").set_limits(Limits::none()));
        };
        let (answer, ()) = tokio::join!(waiting, raised);
        assert_eq!(answer.expect("the pause ends").0, 200);
        assert_eq!(bills.of("a").calls, 2);
        let events = guard.events.lock().expect("a lock");
        let pauses = events.iter().filter(|event| match event {
            GuardEvent::Run { event, .. } => {
                matches!(event.unredacted(), RunEvent::Paused { evidence, .. } if evidence.contains("per minute"))
            }
            _ => false,
        });
        assert_eq!(pauses.count(), 1);
    });
}

/// An embedding costs, too.
#[test]
fn rate_holds_calls_without_an_answer_in_text() {
    run(async {
        let limits = Limits { max_rate: "1 tokens/m".parse().ok(), ..Limits::none() };
        let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
        let body = br#"{"model":"m","input":"run e; text"}"#;
        let embed = post("/run/e/v1/embeddings", body);
        assert_eq!(call(guard.address, &embed).await.0, 200);
        let held = tokio::time::timeout(Duration::from_millis(300), call(guard.address, &embed));
        assert!(held.await.is_err(), "held back");
        assert_eq!(bills.of("e").calls, 1);
    });
}

/// The last turn of the program has no answer, so that its run has not succeeded.
#[test]
fn program_that_leaves_a_call_which_is_held_back_has_no_answer() {
    run(async {
        for (waits, continues) in [(true, false), (false, false), (true, true)] {
            let (guard, bills) = guard(limited("5h=80%", true)).await;
            claude(&bills, 0.95, 2);
            let mut talk = Talk::new("a", "t", Speaks::Anthropic);
            turn(&guard, &mut talk).await;
            let request = talk.request();
            let held = call(guard.address, &request);
            let short = tokio::time::timeout(Duration::from_millis(300), held);
            let run = guard.run("a").expect("a run");
            if waits {
                assert!(short.await.is_err(), "held back");
                claude(&bills, 0.01, 18_000);
                if continues {
                    turn(&guard, &mut talk).await;
                    run.idle().await;
                }
                let outcome = run.close(true, "");
                let expected = if continues {
                    Termination::ErrorDuringExecution
                } else {
                    Termination::ErrorMaxWindow
                };
                assert_eq!(outcome.termination, expected, "{:?}", outcome.decided_by);
            } else {
                // The program ends before guard has seen that its connection is closed.
                let ended = async {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    run.close(true, "").termination
                };
                let (_, termination) = tokio::join!(short, ended);
                assert_eq!(termination, Termination::ErrorMaxWindow);
            }
        }
    });
}

/// A title that is held back later, and then passes, does not hide it.
#[test]
fn turn_that_is_left_among_others_has_no_answer() {
    run(async {
        let (guard, bills) = guard(limited("5h=80%", true)).await;
        let mut talk = Talk::new("a", "t", Speaks::Anthropic);
        turn(&guard, &mut talk).await;
        claude(&bills, 0.95, 2);
        let mut other = Talk::new("a", "other", Speaks::Anthropic);
        turn(&guard, &mut other).await;
        let request = talk.request();
        let left = tokio::time::timeout(Duration::from_millis(300), call(guard.address, &request));
        let title = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "run a; title"}]});
        let title = post("/run/a/v1/messages", title.to_string().as_bytes());
        let waits = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            claude(&bills, 0.01, 18_000);
            call(guard.address, &title).await.0
        };
        let (left, status) = tokio::join!(left, waits);
        assert!(left.is_err() && status == 200, "held back, and then answered");
        let run = guard.run("a").expect("a run");
        run.idle().await;
        assert_eq!(run.close(true, "").termination, Termination::ErrorMaxWindow);
    });
}

#[test]
fn several_answers_pass_no_limit_on_tool_calls() {
    run(async {
        let limits = Limits { max_tool_calls: Some(3), ..Limits::none() };
        let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
        for (choices, tools, status) in [(2, true, 400), (2, false, 200), (1, true, 200)] {
            let mut body = json!({"model": "m", "n": choices, "messages": [{"role": "user", "content": "run n; go"}]});
            if tools {
                body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
            }
            let request = post("/run/n/v1/chat/completions", body.to_string().as_bytes());
            assert_eq!(call(guard.address, &request).await.0, status, "{choices} {tools}");
        }
        assert_eq!(bills.of("n").calls, 2);
    });
}

#[test]
fn deadline_before_the_rate_ends_the_run() {
    run(async {
        let timeout = Some(Duration::from_secs(30));
        let limits = Limits { max_rate: "1 tokens/m".parse().ok(), timeout, ..Limits::none() };
        let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
        let mut talk = Talk::new("a", "t", Speaks::Responses);
        turn(&guard, &mut talk).await;
        let other = Talk::new("a", "other", Speaks::Responses);
        let (_, body) = call(guard.address, &other.request()).await;
        let body = body.expect("a body");
        assert!(body.contains("error_timeout") && body.contains("must wait"), "{body}");
        assert_eq!(bills.of("a").calls, 1);
    });
}

#[test]
fn warning_ends_the_last_message_of_each_format() {
    for speaks in ALL {
        run(async move {
            let limits = Limits { max_turns: Some(5), warn_model: true, ..Limits::none() };
            let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
            let mut talk = Talk::new("a", "t", speaks);
            for _ in 0..4 {
                turn(&guard, &mut talk).await;
            }
            let own = String::from_utf8(talk.request()).expect("text");
            let (_, own) = own.split_once("\r\n\r\n").expect("a body");
            turn(&guard, &mut talk).await;
            let bodies = bills.bodies.lock().expect("a lock").clone();
            let bodies: Vec<&str> =
                bodies.iter().map(|one| one.split_once("\r\n\r\n").expect("a body").1).collect();
            let line = "This run is near a limit. Left: 1 of 5 turns.";
            let warned: Vec<bool> = bodies.iter().map(|body| body.contains(line)).collect();
            assert_eq!(warned, [false, false, false, false, true], "{speaks:?}");
            let sent = bodies[4];
            serde_json::from_str::<serde_json::Value>(sent).expect("JSON");
            // The client's own bytes are there in their order, those of the earlier messages at the beginning.
            let same = own.bytes().zip(sent.bytes()).take_while(|(one, other)| one == other);
            let start = same.count();
            assert!(sent.ends_with(&own[start..]), "{speaks:?}: {sent}");
            let end = own.find("\"tools\"").unwrap_or(own.len());
            assert!(start + 200 > end, "{speaks:?}: the change is at {start} of {end}");
        });
    }
}

#[test]
fn tool_calls_count_over_conversations() {
    run(async {
        let limits = Limits { max_tool_calls: Some(3), ..Limits::none() };
        let (guard, bills) = guard(Settings { limits, ..Settings::default() }).await;
        let mut talk = Talk::new("a", "t", Speaks::Chat);
        let mut other = Talk::new("a", "other", Speaks::Chat);
        turn(&guard, &mut talk).await;
        turn(&guard, &mut other).await;
        turn(&guard, &mut talk).await;
        // Its response has the fourth call: the run ends there, and says so at the next request.
        turn(&guard, &mut other).await;
        let (_, body) = call(guard.address, &other.request()).await;
        assert!(body.expect("a body").contains("3 of 3 tool calls; `bash` was not started"));
        assert_eq!(bills.of("a").calls, 4);
        let outcome = guard.run("a").expect("a run").outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorMaxToolCalls);
    });
}

#[test]
fn tool_of_a_program_has_its_own_limit() {
    run(async {
        let tool = |name: &str, calls| ToolPolicy {
            name: name.to_owned(),
            max_calls: Some(calls),
            ..ToolPolicy::default()
        };
        let tools = Arc::new(vec![tool("bash", 2), tool("edit", 0)]);
        let (guard, bills) = guard(Settings { tools, ..Settings::default() }).await;
        let mut talk = Talk::new("a", "t", Speaks::Responses);
        for _ in 0..3 {
            turn(&guard, &mut talk).await;
        }
        let (_, body) = call(guard.address, &talk.request()).await;
        assert!(body.expect("a body").contains("2 of 2 calls of `bash`"));
        assert_eq!(bills.of("a").calls, 3);
    });
}

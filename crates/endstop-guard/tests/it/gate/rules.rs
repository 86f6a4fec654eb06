//! Rules of guarded runs: turns, reservations, deadlines, warnings, caps.

use super::agents::{Speaks, Talk, call, exchange};
use super::support::{Bills, Choose, Guard, Manner, billing, price};
use crate::proxy::support::{Conn, header, post, run};
use endstop::budget::SharedBudget;
use endstop_core::{Limits, NanoUsd, Termination, Watch};
use endstop_guard::exchange::RunName;
use endstop_guard::proxy::{
    Disposition, Gatekeeper as _, RequestBody, RequestHead, Upstream, UpstreamMap,
};
use endstop_guard::run::{Gate, OtherCalls, ProgramEnd, Settings, warn_without_calls};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn always(manner: Manner) -> Choose {
    Arc::new(move |_| manner)
}

async fn guard(settings: Settings, choose: Choose) -> (Guard, Arc<Bills>) {
    let bills = Arc::new(Bills::default());
    let (upstream, stop) = billing(Arc::clone(&bills), choose).await;
    // The upstream serves until the runtime of the test ends.
    std::mem::forget(stop);
    (Guard::start(settings, upstream).await, bills)
}

fn limited(limits: Limits) -> Settings {
    Settings { limits, price: Some(price()), ..Settings::default() }
}

/// A title: a call without tools.
fn title(run: &str) -> Vec<u8> {
    plain(run, "chat/completions")
}

/// A request without tools to a path.
fn plain(run: &str, path: &str) -> Vec<u8> {
    let body = format!(
        "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"run {run}; a title\"}}]}}"
    );
    post(&format!("/run/{run}/v1/{path}"), body.as_bytes())
}

#[test]
fn auxiliary_calls_are_not_turns() {
    run(async {
        let limits = Limits { max_turns: Some(2), ..Limits::default() };
        let (guard, bills) = guard(limited(limits), always(Manner::Tool)).await;
        let mut talk = Talk::new("a", "t", Speaks::Chat);
        for turn in 0..2 {
            // The first ones count until a call with tools shows that they are titles.
            for _ in 0..[2, 3][turn] {
                assert_eq!(call(guard.address, &title("a")).await.0, 200);
            }
            let (status, body) = call(guard.address, &talk.request()).await;
            let body = body.expect("a body");
            assert!(status == 200 && body.contains("call_"), "turn {turn}: {body}");
            talk.answered(&body);
        }
        let (_, body) = call(guard.address, &talk.request()).await;
        assert!(body.expect("a body").contains("2 of 2 turns"));
        assert_eq!(bills.of("a").calls, 7);
        let outcome = guard.run("a").expect("a run").outcome().expect("an end");
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 2));
    });
}

/// A call that the provider refuses because of its key costs nothing, so that anyone could repeat it.
#[test]
fn refused_calls_are_no_turns() {
    run(async {
        for refusal in [Manner::Unauthorized, Manner::Forbidden] {
            let limits = Limits { max_turns: Some(3), ..Limits::default() };
            let manner: Choose =
                Arc::new(move |number| if number < 8 { refusal } else { Manner::Tool });
            let (guard, _) = guard(limited(limits), manner).await;
            // Eight conversations of a client without a key.
            for number in 0..8 {
                let other = Talk::new("a", &format!("other {number}"), Speaks::Chat);
                let (status, _) = call(guard.address, &other.request()).await;
                assert!([401, 403].contains(&status), "{status}");
            }
            assert_eq!(guard.run("a").expect("a run").live().turns, 0);
            let mut talk = Talk::new("a", "t", Speaks::Chat);
            for turn in 0..3 {
                let (status, body) = call(guard.address, &talk.request()).await;
                assert_eq!(status, 200, "{refusal:?} {turn}: {body:?}");
                talk.answered(&body.expect("a body"));
            }
            let (_, body) = call(guard.address, &talk.request()).await;
            assert!(body.expect("a body").contains("3 of 3 turns"));
            let outcome = guard.run("a").expect("a run").outcome().expect("an end");
            assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 3));
        }
    });
}

#[test]
fn refused_call_of_a_program_without_tools_is_no_turn() {
    run(async {
        let limits = Limits { max_turns: Some(2), ..Limits::default() };
        let manner: Choose = Arc::new(|number| match number {
            0 | 2 => Manner::Unauthorized,
            _ => Manner::Answer,
        });
        let (guard, _) = guard(limited(limits), manner).await;
        for status in [401, 200, 401, 200] {
            assert_eq!(call(guard.address, &title("n")).await.0, status);
        }
        let (_, body) = call(guard.address, &title("n")).await;
        assert!(body.expect("a body").contains("2 of 2 turns"));
    });
}

/// The same request is refused again. Of many texts, some may be.
#[test]
fn refusals_of_a_program_without_tools_are_counted_for_the_same_request() {
    run(async {
        let (guard, _) = guard(limited(Limits::none()), always(Manner::Filtered)).await;
        for number in 0..4 {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("text {number}")}]});
            let request = post("/run/f/v1/chat/completions", body.to_string().as_bytes());
            assert_eq!(call(guard.address, &request).await.0, 200, "{number}");
        }
        assert!(guard.run("f").expect("a run").outcome().is_none());
        for status in [200, 200, 400] {
            assert_eq!(call(guard.address, &title("f")).await.0, status);
        }
        let outcome = guard.run("f").expect("a run").outcome().expect("an end");
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorContentFiltered, 6));
        assert!(outcome.decided_by.evidence.starts_with("2 responses in a row were refused"));
    });
}

/// A client may have a list of models, each with a key of its own.
#[test]
fn refused_calls_of_other_models_are_no_repetition() {
    run(async {
        let manner: Choose = Arc::new(|number| match number {
            0..3 => Manner::Unauthorized,
            _ => Manner::Answer,
        });
        let (guard, _) = guard(limited(Limits::none()), manner).await;
        for (model, status) in [("a", 401), ("b", 401), ("c", 401), ("d", 200)] {
            let body =
                json!({"model": model, "messages": [{"role": "user", "content": "run m; go"}]});
            let request = post("/run/m/v1/chat/completions", body.to_string().as_bytes());
            assert_eq!(call(guard.address, &request).await.0, status, "{model}");
        }
        assert!(guard.run("m").expect("a run").outcome().is_none());
    });
}

#[test]
fn blank_answers_beyond_their_limit_end_the_run() {
    run(async {
        let limits = Limits { max_empty_turns: Some(1), ..Limits::none() };
        let (guard, bills) = guard(limited(limits), always(Manner::Blank)).await;
        let talk = Talk::new("b", "t", Speaks::Chat);
        for _ in 0..2 {
            assert_eq!(call(guard.address, &talk.request()).await.0, 200);
        }
        let (_, body) = call(guard.address, &talk.request()).await;
        assert!(body.expect("a body").contains("2 blank answers in a row"));
        assert_eq!(bills.of("b").calls, 2);
    });
}

#[test]
fn refused_calls_in_a_row_end_the_run_as_that_error() {
    run(async {
        let limits = Limits { max_turns: Some(3), ..Limits::default() };
        // A success in between begins the count again.
        let manner: Choose = Arc::new(|number| match number {
            1 => Manner::Tool,
            _ => Manner::Unauthorized,
        });
        let (guard, _) = guard(limited(limits), manner).await;
        let mut talk = Talk::new("a", "t", Speaks::Chat);
        for number in 0..4 {
            let (status, body) = call(guard.address, &talk.request()).await;
            assert_eq!(status, if number == 1 { 200 } else { 401 }, "{number}: {body:?}");
            if number == 1 {
                talk.answered(&body.expect("a body"));
            }
        }
        let outcome = guard.run("a").expect("a run").outcome().expect("an end");
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorProviderAuth, 1));
        assert!(outcome.decided_by.evidence.contains("401"), "{:?}", outcome.decided_by);
        assert_eq!(call(guard.address, &talk.request()).await.0, 200, "the reason, in words");
    });
}

#[test]
fn reasoning_that_stops_coming_ends_the_run() {
    run(async {
        // No other limit, and nothing after the reasoning that would tell the run.
        let limits =
            Limits { thinking_timeout: Some(Duration::from_millis(300)), ..Limits::none() };
        let (guard, bills) = guard(limited(limits), always(Manner::Think)).await;
        let talk = Talk { streamed: true, ..Talk::new("a", "t", Speaks::Chat) };
        let (_, body) = call(guard.address, &talk.request()).await;
        let outcome = guard.run("a").expect("a run").outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorThinkingStarved, "{body:?}");
        assert_eq!(bills.of("a").calls, 1);
        let (status, body) = call(guard.address, &talk.request()).await;
        assert!(status == 200 && body.expect("a body").contains("error_thinking_starved"));
    });
}

#[test]
fn failed_calls_of_a_program_without_tools_are_counted_together() {
    run(async {
        // Without any limit. A success in between begins the count again.
        let manner: Choose = Arc::new(|number| match number {
            1 => Manner::Answer,
            _ => Manner::Unauthorized,
        });
        let (guard, _) = guard(limited(Limits::none()), manner).await;
        for status in [401, 200, 401, 401] {
            assert_eq!(call(guard.address, &title("f")).await.0, status);
        }
        let outcome = guard.run("f").expect("a run").outcome().expect("an end");
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorProviderAuth, 1));
        assert!(outcome.decided_by.evidence.starts_with("2 calls in a row failed"));
        assert_eq!(call(guard.address, &title("f")).await.0, 400);
        // The titles of a known agent are no work that its run is about.
        let known = String::from_utf8(title("k")).expect("text");
        let known = known.replacen("\r\n", "\r\nX-Claude-Code-Session-Id: s-1\r\n", 1);
        for _ in 0..5 {
            assert_eq!(call(guard.address, known.as_bytes()).await.0, 401);
        }
        assert!(guard.run("k").expect("a run").outcome().is_none());
    });
}

/// Turns in flight count, so that calls at the same time cannot pass the limit together.
#[test]
fn turns_in_flight_count_until_they_are_refused() {
    run(async {
        let limits = Limits { max_turns: Some(2), ..Limits::default() };
        let manner: Choose = Arc::new(|number| match number {
            0..2 => Manner::Stall,
            _ => Manner::Tool,
        });
        let (guard, bills) = guard(limited(limits), manner).await;
        let mut open = Vec::new();
        for number in 0..2 {
            let mut conn = Conn::to(guard.address).await;
            let talk = Talk::new("a", &format!("other {number}"), Speaks::Chat);
            conn.send(talk.request()).await;
            // The head of the response is there, so that the call was admitted.
            conn.head().await;
            open.push(conn);
        }
        // It waits, because its refusal would end the run, and the other two with it.
        let mut third = Conn::to(guard.address).await;
        third.send(Talk::new("a", "t", Speaks::Chat).request()).await;
        let run = guard.run("a").expect("a run");
        let waits = tokio::time::timeout(Duration::from_millis(300), third.head()).await;
        assert!(waits.is_err() && run.outcome().is_none(), "the third call does not wait");
        drop(open);
        let (_, body) = third.message().await;
        let body = String::from_utf8(body.expect("a body")).expect("text");
        assert!(body.contains("2 of 2 turns"), "{body}");
        assert_eq!(bills.of("a").calls, 2);
        let outcome = guard.run("a").expect("a run").outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    });
}

#[test]
fn calls_of_a_program_without_tools_are_turns() {
    run(async {
        let limits = Limits { max_turns: Some(3), ..Limits::default() };
        let (guard, bills) = guard(limited(limits), always(Manner::Answer)).await;
        for _ in 0..3 {
            assert_eq!(call(guard.address, &title("n")).await.0, 200);
        }
        let (status, body) = call(guard.address, &title("n")).await;
        assert!(status == 400 && body.expect("a body").contains("3 of 3 turns"));
        assert_eq!(bills.of("n").calls, 3);
        let outcome = guard.run("n").expect("a run").outcome().expect("an end");
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 3));
        // A known agent offers tools, so that these are titles, however many there are.
        let known = String::from_utf8(title("k")).expect("text");
        let known = known.replacen("\r\n", "\r\nUser-Agent: claude-cli/2.1\r\n", 1);
        for _ in 0..5 {
            assert_eq!(call(guard.address, known.as_bytes()).await.0, 200);
        }
        let run = guard.run("k").expect("a run");
        assert!(run.outcome().is_none() && run.spent().turns == 0 && run.counts().auxiliary == 5);
    });
}

#[test]
fn compaction_costs_and_is_no_turn() {
    run(async {
        let limits = Limits { max_turns: Some(1), max_budget_usd: Some(9.0), ..Limits::default() };
        let (guard, bills) = guard(limited(limits), always(Manner::Answer)).await;
        for _ in 0..2 {
            assert_eq!(call(guard.address, &plain("c", "responses/compact")).await.0, 200);
        }
        let run = guard.run("c").expect("a run");
        run.idle().await;
        let spent = run.spent();
        assert!((spent.cost.to_usd() - bills.of("c").usd).abs() < 1e-9, "{spent:?}");
        assert!(spent.cost > NanoUsd::ZERO && spent.turns == 0 && run.outcome().is_none());
    });
}

#[test]
fn other_requests_are_counted_and_refused_after_the_end() {
    run(async {
        let limits = Limits { max_turns: Some(1), ..Limits::default() };
        let settings = Settings { other: Some(OtherCalls::Pass), ..limited(limits) };
        let (guard, bills) = guard(settings, always(Manner::Answer)).await;
        assert_eq!(call(guard.address, &title("o")).await.0, 200);
        let run = guard.run("o").expect("a run");
        for path in ["embeddings", "messages/batches", "audio/speech"] {
            assert_eq!(call(guard.address, &plain("o", path)).await.0, 200, "{path}");
        }
        assert_eq!(
            (run.counts().others, run.counts().auxiliary),
            (1, 3),
            "a title, two with usage"
        );
        assert_eq!(run.spent().turns, 1, "only the model call is a turn");
        assert_eq!(call(guard.address, &title("o")).await.0, 400, "the end");
        let refusals = run.counts().refusals;
        for path in ["embeddings", "messages/batches", "audio/speech"] {
            let (status, body) = call(guard.address, &plain("o", path)).await;
            assert!(status == 400 && body.expect("a body").contains("1 of 1 turns"), "{path}");
        }
        assert_eq!((run.counts().others, run.counts().refusals), (1, refusals));
        assert_eq!(bills.of("o").calls, 4);
    });
}

#[test]
fn strict_ceiling_refuses_media() {
    run(async {
        let settings = Settings {
            cap_output: true,
            ..limited(Limits { max_budget_usd: Some(5.0), ..Limits::default() })
        };
        let (guard, bills) = guard(settings, always(Manner::Answer)).await;
        let image = "{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://x/y.png\"}}";
        let body = format!(
            "{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":[{image}]}}]}}"
        );
        let request = post("/run/i/v1/chat/completions", body.as_bytes());
        let (status, body) = call(guard.address, &request).await;
        assert!(status == 400 && body.expect("a body").contains("an image or a file"));
        assert_eq!(bills.of("i").calls, 0);
        assert_eq!(call(guard.address, &title("i")).await.0, 200);
    });
}

/// The outcome of a program without tools has its calls, and what it spent above its ceiling.
#[test]
fn outcome_of_a_program_without_tools_is_complete() {
    run(async {
        let limits = Limits { max_budget_usd: Some(0.0005), ..Limits::default() };
        let (guard, bills) = guard(limited(limits), always(Manner::Answer)).await;
        for _ in 0..5 {
            call(guard.address, &title("n")).await.1.expect("an answer");
        }
        let outcome = guard.run("n").expect("a run").outcome().expect("an end");
        let bill = bills.of("n");
        assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
        assert!(bill.calls > 0 && bill.usd > 0.0005, "{bill:?}");
        assert_eq!(u64::from(outcome.model_calls), bill.calls);
        assert!(
            (outcome.overrun.to_usd() - (bill.usd - 0.0005)).abs() < 1e-9,
            "{outcome:?} {bill:?}"
        );
        // Below a ceiling there is no overrun.
        let limits = Limits { max_budget_usd: Some(5.0), ..Limits::default() };
        let (guard, _) = self::guard(limited(limits), always(Manner::Answer)).await;
        assert_eq!(call(guard.address, &title("n")).await.0, 200);
        let run = guard.run("n").expect("a run");
        run.idle().await;
        let outcome = run.close(true, "");
        assert_eq!((outcome.model_calls, outcome.overrun), (1, NanoUsd::ZERO));
    });
}

#[test]
fn cost_of_images_without_usage_has_no_bound() {
    run(async {
        let limits = Limits { max_turns: Some(9), ..Limits::none() };
        for (path, is_bounded) in [
            ("images/generations", false),
            ("audio/speech", false),
            ("embeddings", true),
            ("rerank", true),
        ] {
            let (guard, _) = guard(limited(limits.clone()), always(Manner::NoUsage)).await;
            assert_eq!(call(guard.address, &plain("i", path)).await.0, 200);
            let run = guard.run("i").expect("a run");
            run.idle().await;
            let outcome = run.close(true, "");
            assert!(outcome.cost_unknown, "{path}");
            assert_eq!(outcome.cost_upper.is_some(), is_bounded, "{path} {outcome:?}");
        }
        let (guard, _) = guard(limited(limits.clone()), always(Manner::Answer)).await;
        assert_eq!(call(guard.address, &plain("i", "images/generations")).await.0, 200);
        let run = guard.run("i").expect("a run");
        run.idle().await;
        assert!(!run.close(true, "").cost_unknown);
    });
}

/// A program that only makes embeddings and exits with 0 has done its work.
#[test]
fn program_with_embeddings_alone_can_succeed() {
    run(async {
        let dollars = Limits { max_budget_usd: Some(5.0), ..Limits::none() };
        let turns = Limits { max_turns: Some(5), ..Limits::none() };
        let end =
            |ok: bool, needs_calls: bool| ProgramEnd { needs_calls, ..ProgramEnd::new(ok, "") };
        let rate = Limits { max_rate: "1 tokens/m".parse().ok(), ..Limits::none() };
        let failed = Termination::ErrorDuringExecution;
        let (ok, refused, lost) = (Manner::Answer, Manner::Unauthorized, Manner::Silent);
        for (limits, path, manner, end, expected) in [
            (turns.clone(), "images/generations", ok, end(true, false), Termination::Stop),
            (dollars.clone(), "embeddings", ok, end(true, true), Termination::Stop),
            (turns.clone(), "embeddings", ok, end(true, false), Termination::Stop),
            // A limit on turns holds for model calls, which may have gone elsewhere.
            (turns, "embeddings", ok, end(true, true), Termination::ErrorNoProgress),
            (rate, "embeddings", ok, end(true, true), Termination::Stop),
            (dollars.clone(), "embeddings", ok, end(false, true), failed),
            (dollars.clone(), "embeddings", refused, end(true, true), failed),
            (dollars, "embeddings", lost, end(true, true), failed),
        ] {
            let (guard, _) = guard(limited(limits), always(manner)).await;
            // A lost one has no status.
            let _ = exchange(guard.address, &plain("e", path)).await;
            let run = guard.run("e").expect("a run");
            run.idle().await;
            let outcome = run.program_ended(&end);
            assert_eq!(outcome.termination, expected, "{path} {manner:?} {end:?}");
        }
    });
}

/// mini-SWE-agent ends its work with a command, whose result it does not send.
#[test]
fn open_call_with_the_word_of_its_program_is_a_submission() {
    run(async {
        let submitted = Termination::Submitted;
        let failed = Termination::ErrorDuringExecution;
        for (word, ok, expected) in [
            (Some("\"n\":"), true, submitted),
            (Some("\"n\":"), false, failed),
            (Some("SUBMIT"), true, failed),
            (None, true, failed),
        ] {
            let settings = Settings { submits_with: word, ..limited(Limits::default()) };
            let (guard, _) = guard(settings, always(Manner::Tool)).await;
            let mut talk = Talk::new("m", "t", Speaks::Chat);
            for _ in 0..2 {
                let (status, body) = call(guard.address, &talk.request()).await;
                assert_eq!(status, 200);
                talk.answered(&body.expect("a body"));
            }
            let run = guard.run("m").expect("a run");
            run.idle().await;
            let outcome = run.program_ended(&ProgramEnd::new(ok, ""));
            assert_eq!(outcome.termination, expected, "{word:?} {ok} {outcome:?}");
            assert_eq!(outcome.deliverable.is_some(), expected == submitted, "{outcome:?}");
        }
    });
}

/// A refused turn is the end of the program's work, whatever its exit status is; a refused title is not.
#[test]
fn refused_last_turn_is_the_ending() {
    run(async {
        let limits = Limits { max_budget_usd: Some(5.0), ..Limits::default() };
        let settings = Settings { cap_output: true, ..limited(limits) };
        let ask = |has_tools: bool, has_image: bool| {
            let content = if has_image {
                json!([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}])
            } else {
                json!("run r; go")
            };
            let tools = if has_tools {
                json!([{"type": "function", "function": {"name": "f"}}])
            } else {
                json!(null)
            };
            json!({"model": "m", "tools": tools, "messages": [{"role": "user", "content": content}]})
        };
        const TURN: (bool, bool) = (true, false);
        const TITLE: (bool, bool) = (false, false);
        const REFUSED_TURN: (bool, bool) = (true, true);
        const REFUSED_TITLE: (bool, bool) = (false, true);
        let (stop, refused) = (Termination::Stop, Termination::ErrorProviderRejected);
        let failed = Termination::ErrorDuringExecution;
        for (calls, ok, expected) in [
            (&[TURN, REFUSED_TURN][..], true, refused),
            (&[TURN, REFUSED_TURN], false, refused),
            (&[TURN, REFUSED_TITLE], true, stop),
            (&[TURN, REFUSED_TITLE], false, refused),
            (&[TURN, REFUSED_TURN, REFUSED_TITLE], true, refused),
            (&[TURN, REFUSED_TURN, TITLE], true, refused),
            (&[TURN, REFUSED_TURN, TURN], true, stop),
            (&[TURN, REFUSED_TURN, TURN], false, failed),
            (&[REFUSED_TURN], true, refused),
            // Each call of a program without tools is a turn.
            (&[TITLE, REFUSED_TITLE], true, refused),
            (&[REFUSED_TITLE], true, refused),
            (&[REFUSED_TITLE, TITLE], true, stop),
            // A call without tools is not a turn of a program that has offered some, also if that call did not pass.
            (&[REFUSED_TURN, TITLE], true, refused),
            (&[REFUSED_TURN, TITLE, TURN], true, stop),
        ] {
            let (guard, _) = guard(settings.clone(), always(Manner::Answer)).await;
            for (has_tools, has_image) in calls {
                let body = ask(*has_tools, *has_image).to_string();
                let request = post("/run/r/v1/chat/completions", body.as_bytes());
                let expected = if *has_image { 400 } else { 200 };
                assert_eq!(call(guard.address, &request).await.0, expected, "{calls:?}");
            }
            let run = guard.run("r").expect("a run");
            run.idle().await;
            assert_eq!(run.close(ok, "").termination, expected, "{calls:?} {ok}");
        }
    });
}

#[test]
fn deadline_holds_before_the_first_call() {
    run(async {
        let limits = Limits { timeout: Some(Duration::from_millis(20)), ..Limits::default() };
        let settings = limited(limits);
        let map = UpstreamMap::new(Upstream::parse("http://127.0.0.1:1").expect("a URL"));
        let gate = Gate::new(settings, map, [7; 16], Arc::new(|_| {}));
        let (gate, run) = gate.only(RunName::new("early").expect("a name"));
        let outcome = run.ended().await;
        assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorTimeout, 0));
        drop(gate);
    });
}

/// A request to the run `quiet`, as its gate sees it.
fn asked(method: http::Method, path: &str, body: &'static str) -> (Arc<RequestHead>, RequestBody) {
    let head = RequestHead {
        method,
        target: format!("/run/quiet{path}").parse().expect("a target"),
        base: None,
        version: http::Version::HTTP_11,
        headers: http::HeaderMap::new(),
        peer: ([127, 0, 0, 1], 9).into(),
    };
    let body = bytes::Bytes::from_static(body.as_bytes());
    (Arc::new(head), RequestBody::Whole { raw: body.clone(), decoded: body })
}

#[test]
fn only_model_calls_end_the_quiet() {
    const SOON: Duration = Duration::from_millis(5);
    const CALL: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}"#;
    let map = || UpstreamMap::new(Upstream::parse("http://127.0.0.1:1").expect("a URL"));
    let (get, head, post) = (http::Method::GET, http::Method::HEAD, http::Method::POST);
    let free = Settings { price: None, ..limited(Limits::default()) };
    let ceiling = Limits { max_budget_usd: Some(1.0), ..Limits::none() };
    let unpriced = Settings { price: None, ..limited(ceiling.clone()) };
    for (method, path, body, settings, is_call) in [
        (head.clone(), "", "", free.clone(), false),
        (get.clone(), "/v1/models", "", free.clone(), false),
        (get, "/v1/messages", "", free.clone(), false),
        (post.clone(), "/v1/messages/count_tokens", CALL, free.clone(), false),
        (post.clone(), "/api/telemetry", "{}", free.clone(), false),
        (post.clone(), "/v1/messages/../x", CALL, free.clone(), false),
        (post.clone(), "/v1/messages", CALL, free.clone(), true),
        (post.clone(), "/v1/chat/completions", CALL, limited(ceiling.clone()), true),
        (post.clone(), "/v1/embeddings", CALL, free.clone(), false),
        // Calls that guard refuses or cannot read are calls.
        (post.clone(), "/v1/chat/completions", CALL, unpriced, true),
        (post.clone(), "/v1/responses", "not JSON", free, true),
        (post, "/v1/responses", "not JSON", limited(ceiling), true),
    ] {
        run(async {
            let gate = Gate::new(settings, map(), [7; 16], Arc::new(|_| {}));
            let (gate, run) = gate.only(RunName::new("quiet").expect("a name"));
            assert!(warn_without_calls(&run, SOON).await.is_some(), "before {path}");
            let (head, body) = asked(method, path, body);
            let line = gate.route(&head).line;
            drop(gate.decide(head, line, body).await);
            let warned = warn_without_calls(&run, SOON).await;
            assert_eq!(warned.is_none(), is_call, "{path}: {:?}", run.counts());
        });
    }
}

#[test]
fn parallel_equal_requests_are_turns() {
    run(async {
        let limits = Limits { max_turns: Some(4), ..Limits::default() };
        let (guard, bills) = guard(limited(limits), always(Manner::Stall)).await;
        let request = Talk::new("p", "t", Speaks::Chat).request();
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut conn = Conn::to(guard.address).await;
            conn.send(&request).await;
            conn.until(b"\r\n\r\n").await.expect("a head");
            clients.push(conn);
        }
        // All clients wait for an answer, so that none is a retry of another, and the fifth waits for them.
        let mut fifth = Conn::to(guard.address).await;
        fifth.send(&request).await;
        let waits = tokio::time::timeout(Duration::from_millis(300), fifth.head()).await;
        assert!(waits.is_err(), "the fifth call does not wait");
        let run = guard.run("p").expect("a run");
        assert!(run.outcome().is_none() && bills.of("p").calls == 4);
        // A program that leaves it has no answer to its last turn.
        assert_eq!(run.close(true, "").termination, Termination::ErrorMaxTurns);
    });
}

#[test]
fn dropped_decision_returns_its_reservation() {
    run(async {
        let day = SharedBudget::new(NanoUsd::from_usd(10.0));
        let settings =
            Settings { budget: Some(day.clone()), cap_output: true, ..limited(Limits::none()) };
        let (guard, bills) = guard(settings, always(Manner::Answer)).await;
        let decision = guard.decide(&Talk::new("d", "t", Speaks::Chat).request()).await;
        assert!(matches!(decision, Disposition::Forward(_)), "{decision:?}");
        assert!(day.reserved() > NanoUsd::ZERO);
        drop(decision);
        assert_eq!((day.reserved(), day.spent()), (NanoUsd::ZERO, NanoUsd::ZERO));
        assert_eq!(guard.run("d").expect("a run").in_flight(), 0);
        assert_eq!(bills.of("d").calls, 0);
    });
}

#[test]
fn stream_cut_at_the_ceiling_is_booked() {
    run(async {
        let day = SharedBudget::new(NanoUsd::from_usd(10.0));
        // The prompt fits; a few words of the answer do not.
        let limits = Limits { max_budget_usd: Some(0.0012), ..Limits::default() };
        let settings = Settings { budget: Some(day.clone()), ..limited(limits) };
        let (guard, _) = guard(settings, always(Manner::Answer)).await;
        let mut talk = Talk::new("c", "t", Speaks::Chat);
        talk.streamed = true;
        let mut cut = false;
        for _ in 0..20 {
            let (_, body) = call(guard.address, &talk.request()).await;
            cut |= body.is_err();
            if guard.run("c").expect("a run").outcome().is_some() {
                break;
            }
            talk.answered(&body.unwrap_or_default());
        }
        let run = guard.run("c").expect("a run");
        let outcome = run.outcome().expect("an end");
        assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd, "cut {cut}");
        assert_eq!(day.reserved(), NanoUsd::ZERO);
        assert_eq!(outcome.cost, run.spent().cost);
        assert!(day.spent() >= outcome.cost);
        // The client got no reason yet, because it had a part of the response.
        let (status, body) = call(guard.address, &talk.request()).await;
        let body = body.expect("a body");
        assert!(status == 200 || !cut, "{status} {body}");
    });
}

#[test]
fn deadline_ends_a_run_without_calls() {
    run(async {
        let limits = Limits { timeout: Some(Duration::from_millis(300)), ..Limits::default() };
        let (guard, _) = guard(limited(limits), always(Manner::Answer)).await;
        assert_eq!(call(guard.address, &title("w")).await.0, 200);
        let run = guard.run("w").expect("a run");
        let outcome = run.ended().await;
        assert_eq!(outcome.termination, Termination::ErrorTimeout);
        assert_eq!(outcome.cost, run.spent().cost);
        let endless = Limits { timeout: Some(Duration::MAX), ..Limits::default() };
        let (endless, _) = self::guard(limited(endless), always(Manner::Answer)).await;
        assert_eq!(call(endless.address, &title("e")).await.0, 200);
        assert!(endless.run("e").expect("a run").outcome().is_none());
    });
}

#[test]
fn deadline_that_is_set_later_ends_a_run() {
    run(async {
        // Without a deadline the clock has nothing to wait for, and with a later one it waits for that.
        for first in [None, Some(Duration::from_secs(600))] {
            let limits = Limits { timeout: first, ..Limits::default() };
            let (guard, _) = guard(limited(limits.clone()), always(Manner::Answer)).await;
            assert_eq!(call(guard.address, &title("n")).await.0, 200);
            let run = guard.run("n").expect("a run");
            assert!(run.set_limits(Limits { timeout: Some(Duration::from_millis(300)), ..limits }));
            assert_eq!(run.ended().await.termination, Termination::ErrorTimeout);
        }
    });
}

#[test]
fn warning_is_a_header_of_the_next_response() {
    run(async {
        let watches = vec![Watch::parse("warn:repeat_call={\"times\":2}").expect("a watch")];
        let settings = Settings { watches, ..Settings::default() };
        let bills = Arc::new(Bills::default());
        let (upstream, stop) = billing(bills, always(Manner::Tool)).await;
        std::mem::forget(stop);
        let guard = Guard::start(settings, upstream).await;
        let mut talk = Talk::new("h", "t", Speaks::Anthropic);
        let mut warned = Vec::new();
        for _ in 0..6 {
            let (head, body) = exchange(guard.address, &talk.request()).await;
            warned.extend(header(&head, "x-endstop-warning"));
            // The same call again and again.
            let answer = body.expect("a body");
            talk.answered(&answer);
        }
        let outcome = guard.run("h").expect("a run").close(true, "");
        // The upstream's calls differ by their arguments, so nothing repeats.
        assert_eq!((warned.len(), outcome.fired.len()), (0, 0));
        let same = crate::proxy::support::upstream(|mut conn: Conn| async move {
            let mut number = 0;
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let length = header(&head, "content-length").expect("a length");
                conn.exact(length.parse().expect("a length")).await.expect("a body");
                number += 1;
                let body = format!(
                    "{{\"id\":\"m{number}\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"call_{number}x\",\"name\":\"bash\",\"input\":{{\"c\":\"ls\"}}}}],\"stop_reason\":\"tool_use\",\"usage\":{{\"input_tokens\":1,\"output_tokens\":1}}}}"
                );
                conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
            }
        })
        .await;
        let watches = vec![Watch::parse("warn:repeat_call={\"times\":2}").expect("a watch")];
        let guard = Guard::start(Settings { watches, ..Settings::default() }, same).await;
        let mut talk = Talk::new("h", "t", Speaks::Anthropic);
        let mut conn = Conn::to(guard.address).await;
        let mut warned = Vec::new();
        for _ in 0..5 {
            conn.send(talk.request()).await;
            let (head, body) = conn.message().await;
            warned.extend(header(&head, "x-endstop-warning"));
            let body = String::from_utf8(body.expect("a body")).expect("text");
            // Each result is the same; only the ids differ.
            talk.answered(&body);
            if let Some(last) = talk.steps.last_mut() {
                last["content"][0]["content"] = "same".into();
            }
        }
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].starts_with("repeat_call(2) in turn"), "{warned:?}");
        let outcome = guard.run("h").expect("a run").close(true, "");
        assert_eq!(outcome.fired.len(), 1);
    });
}

#[test]
fn cap_of_several_choices_is_shared() {
    run(async {
        let limits = Limits { max_budget_usd: Some(0.05), ..Limits::default() };
        let settings = Settings { cap_output: true, ..limited(limits) };
        let (guard, bills) = guard(settings, always(Manner::Answer)).await;
        let mut talk = Talk::new("n", "t", Speaks::Chat);
        (talk.choices, talk.cap) = (4, Some(1000));
        assert_eq!(call(guard.address, &talk.request()).await.0, 200);
        let sent = bills.bodies.lock().expect("a lock").pop().expect("a request");
        let cap = sent.split("\"max_tokens\":").nth(1).expect("a cap");
        let cap: u64 = cap.split([',', '}']).next().expect("a cap").parse().expect("a number");
        assert!(cap * 4 <= 1250, "4 choices of {cap} tokens cost more than is left");
        assert!(bills.of("n").usd <= 0.05);
    });
}

#[test]
fn hosted_tools_are_refused_under_a_strict_ceiling() {
    run(async {
        let limits = Limits { max_budget_usd: Some(5.0), ..Limits::default() };
        let body = r#"{"model":"m","max_tokens":50,"tools":[{"type":"web_search_20250305","name":"s"}],
            "messages":[{"role":"user","content":"run w; search"}]}"#;
        let request = post("/run/w/v1/messages", body.as_bytes());
        let strict = Settings { cap_output: true, ..limited(limits.clone()) };
        let (guard, bills) = self::guard(strict, always(Manner::Answer)).await;
        let (status, answer) = call(guard.address, &request).await;
        let answer = answer.expect("a body");
        assert!(status == 400 && answer.contains("`web_search_20250305`"), "{answer}");
        assert!(answer.contains("--cap-output cannot keep the ceiling"), "{answer}");
        assert_eq!(bills.of("w").calls, 0);
        // Without the promise of a strict ceiling it passes.
        let (guard, bills) = self::guard(limited(limits), always(Manner::Answer)).await;
        assert_eq!(call(guard.address, &request).await.0, 200);
        assert_eq!(bills.of("w").calls, 1);
    });
}

#[test]
fn cohere_is_guarded_by_its_route() {
    run(async {
        let limits = Limits { max_turns: Some(2), ..Limits::default() };
        for streamed in [false, true] {
            let (guard, bills) = self::guard(limited(limits.clone()), always(Manner::Tool)).await;
            let mut talk = Talk::new("co", "t", Speaks::Cohere);
            talk.streamed = streamed;
            for _ in 0..2 {
                let (status, body) = call(guard.address, &talk.request()).await;
                let body = body.expect("a body");
                assert!(status == 200 && body.contains("call_"), "{body}");
                talk.answered(&body);
            }
            let (status, body) = call(guard.address, &talk.request()).await;
            let body = body.expect("a body");
            assert!(status == 200 && body.contains("2 of 2 turns"), "{body}");
            assert_eq!(body.contains("event: message-end"), streamed, "{body}");
            let run = guard.run("co").expect("a run");
            assert!((run.spent().cost.to_usd() - bills.of("co").usd).abs() < 1e-9);
            let outcome = run.outcome().expect("an end");
            assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 2));
            assert_eq!((outcome.tool_calls, bills.of("co").calls), (2, 2));
        }
    });
}

#[test]
fn call_without_a_connection_costs_nothing() {
    run(async {
        // The port was free a moment ago, and nothing listens there.
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let upstream = closed.local_addr().expect("an address");
        drop(closed);
        let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
        let guard = Guard::start(limited(limits), upstream).await;
        let talk = Talk::new("x", "t", Speaks::Chat);
        let (status, body) = call(guard.address, &talk.request()).await;
        assert!(status == 502 && body.expect("a body").contains("no connection"), "{status}");
        let outcome = guard.run("x").expect("a run").close(false, "");
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        assert_eq!((outcome.cost, outcome.cost_unknown), (NanoUsd::ZERO, false), "{outcome:?}");
    });
}

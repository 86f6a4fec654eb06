//! C39 to C44: runaway work, and budgets that leak.

use crate::model::{Model, over, price};
use crate::run::{APIS, Counter, On, eventually, results};
use crate::table::{Row, row};
use endstop::agent::AgentTool;
use endstop::budget::SharedBudget;
use endstop::compaction::{Compaction, CompactionConfig, CompactionRequest};
use endstop::event::AgentEventKind;
use endstop::hook::{CompactionFuture, Compactor};
use endstop::testkit::{Reply, Request, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Limits, NanoUsd, Termination as T};
use endstop_restate::Stop;
use serde_json::{Value, json};
use std::time::Duration;

pub fn rows() -> Vec<Row> {
    vec![
        row(39, "detects repetition by default, also in inner runs", |on| Box::pin(c39(on))),
        row(40, "detects cycles, whatever the order of keys and calls, and despite text", |on| {
            Box::pin(c40(on))
        }),
        row(41, "lets polls progress and waits wait", |on| Box::pin(c41(on))),
        row(42, "compacts a bounded number of times, and only if it helps", |on| Box::pin(c42(on))),
        row(43, "bounds repairs in each run, and keeps the last candidate as text", |on| {
            Box::pin(c43(on))
        }),
        row(
            44,
            "reserves before a call; charges cut calls; refuses a ceiling without price",
            |on| Box::pin(c44(on)),
        ),
    ]
}

async fn c39(on: On) {
    for api in APIS {
        let poll = || Model::script(&on, api, [Turn::call("act", &json!({"b": 1, "a": 2}))]);
        let (model, tools) = (poll(), on.clone());
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert_eq!(outcome.termination, T::ErrorNoProgress, "{api}: {outcome:?}");
        assert!(outcome.turns <= 5, "{api}: {}", outcome.turns);

        let (inner, tools) = (poll(), on.clone());
        let url = inner.url();
        let turns = [Turn::call("ask", &json!({"task": "it"})), Turn::text("It is stuck.")];
        let outer = Model::script(&on, api, turns);
        let case = on.case(&outer, move |agent| {
            let inner = over(&url, api).tool(tools.act("act")).build().unwrap();
            agent.tool(AgentTool::new("ask", "Asks.", inner))
        });
        let outcome = on.run(case).await;
        assert_eq!(outcome.termination, T::Stop, "{api}: {outcome:?}");
        assert!(results(&outcome)[0].content.contains("error_no_progress"), "{outcome:?}");
    }
}

async fn c40(on: On) {
    for api in APIS {
        for length in 2..=4_usize {
            // Each time with another order of keys.
            let model = Model::answering(&on, api, move |number| {
                let at = number % length;
                let arguments = match number % 2 {
                    0 => format!(r#"{{"at": {at}, "deep": {{"x": 1, "y": [1, 2]}}}}"#),
                    _ => format!(r#"{{"deep": {{"y": [1, 2], "x": 1}}, "at": {at}}}"#),
                };
                Turn::text("").and_raw_call("act", arguments)
            });
            let tools = on.clone();
            let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
            assert_eq!(outcome.termination, T::ErrorNoProgress, "{api} {length}: {outcome:?}");
            assert!(outcome.turns as usize <= length + 4, "{api} {length}: {}", outcome.turns);
        }
        // The same calls in one turn, each time in another order, and always the same text.
        let model = Model::answering(&on, api, |number| {
            let (a, b) = (json!({"n": 1}), json!({"n": 2}));
            let (first, second) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
            Turn::text("Again.").and_call("act", first).and_call("act", second)
        });
        let tools = on.clone();
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert_eq!(outcome.termination, T::ErrorNoProgress, "{api}: {outcome:?}");
    }
}

async fn c41(on: On) {
    for api in APIS {
        for exempt in [false, true] {
            let model = Model::answering(&on, api, |number| match number {
                1..=12 => Turn::call("poll", &json!({})),
                _ => Turn::text("built"),
            });
            let (bodies, calls) = (on.bodies.clone(), model.calls.clone());
            let case = on.case(&model, move |agent| {
                let (bodies, calls) = (bodies.clone(), calls.clone());
                let poll = tool_fn("poll", "Polls.", move |_: Value, _| {
                    bodies.add();
                    let step = if exempt { 0 } else { calls.get() };
                    async move { format!("{step} of 12 built") }
                });
                if exempt { agent.tool(poll.exempt_from_no_progress()) } else { agent.tool(poll) }
            });
            let outcome = on.run(case).await;
            assert_eq!((outcome.termination, outcome.turns), (T::Stop, 13), "{api}: {outcome:?}");
        }
    }
}

/// The window of the server's model, in tokens of four bytes.
const WINDOW: u64 = 4_000;

/// Calls `read` without end, and refuses a conversation that is too long.
fn small_window(api: &str, request: &Request, too_long: &Counter) -> Reply {
    let tokens = request.body["messages"].to_string().len() as u64 / 4;
    if tokens > WINDOW {
        too_long.add();
        let message = format!("prompt is too long: {tokens} tokens > {WINDOW} maximum");
        let error = match api {
            "openai-chat" => {
                json!({"error": {"code": "context_length_exceeded", "message": message}})
            }
            _ => {
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
            }
        };
        return Reply::new(400, "application/json", error.to_string());
    }
    let turn = Turn::text(format!("I read page {}.", request.number))
        .and_call("read", &json!({"page": request.number}));
    Reply::turn(request, &turn.usage(tokens, 20))
}

/// Claims to have shortened the conversation, but has not.
struct Lies(Counter);

impl Compactor for Lies {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        self.0.add();
        Box::pin(async { Compaction::done("lies", request.messages) })
    }
}

async fn c42(on: On) {
    for api in APIS {
        for lies in [false, true] {
            let (too_long, asked) = (Counter::default(), Counter::default());
            let seen = too_long.clone();
            let model = Model::replying(&on, api, move |request| small_window(api, request, &seen));
            let (bodies, count) = (on.bodies.clone(), asked.clone());
            let case = on.case(&model, move |agent| {
                let bodies = bodies.clone();
                let read = tool_fn("read", "Reads a page.", move |arguments: Value, _| {
                    bodies.add();
                    async move {
                        let page = &arguments["page"];
                        ToolOutput::ok(format!("page {page}: {}", "word ".repeat(300)))
                    }
                });
                let agent = agent.tool(read).context_window(WINDOW);
                if lies {
                    agent.compactor(Lies(count.clone()))
                } else {
                    agent.compaction(&CompactionConfig::default())
                }
            });
            let limits = Limits { max_turns: Some(24), ..Limits::default() };
            let outcome = on.run(case.limits(limits)).await;
            if lies {
                assert_eq!(outcome.termination, T::ErrorPromptTooLong, "{api}: {outcome:?}");
                // Three before a call, and one after the refusal.
                assert_eq!((asked.get(), too_long.get()), (4, 1), "{api}");
                let evidence = &outcome.decided_by.evidence;
                assert!(evidence.contains("4 compactions were tried"), "{evidence}");
            } else {
                assert_eq!(outcome.termination, T::ErrorMaxTurns, "{api}: {outcome:?}");
                assert_eq!(too_long.get(), 0, "{api}: the prompt always fits");
                let tried = outcome.compactions.len();
                assert!((1..16).contains(&tried), "{api}: {tried}");
                for one in &outcome.compactions {
                    let after = one.after.unwrap_or_else(|| panic!("{api}: {one:?}")).bytes;
                    assert!(after * 10 <= one.before.bytes * 9, "{one:?}");
                }
            }
        }
    }
}

async fn c43(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text(r#"{"n": "one"}"#)]);
        for run in 1..=2 {
            let case = on.case(&model, |agent| {
                agent.output_schema(json!({
                    "type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}
                }))
            });
            let outcome = on.run(case).await;
            assert_eq!(outcome.termination, T::ErrorMaxStructuredOutputRetries, "{api} {run}");
            assert_eq!(outcome.turns, 3, "{api} {run}: a turn and two repairs");
            assert!(outcome.structured.is_none(), "what does not fit is not an answer");
            assert_eq!(outcome.last_text.as_deref(), Some(r#"{"n": "one"}"#));
            assert!(outcome.error_diagnostic.is_some());
        }
    }
}

async fn c44(on: On) {
    for api in APIS {
        shared_check(&on, api).await;
        cut_call_is_charged(&on, api).await;
        let model = Model::script(&on, api, [Turn::text("free")]);
        let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
        // Refused when the agent is built: before the run, or as its ending.
        match on.try_start(on.case(&model, |agent| agent).limits(limits)).await {
            Err(refused) => {
                assert!(refused.contains("price"), "{api}: {refused}");
                on.note("error_during_execution");
            }
            Ok(mut run) => {
                let outcome = run.end().await;
                assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
                assert!(outcome.decided_by.evidence.contains("price"), "{api}: {outcome:?}");
            }
        }
        assert_eq!(model.calls.get(), 0, "{api}");
    }
}

/// Eight runs at once under a ceiling that has room for two calls.
async fn shared_check(on: &On, api: &'static str) {
    let ceiling = NanoUsd::from_usd(0.007);
    let budget = SharedBudget::new(ceiling);
    let slow = Turn::text("so").usage(20, 250).after(Duration::from_millis(300));
    let model = Model::script(on, api, [slow]);
    let mut runs = Vec::new();
    for _ in 0..8 {
        let shared = budget.clone();
        let case = on.case(&model, move |agent| {
            agent.price(price()).shared_budget(shared.clone()).max_output_tokens(300)
        });
        runs.push(on.start(case).await);
    }
    let mut answered = 0;
    for mut run in runs {
        let outcome = run.end().await;
        answered += usize::from(outcome.is_success());
        if !outcome.is_success() {
            assert_eq!(outcome.termination, T::ErrorMaxBudgetUsd, "{api}: {outcome:?}");
            assert_eq!(outcome.model_calls, 0, "{api}: it ends before the call");
        }
    }
    assert_eq!((answered, model.calls.get()), (2, 2), "{api}");
    assert!(budget.spent() <= ceiling, "{api}");
    assert_eq!(budget.reserved(), NanoUsd::ZERO, "{api}");
}

/// A cancelled stream, whose usage only its last chunk would have reported.
async fn cut_call_is_charged(on: &On, api: &'static str) {
    let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
    let words = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2));
    let model = Model::script(on, api, [words]);
    let (seen, shared) = (Counter::default(), budget.clone());
    let count = seen.clone();
    let case = on.case(&model, move |agent| {
        let count = count.clone();
        let agent = agent.price(price()).shared_budget(shared.clone()).max_output_tokens(2_000);
        agent.on_event(move |event| {
            if matches!(event.kind, AgentEventKind::TextDelta { .. }) {
                count.add();
            }
        })
    });
    let mut run = on.start(case).await;
    eventually("a hundred words", || seen.get() >= 100).await;
    run.stop(Stop::Cancel).await;
    let outcome = run.end().await;
    assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
    assert!(outcome.usage.estimated, "{api}: {:?}", outcome.usage);
    assert!(outcome.usage.output_tokens >= Some(100), "{api}: {:?}", outcome.usage);
    // The part that was not streamed may have been generated, so the budget counts the reservation.
    let upper = outcome.cost_upper.unwrap();
    assert!(outcome.cost > NanoUsd::ZERO && upper > outcome.cost, "{api}: {outcome:?}");
    assert_eq!((budget.spent(), budget.reserved()), (upper, NanoUsd::ZERO), "{api}");
}

//! C1 to C16: endings that are missing, doubled or mislabelled elsewhere.

use crate::model::{Model, finish, price, silent_after_event};
use crate::run::{APIS, Counter, HANG, LONG, On, eventually, results};
use crate::table::{Row, row};
use endstop::agent::AgentTool;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::testkit::{Reply, Turn};
use endstop::tool::{Shell, ToolOutput, tool_fn};
use endstop::{Category, Limits, NanoUsd, Outcome, Termination as T, ToolStatus};
use endstop_restate::Stop;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub fn rows() -> Vec<Row> {
    vec![
        row(1, "emits one ending for every run, also at a limit, and nothing after it", |on| {
            Box::pin(c1(on))
        }),
        row(2, "the same with nested runs; a stream without its end is a failure", |on| {
            Box::pin(c2(on))
        }),
        row(3, "ends in time although a tool or the model never answers", |on| Box::pin(c3(on))),
        row(4, "never reports a started tool as not started", |on| Box::pin(c4(on))),
        row(5, "ends the outer run once if an inner run exhausts its budget", |on| {
            Box::pin(c5(on))
        }),
        row(6, "has one source of truth: a refused request is never a success", |on| {
            Box::pin(c6(on))
        }),
        row(7, "has the category in the ending, and an unknown ending is a failure", |on| {
            Box::pin(c7(on))
        }),
        row(8, "reports a stop as a stop in every phase", |on| Box::pin(c8(on))),
        row(9, "names the cause, not its consequence", |on| Box::pin(c9(on))),
        row(10, "is not successful after a turn that announces tools and calls none", |on| {
            Box::pin(c10(on))
        }),
        row(11, "has an own exit status for a loop", |on| Box::pin(c11(on))),
        row(12, "has 130 and 143 for stops; a spent budget has a code, usage and cost", |on| {
            Box::pin(c12(on))
        }),
        row(13, "keeps the first ending although a process lingers", |on| Box::pin(c13(on))),
        row(14, "ends after its inner runs", |on| Box::pin(c14(on))),
        row(15, "writes the ending once", |on| Box::pin(c15(on))),
        row(16, "applies an early stop to its own run, and to no other", |on| Box::pin(c16(on))),
    ]
}

async fn c1(on: On) {
    for api in APIS {
        let limited = |turns| Limits { max_turns: Some(turns), ..Limits::default() };
        for turns in [0, 3] {
            let model =
                Model::answering(&on, api, |number| Turn::call("act", &json!({"n": number})));
            let act = on.clone();
            let case = on.case(&model, move |agent| agent.tool(act.act("act")));
            let outcome = on.run(case.limits(limited(turns))).await;
            assert_eq!((outcome.termination, outcome.turns), (T::ErrorMaxTurns, turns), "{api}");
            assert_eq!(model.calls.get(), turns as usize);
        }
        let model = Model::script(&on, api, [Turn::error(401, r#"{"error": {"message": "no"}}"#)]);
        let outcome = on.run(on.case(&model, |agent| agent)).await;
        assert_eq!(outcome.termination, T::ErrorProviderAuth, "{api}: {outcome:?}");
    }
}

async fn c2(on: On) {
    for api in APIS {
        let ask = Turn::call("ask", &json!({"task": "everything"}));
        let outer = Model::script(&on, api, [ask, Turn::text("I could not find out.")]);
        let inner = Model::answering(&on, api, |number| Turn::call("act", &json!({"n": number})));
        let (url, tools) = (inner.url(), on.clone());
        let case = on.case(&outer, move |agent| {
            let limits = Limits { max_turns: Some(1), ..Limits::default() };
            let inner = crate::model::over(&url, api).tool(tools.act("act")).limits(limits);
            agent.tool(AgentTool::new("ask", "Asks.", inner.build().unwrap()))
        });
        let outcome = on.run(case).await;
        assert_eq!(outcome.termination, T::Stop, "{api}: {outcome:?}");
        let result = &results(&outcome)[0];
        assert_eq!(result.status, ToolStatus::Error);
        assert!(result.content.contains("error_max_turns (capacity)"), "{}", result.content);

        let model = Model::replying(&on, api, |request| {
            Reply::turn(request, &Turn::text("half an answer")).cut_after(150)
        });
        let case = on.case(&model, |agent| agent);
        let outcome = on.run(case.limits(no_retry())).await;
        assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
    }
}

fn no_retry() -> Limits {
    Limits { max_retries: Some(0), ..Limits::default() }
}

async fn c3(on: On) {
    for api in APIS {
        let turns = [Turn::call("hang", &json!({})), Turn::text("It did not answer.")];
        let model = Model::script(&on, api, turns);
        let bodies = on.bodies.clone();
        let case = on.case(&model, move |agent| {
            let bodies = bodies.clone();
            agent.tool(tool_fn("hang", "Hangs.", move |_: Value, _| {
                bodies.add();
                async {
                    std::future::pending::<()>().await;
                    "never"
                }
            }))
        });
        let limits = Limits {
            // The clock starts before the engine has stored that the call begins.
            tool_timeout: Some(Duration::from_secs(3)),
            cancel_grace: Duration::from_millis(100),
            ..Limits::default()
        };
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, T::Stop, "{api}: {outcome:?}");
        assert_eq!(results(&outcome)[0].status, ToolStatus::Timeout, "{api}");

        let silent = Model::script(&on, api, [Turn::text("late").after(LONG)]);
        let limits = Limits { first_content_timeout: Some(Duration::from_secs(3)), ..no_retry() };
        let outcome = on.run(on.case(&silent, |agent| agent).limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
        let decided = format!("{} {}", outcome.decided_by.decision, outcome.decided_by.evidence);
        assert!(decided.contains("first_content"), "{api}: {decided}");
    }
}

async fn c4(on: On) {
    for api in APIS {
        let calls = Turn::call("wait", &json!({})).and_call("later", &json!({}));
        let model = Model::script(&on, api, [calls]);
        let before = on.bodies.get();
        let tools = on.clone();
        let case =
            on.case(&model, move |agent| agent.tool(tools.wait("wait")).tool(tools.act("later")));
        let mut run = on.start(case).await;
        eventually("the tool runs", || on.bodies.get() == before + 1).await;
        run.stop(Stop::Cancel).await;
        let outcome = run.end().await;
        assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
        let results = results(&outcome);
        assert!(results[0].started, "{results:?}");
        assert!(results[0].content.contains("may have done part of its work"), "{results:?}");
        assert!(!results[1].started, "{results:?}");
        assert!(results[1].content.starts_with("not run: "), "{results:?}");
    }
}

async fn c5(on: On) {
    for api in APIS {
        let ask = |number: usize| {
            Turn::call("ask", &json!({"task": format!("part {number}")})).usage(100, 250)
        };
        let outer = Model::answering(&on, api, ask);
        let inner = Model::script(&on, api, [Turn::text("so").usage(100, 250)]);
        let url = inner.url();
        let case = on.case(&outer, move |agent| {
            let inner = crate::model::over(&url, api).price(price()).max_output_tokens(300);
            agent
                .tool(AgentTool::new("ask", "Asks.", inner.build().unwrap()))
                .price(price())
                .max_output_tokens(300)
        });
        let limits = Limits {
            max_budget_usd: Some(0.02),
            max_unproductive_turns: None,
            max_turns: None,
            ..Limits::default()
        };
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorMaxBudgetUsd, "{api}: {outcome:?}");
        assert!(outcome.cost <= NanoUsd::from_usd(0.02), "{api}: {}", outcome.cost);
        assert!(outcome.cost >= NanoUsd::from_usd(0.012), "{api}: {}", outcome.cost);
        assert!(inner.calls.get() > 0, "{api}");
    }
}

async fn c6(on: On) {
    for api in APIS {
        for status in [400, 401, 403, 404, 413, 422, 429, 500, 503, 529] {
            let refusal = Turn::error(status, r#"{"error": {"message": "no"}}"#);
            let model = Model::script(&on, api, [refusal]);
            let outcome = on.run(on.case(&model, |agent| agent).limits(no_retry())).await;
            assert!(!outcome.is_success(), "{api} {status}");
            assert_eq!((outcome.turns, outcome.model_calls), (0, 1), "{api} {status}");
        }
    }
}

async fn c7(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text("Paris.")]);
        let mut run = on.start(on.case(&model, |agent| agent)).await;
        let outcome = run.end().await;
        assert_eq!((outcome.termination, outcome.category()), (T::Stop, Category::Success));
        // The stored ending, read by an older version that does not know it.
        let mut stored = serde_json::to_value(run.stored().await).unwrap();
        for unknown in ["success", "completed", "error_from_tomorrow", "", "STOP"] {
            stored["termination"] = json!(unknown);
            let read: Result<Outcome, _> = serde_json::from_value(stored.clone());
            assert!(read.is_err() || !read.unwrap().is_success(), "{unknown}");
            assert_ne!(T::category_str(unknown), Category::Success, "{unknown}");
        }
    }
}

/// A run that reaches a phase and stays there.
struct Phase {
    name: &'static str,
    turn: Turn,
    /// The event after which the server is silent, by a part of it in each format.
    silent_after: Option<[&'static str; 2]>,
    reached: fn(&AgentEvent) -> bool,
    /// Number of tool bodies that run in this phase. The event precedes the body.
    bodies: usize,
    limits: Limits,
}

fn phases() -> Vec<Phase> {
    let phase = |name, turn, silent_after, reached: fn(&AgentEvent) -> bool| Phase {
        name,
        turn,
        silent_after,
        reached,
        bodies: 0,
        limits: Limits::default(),
    };
    vec![
        phase("before the first byte", Turn::text("never").after(LONG), None, |event| {
            matches!(event.kind, AgentEventKind::TurnStarted { .. })
        }),
        phase(
            "thinking",
            Turn::text("never").reasoning("Let me see."),
            Some(["reasoning", "thinking_delta"]),
            |event| matches!(event.kind, AgentEventKind::ReasoningDelta { .. }),
        ),
        phase("text", Turn::text("half an answer"), Some(["half", "half"]), |event| {
            matches!(event.kind, AgentEventKind::TextDelta { .. })
        }),
        phase(
            "tool arguments",
            Turn::call("wait", &json!({})),
            Some(["tool_calls", "tool_use"]),
            |event| matches!(event.kind, AgentEventKind::ToolCallStarted { .. }),
        ),
        Phase {
            bodies: 1,
            ..phase("a tool", Turn::call("wait", &json!({})), None, |event| {
                matches!(event.kind, AgentEventKind::ToolStarted { .. })
            })
        },
        Phase {
            limits: Limits { max_retries: Some(1_000_000), ..Limits::default() },
            ..phase("backoff", Turn::error(429, "slow down"), None, |event| {
                matches!(event.kind, AgentEventKind::AttemptFailed { .. })
            })
        },
    ]
}

async fn c8(on: On) {
    for api in APIS {
        for stop in [Stop::Cancel, Stop::Terminate] {
            for Phase { name, turn, silent_after, reached, bodies, limits } in phases() {
                let model = Model::uncounted(api, move |request| match silent_after {
                    Some(parts) => silent_after_event(request, api, &turn, parts),
                    None => Reply::turn(request, &turn),
                });
                let (seen, tools) = (Counter::default(), on.clone());
                let count = seen.clone();
                let case = on.case(&model, move |agent| {
                    let count = count.clone();
                    agent.tool(tools.wait("wait")).on_event(move |event| {
                        if reached(event) {
                            count.add();
                        }
                    })
                });
                let bodies = on.bodies.get() + bodies;
                let mut run = on.start(case.limits(limits)).await;
                eventually(name, || seen.get() > 0 && on.bodies.get() == bodies).await;
                run.stop(stop).await;
                let outcome = run.end().await;
                let wanted = if stop == Stop::Cancel { T::Cancelled } else { T::Terminated };
                assert_eq!(outcome.termination, wanted, "{api} {name}: {outcome:?}");
                assert_eq!(outcome.category(), Category::Fatal, "{name}: nothing retries it");
            }
        }
    }
}

async fn c9(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::call("act", &json!({}))]);
        let tools = on.clone();
        let case = on.case(&model, move |agent| {
            let schema = json!({"type": "object", "required": ["n"]});
            agent.tool(tools.act("act")).output_schema(schema)
        });
        let limits = Limits { max_turns: Some(1), ..Limits::default() };
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorMaxTurns, "{api}: {outcome:?}");
        assert_eq!(outcome.decided_by.decision.as_str(), "max_turns");
    }
}

async fn c10(on: On) {
    for api in APIS {
        let turn = Turn::text("").finish(finish(api, "tool_calls"));
        let model = Model::script(&on, api, [turn]);
        let tools = on.clone();
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert!(!outcome.is_success(), "{api}: {outcome:?}");
    }
}

async fn c11(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::call("act", &json!({"b": 1, "a": 2}))]);
        let tools = on.clone();
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert_eq!(outcome.termination, T::ErrorNoProgress, "{api}: {outcome:?}");
        assert_eq!((outcome.category(), outcome.exit_status()), (Category::Capacity, 20));
        assert!(outcome.no_progress_snapshot.is_some(), "{api}: {outcome:?}");
    }
}

async fn c12(on: On) {
    for api in APIS {
        for (stop, status) in [(Stop::Cancel, 130), (Stop::Terminate, 143)] {
            let model = Model::script(&on, api, [Turn::text("late").after(LONG)]);
            let mut run = on.start(on.case(&model, |agent| agent)).await;
            eventually("the model is called", || model.calls.get() == 1).await;
            run.stop(stop).await;
            assert_eq!(run.end().await.exit_status(), status, "{api}");
        }
        let busy = |number| Turn::call("act", &json!({"n": number})).usage(50, 50);
        let model = Model::answering(&on, api, busy);
        let tools = on.clone();
        let case = on.case(&model, move |agent| {
            agent.tool(tools.act("act")).price(price()).max_output_tokens(300)
        });
        let limits = Limits { max_budget_usd: Some(0.01), ..Limits::default() };
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorMaxBudgetUsd, "{api}: {outcome:?}");
        assert_eq!(outcome.exit_status(), 20);
        let calls = u64::from(outcome.model_calls);
        let used = (outcome.usage.input_tokens, outcome.usage.output_tokens);
        assert_eq!(used, (Some(50 * calls), Some(50 * calls)), "{api}");
        assert_eq!(outcome.cost, NanoUsd(calls * 550_000), "{api}: to the nano-dollar");
    }
}

async fn c13(on: On) {
    for api in APIS {
        // A tool that ignores its stop and returns a success after the end.
        let model = Model::script(&on, api, [Turn::call("linger", &json!({})), Turn::text("late")]);
        let (bodies, ended, released) = (on.bodies.clone(), Counter::default(), Counter::default());
        let before = bodies.get();
        let (late, release) = (ended.clone(), released.clone());
        let case = on.case(&model, move |agent| {
            let (bodies, late, release) = (bodies.clone(), late.clone(), release.clone());
            agent.tool(tool_fn("linger", "Ignores that it must stop.", move |_: Value, _| {
                bodies.add();
                let (late, release) = (late.clone(), release.clone());
                async move {
                    let lingering = tokio::task::spawn_blocking(move || {
                        let began = Instant::now();
                        while release.get() == 0 && began.elapsed() < HANG {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        late.add();
                    });
                    lingering.await.unwrap();
                    ToolOutput::ok("success")
                }
            }))
        });
        let mut run = on.start(case).await;
        eventually("the tool runs", || on.bodies.get() == before + 1).await;
        run.stop(Stop::Terminate).await;
        let outcome = run.end().await;
        assert_eq!(outcome.termination, T::Terminated, "{api}: {outcome:?}");
        released.add();
        eventually("what lingered has ended", || ended.get() == 1).await;
        run.stop(Stop::Cancel).await;
        assert_eq!(run.stored().await.termination, T::Terminated, "{api}");
    }
    #[cfg(target_os = "linux")]
    {
        // A child of the command holds its pipe.
        let mark = crate::processes::marker();
        let line = json!({"command": format!("sleep {mark} & echo done")});
        let model =
            Model::script(&on, "openai-chat", [Turn::call("shell", &line), Turn::text("It did.")]);
        let began = Instant::now();
        let outcome = on.run(on.case(&model, |agent| agent.tool(Shell::default()))).await;
        assert_eq!(outcome.termination, T::Stop, "{outcome:?}");
        assert!(began.elapsed() < HANG, "the pipe was waited for");
        crate::stops::gone(mark).await;
    }
}

async fn c14(on: On) {
    for api in APIS {
        let outer = Model::script(
            &on,
            api,
            [Turn::call("ask", &json!({"task": "it"})), Turn::text("done")],
        );
        let inner = Model::script(&on, api, [Turn::text("so").after(Duration::from_millis(200))]);
        let (url, ended) = (inner.url(), Counter::default());
        let count = ended.clone();
        let case = on.case(&outer, move |agent| {
            let count = count.clone();
            let inner = crate::model::over(&url, api).on_event(move |event| {
                if matches!(event.kind, AgentEventKind::Finished { .. }) {
                    count.add();
                }
            });
            agent.tool(AgentTool::new("ask", "Asks.", inner.build().unwrap()))
        });
        let outcome = on.run(case).await;
        assert_eq!((outcome.termination, ended.get()), (T::Stop, 1), "{api}: {outcome:?}");
    }
}

async fn c15(on: On) {
    for api in APIS {
        // The answer would come after the cancel, however slow the machine is.
        let late = Turn::text("a late success").after(Duration::from_secs(10));
        let model = Model::script(&on, api, [late]);
        let mut run = on.start(on.case(&model, |agent| agent)).await;
        eventually("the model is called", || model.calls.get() == 1).await;
        run.stop(Stop::Cancel).await;
        assert_eq!(run.end().await.termination, T::Cancelled, "{api}");
        let closed = model.server.until(|server| server.open_connections() == 0).await;
        assert!(closed, "{api}: the connection stays open");
        run.stop(Stop::Terminate).await;
        assert_eq!(run.stored().await.termination, T::Cancelled, "{api}");
    }
}

async fn c16(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text("never")]);
        let case = on.case(&model, |agent| agent);
        let mut early = on.start(case.stop_first(Stop::Cancel)).await;
        assert_eq!(early.end().await.termination, T::Cancelled, "{api}");
        assert_eq!(model.calls.get(), 0, "{api}: no call is made");
        // The next run is another one, which a late stop of the first does not reach.
        let slow = Turn::text("an answer").after(Duration::from_millis(300));
        let model = Model::script(&on, api, [slow]);
        let mut next = on.start(on.case(&model, |agent| agent)).await;
        eventually("the model is called", || model.calls.get() == 1).await;
        early.stop(Stop::Terminate).await;
        assert_eq!(next.end().await.termination, T::Stop, "{api}");
    }
}

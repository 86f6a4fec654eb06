//! C29 to C33: conversations that providers refuse elsewhere. That they accept these is checked for
//! every run of the suite.

use crate::model::{Model, finish};
use crate::run::{APIS, Counter, On, eventually, results};
use crate::table::{Row, row};
use endstop::event::AgentEventKind;
use endstop::testkit::Turn;
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{Limits, Termination as T};
use endstop_restate::Stop;
use serde_json::{Value, json};
use std::time::Duration;

pub fn rows() -> Vec<Row> {
    vec![
        row(29, "answers each call after a cancel", |on| Box::pin(c29(on))),
        row(30, "keeps a call and its result together after a provider's error", |on| {
            Box::pin(c30(on))
        }),
        row(31, "keeps the text of a cut turn, and leaves no call without a result", |on| {
            Box::pin(c31(on))
        }),
        row(32, "checks limits only when all calls have results", |on| Box::pin(c32(on))),
        row(33, "leaves roles that alternate after an interrupt", |on| Box::pin(c33(on))),
    ]
}

fn two_calls() -> Turn {
    Turn::call("act", &json!({})).and_call("act", &json!({"twice": true}))
}

async fn c29(on: On) {
    for api in APIS {
        for deaf in [false, true] {
            let calls = Turn::text("Acting.")
                .and_call("wait", &json!({}))
                .and_call("wait", &json!({"n": 1}));
            let model = Model::script(&on, api, [calls]);
            let bodies = on.bodies.clone();
            let before = bodies.get();
            let case = on.case(&model, move |agent| {
                let bodies = bodies.clone();
                agent.tool(tool_fn("wait", "Waits.", move |_: Value, context: ToolContext| {
                    bodies.add();
                    async move {
                        if deaf {
                            std::future::pending::<()>().await;
                        }
                        context.cancelled().await;
                        ToolOutput::error("stopped")
                    }
                }))
            });
            let limits = Limits { cancel_grace: Duration::from_millis(50), ..Limits::default() };
            let mut run = on.start(case.limits(limits)).await;
            eventually("the tool runs", || on.bodies.get() > before).await;
            run.stop(Stop::Cancel).await;
            let outcome = run.end().await;
            assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
            assert_eq!(results(&outcome).len(), 2, "{api}");
        }
    }
}

async fn c30(on: On) {
    for api in APIS {
        let turns = [two_calls(), Turn::error(500, r#"{"error": {"message": "down"}}"#)];
        let model = Model::script(&on, api, turns);
        let tools = on.clone();
        let case = on.case(&model, move |agent| agent.tool(tools.act("act")));
        let limits = Limits { max_retries: Some(0), ..Limits::default() };
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
        assert_eq!(results(&outcome).len(), 2, "{api}: both calls are answered");
    }
}

async fn c31(on: On) {
    for api in APIS {
        let cut = Turn::text("I shall act. ")
            .and_raw_call("act", r#"{"path": "/etc/pas"#)
            .finish(finish(api, "length"));
        let model = Model::script(&on, api, [cut]);
        let tools = on.clone();
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert_eq!(outcome.termination, T::ErrorOutputTruncated, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("I shall act. "));
        assert_eq!((on.bodies.get(), outcome.tool_calls), (0, 0), "{api}");
    }
}

async fn c32(on: On) {
    for api in APIS {
        for (limits, termination) in [
            (Limits { max_turns: Some(1), ..Limits::default() }, T::ErrorMaxTurns),
            (Limits { max_tokens: Some(20_000), ..Limits::default() }, T::ErrorMaxTokens),
        ] {
            let model = Model::script(&on, api, [two_calls().usage(10, 19_990)]);
            let tools = on.clone();
            let case = on.case(&model, move |agent| agent.tool(tools.act("act")));
            let outcome = on.run(case.limits(limits)).await;
            assert_eq!(outcome.termination, termination, "{api}: {outcome:?}");
            assert_eq!(results(&outcome).len(), 2, "{api}");
        }
    }
}

async fn c33(on: On) {
    for api in APIS {
        // Before the first word, and after it.
        for words in [false, true] {
            let long = Turn::text("a long answer ".repeat(1_000)).pace(Duration::from_millis(100));
            let turn = if words { long } else { long.after(crate::run::LONG) };
            let model = Model::script(&on, api, [turn]);
            let seen = Counter::default();
            let count = seen.clone();
            let case = on.case(&model, move |agent| {
                let count = count.clone();
                agent.on_event(move |event| {
                    if matches!(event.kind, AgentEventKind::TextDelta { .. }) {
                        count.add();
                    }
                })
            });
            let mut run = on.start(case).await;
            eventually("the moment of the stop", || {
                if words { seen.get() > 0 } else { model.calls.get() == 1 }
            })
            .await;
            run.stop(Stop::Cancel).await;
            let outcome = run.end().await;
            assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
            assert_eq!(outcome.last_text.is_some(), words, "{api}: streamed text is preserved");
        }
    }
}

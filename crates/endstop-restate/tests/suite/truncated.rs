//! C34 to C38: truncated answers, and finish values that mean something else.

use crate::model::{Model, finish};
use crate::run::{APIS, On};
use crate::table::{Row, row};
use endstop::testkit::{Reply, Turn};
use endstop::{Limits, Termination as T};
use serde_json::json;

pub fn rows() -> Vec<Row> {
    vec![
        row(
            34,
            "runs no tool of a truncated turn, retries it boundedly, and never succeeds",
            |on| Box::pin(c34(on)),
        ),
        row(35, "recognises a truncated turn whatever its label", |on| Box::pin(c35(on))),
        row(36, "ends at an unknown finish value, and bounds empty turns", |on| Box::pin(c36(on))),
        row(37, "retries a stream that closes early, boundedly, and runs no tool twice", |on| {
            Box::pin(c37(on))
        }),
        row(38, "types a refusal, and continues a pause boundedly", |on| Box::pin(c38(on))),
    ]
}

async fn c34(on: On) {
    for api in APIS {
        let call = Turn::call("act", &json!({"n": 1})).finish(finish(api, "length"));
        let text = Turn::text("and then ").finish(finish(api, "length"));
        let continuing = Limits { max_continuations: 2, ..Limits::default() };
        for (turn, limits, turns) in [(call, Limits::default(), 1), (text, continuing, 3)] {
            let model = Model::script(&on, api, [turn]);
            let tools = on.clone();
            let case = on.case(&model, move |agent| agent.tool(tools.act("act")));
            let outcome = on.run(case.limits(limits)).await;
            assert_eq!(outcome.termination, T::ErrorOutputTruncated, "{api}: {outcome:?}");
            assert_eq!((outcome.turns, on.bodies.get()), (turns, 0), "{api}");
        }
    }
}

async fn c35(on: On) {
    for api in APIS {
        // Truncated arguments, and a call that uses the cap to its last token.
        let label = finish(api, "tool_calls");
        let cut = Turn::text("").and_raw_call("act", r#"{"path": "/etc/pas"#).finish(label);
        let full = Turn::call("act", &json!({"n": 1})).finish(label);
        for turn in [cut.usage(10, 20), full.usage(10, 300)] {
            let model = Model::script(&on, api, [turn]);
            let tools = on.clone();
            let case =
                on.case(&model, move |agent| agent.tool(tools.act("act")).max_output_tokens(300));
            let outcome = on.run(case).await;
            assert!(!outcome.is_success(), "{api}: {outcome:?}");
            assert_eq!(on.bodies.get(), 0, "{api}");
        }
    }
}

async fn c36(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text("fine").finish("whatever_comes_next")]);
        let outcome = on.run(on.case(&model, |agent| agent)).await;
        assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
        assert!(outcome.decided_by.evidence.contains("whatever_comes_next"), "{outcome:?}");
        assert_eq!((outcome.model_calls, outcome.last_text.as_deref()), (1, Some("fine")));

        let model = Model::script(&on, api, [Turn::text("")]);
        let outcome = on.run(on.case(&model, |agent| agent)).await;
        assert_eq!(outcome.termination, T::ErrorNoProgress, "{api}: {outcome:?}");
        assert_eq!(outcome.model_calls, 2, "{api}");
    }
}

async fn c37(on: On) {
    for api in APIS {
        // The turn with the call is complete; the one after it is cut twice.
        let model = Model::replying(&on, api, |request| {
            let reply = |turn: &Turn| Reply::turn(request, turn);
            match request.number {
                1 => reply(&Turn::call("act", &json!({}))),
                2 | 3 => reply(&Turn::text("half an answer")).cut_after(150),
                _ => reply(&Turn::text("the whole answer")),
            }
        });
        let before = on.bodies.get();
        let tools = on.clone();
        let outcome = on.run(on.case(&model, move |agent| agent.tool(tools.act("act")))).await;
        assert_eq!(outcome.termination, T::Stop, "{api}: {outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("the whole answer"));
        assert_eq!((on.bodies.get() - before, outcome.model_calls, outcome.turns), (1, 4, 2));

        let model = Model::replying(&on, api, |request| {
            Reply::turn(request, &Turn::text("half an answer")).cut_after(150)
        });
        let limits = Limits { max_retries: Some(1), ..Limits::default() };
        let outcome = on.run(on.case(&model, |agent| agent).limits(limits)).await;
        assert_eq!(outcome.termination, T::ErrorDuringExecution, "{api}: {outcome:?}");
        assert_eq!(outcome.model_calls, 2, "reconnects are bounded");
    }
}

async fn c38(on: On) {
    let api = "anthropic-messages";
    let model = Model::script(&on, api, [Turn::text("I can't.").finish("refusal")]);
    let outcome = on.run(on.case(&model, |agent| agent)).await;
    assert_eq!(outcome.termination, T::ErrorContentFiltered, "{outcome:?}");
    assert_eq!(outcome.model_calls, 1, "it is not asked again as it was");

    let pause = || Turn::text("Searching.").finish("pause_turn");
    let model = Model::pausing(&on, api, move |number| match number {
        1 => pause(),
        _ => Turn::text("Found."),
    });
    let outcome = on.run(on.case(&model, |agent| agent)).await;
    assert_eq!((outcome.termination, outcome.turns), (T::Stop, 2), "{outcome:?}");

    let model = Model::pausing(&on, api, move |_| pause());
    let outcome = on.run(on.case(&model, |agent| agent)).await;
    assert_eq!(outcome.termination, T::ErrorDuringExecution, "{outcome:?}");
}

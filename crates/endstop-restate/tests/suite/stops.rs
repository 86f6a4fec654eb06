//! C17 to C28: stops that have no effect elsewhere.

use crate::model::{Model, over, price, silent_after_event};
use crate::run::{APIS, Boxed, Counter, LONG, On, eventually, results};
use crate::table::{Row, row};
use endstop::agent::AgentTool;
use endstop::event::AgentEventKind;
use endstop::hook::{ConsultPoint, Hook, HookFuture, Hooks};
use endstop::policy::FinalPattern;
use endstop::testkit::{Reply, Turn};
use endstop::tool::{Shell, ToolContext, ToolOutput, tool_fn};
use endstop::{AgentBuilder, Limits, NanoUsd, Termination as T, ToolStatus};
use endstop_restate::Stop;
use serde_json::{Value, json};
use std::time::Duration;

pub fn rows() -> Vec<Row> {
    let play = |number, must, play: fn(On) -> Boxed<'static, ()>| row(number, must, play);
    vec![
        play(
            17,
            "stops in bounded time, and closes the connection, although the peer is silent",
            |on| Box::pin(c17(on)),
        ),
        play(18, "runs no call that comes later in the same stream", |on| Box::pin(c18(on))),
        play(19, "starts no call that was being prepared", |on| Box::pin(c19(on))),
        play(20, "kills the whole process group of a command", |on| {
            processes(on, "trap '' TERM; sleep MARK & sleep MARK", 2, Stop::Cancel)
        }),
        play(21, "kills daemons that left the group", |on| {
            let line = "(setsid sleep MARK >/dev/null 2>&1 &); setsid sleep MARK & sleep MARK";
            processes(on, line, 3, Stop::Terminate)
        }),
        play(22, "kills the whole process tree, not only its root", |on| {
            let line = "sh -c 'sh -c \"sleep MARK; :\"; :'; :";
            processes(on, line, 1, Stop::Cancel)
        }),
        play(23, "reaps every child, and waits for no pipe that a grandchild holds", |on| {
            Box::pin(c23(on))
        }),
        play(
            24,
            "checks a stop before the start; the ending does not depend on tools or peers",
            |on| Box::pin(c24(on)),
        ),
        play(25, "stops runs three levels deep, and their processes", |on| Box::pin(c25(on))),
        play(26, "enforces each limit, also in the middle of a call", |on| Box::pin(c26(on))),
        play(27, "applies a policy and a limit together", |on| Box::pin(c27(on))),
        play(28, "refuses every later start after a terminate", |on| Box::pin(c28(on))),
    ]
}

async fn c17(on: On) {
    for api in APIS {
        for endless_head in [false, true] {
            let model = Model::replying(&on, api, move |request| {
                let reply = Reply::turn(request, &Turn::text("late"));
                if endless_head { reply.endless_head() } else { reply.after(LONG) }
            });
            let mut run = on.start(on.case(&model, |agent| agent)).await;
            eventually("the model is called", || model.calls.get() == 1).await;
            run.stop(Stop::Cancel).await;
            assert_eq!(run.end().await.termination, T::Cancelled, "{api}");
            let closed = model.server.until(|server| server.open_connections() == 0).await;
            assert!(closed, "{api}: the request continues");
        }
    }
}

async fn c18(on: On) {
    for api in APIS {
        // The call comes seconds after the first words.
        let words = "one two three four five six seven eight nine ten";
        let turn = Turn::text(words).and_call("act", &json!({})).pace(Duration::from_millis(500));
        let model = Model::script(&on, api, [turn]);
        let (seen, tools) = (Counter::default(), on.clone());
        let count = seen.clone();
        let case = on.case(&model, move |agent| {
            let count = count.clone();
            agent.tool(tools.act("act")).on_event(move |event| {
                if matches!(event.kind, AgentEventKind::TextDelta { .. }) {
                    count.add();
                }
            })
        });
        let mut run = on.start(case).await;
        eventually("the first words", || seen.get() > 0).await;
        run.stop(Stop::Cancel).await;
        let outcome = run.end().await;
        assert_eq!((outcome.termination, outcome.tool_calls), (T::Cancelled, 0), "{api}");
        assert!(outcome.last_text.is_some(), "{api}: the words are preserved");
    }
}

/// Never decides about a call.
struct Undecided(Counter);

impl Hook for Undecided {
    fn points(&self) -> Hooks {
        Hooks { pre_tool: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        self.0.add();
        Box::pin(std::future::pending())
    }
}

async fn c19(on: On) {
    for api in APIS {
        let calls = Turn::call("act", &json!({})).and_call("act", &json!({"n": 2}));
        let model = Model::script(&on, api, [calls]);
        let (asked, tools) = (Counter::default(), on.clone());
        let count = asked.clone();
        let case = on
            .case(&model, move |agent| agent.tool(tools.act("act")).hook(Undecided(count.clone())));
        let mut run = on.start(case).await;
        eventually("the hook is asked", || asked.get() > 0).await;
        run.stop(Stop::Cancel).await;
        let outcome = run.end().await;
        assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
        let results = results(&outcome);
        let told: Vec<_> = results.iter().map(|result| (result.status, result.started)).collect();
        assert_eq!(told, [(ToolStatus::Aborted, false), (ToolStatus::Aborted, false)], "{api}");
        assert_eq!(on.bodies.get(), 0, "what was prepared was not started");
    }
}

/// Waits until no process with this mark is left, and the children of this process are reaped.
#[cfg(target_os = "linux")]
pub async fn gone(mark: u32) {
    tokio::task::spawn_blocking(move || crate::processes::gone(mark)).await.unwrap();
}

/// Stops a run whose command has started so many processes, and checks that none is left.
#[cfg(target_os = "linux")]
fn processes(on: On, line: &'static str, count: usize, stop: Stop) -> Boxed<'static, ()> {
    Box::pin(async move {
        for api in APIS {
            let mark = crate::processes::marker();
            let line = json!({"command": line.replace("MARK", &mark.to_string())});
            let model = Model::script(&on, api, [Turn::call("shell", &line)]);
            let case = on.case(&model, |agent| agent.tool(Shell::default()));
            let limits = Limits { cancel_grace: Duration::from_millis(300), ..Limits::default() };
            let mut run = on.start(case.limits(limits)).await;
            crate::processes::started(mark, count).await;
            run.stop(stop).await;
            let outcome = run.end().await;
            let wanted = if stop == Stop::Cancel { T::Cancelled } else { T::Terminated };
            assert_eq!(outcome.termination, wanted, "{api}: {outcome:?}");
            assert!(results(&outcome)[0].started, "{api}");
            gone(mark).await;
        }
    })
}

/// Processes are found in `/proc`.
#[cfg(not(target_os = "linux"))]
fn processes(_: On, _: &'static str, _: usize, _: Stop) -> Boxed<'static, ()> {
    Box::pin(async {})
}

async fn c23(on: On) {
    #[cfg(target_os = "linux")]
    for api in APIS {
        let mark = crate::processes::marker();
        let line = format!("sleep {mark} & sleep {mark} & echo done");
        let call = Turn::call("shell", &json!({"command": line}));
        let model = Model::script(&on, api, [call, Turn::text("It did.")]);
        let outcome = on.run(on.case(&model, |agent| agent.tool(Shell::default()))).await;
        assert_eq!(outcome.termination, T::Stop, "{api}: {outcome:?}");
        let result = &results(&outcome)[0];
        assert_eq!(result.status, ToolStatus::Ok);
        assert!(result.content.starts_with("done\n[exit status 0"), "{result:?}");
        gone(mark).await;
    }
    #[cfg(not(target_os = "linux"))]
    drop(on);
}

async fn c24(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text("never")]);
        let case = on.case(&model, |agent| agent).stop_first(Stop::Terminate);
        assert_eq!(on.run(case).await.termination, T::Terminated, "{api}");
        assert_eq!(model.calls.get(), 0, "{api}");
        // A tool that ignores its stop.
        let model = Model::script(&on, api, [Turn::call("deaf", &json!({}))]);
        let bodies = on.bodies.clone();
        let before = bodies.get();
        let case = on.case(&model, move |agent| {
            let bodies = bodies.clone();
            agent.tool(tool_fn("deaf", "Ignores its stop.", move |_: Value, _| {
                bodies.add();
                async {
                    std::future::pending::<()>().await;
                    "never"
                }
            }))
        });
        let limits = Limits { cancel_grace: Duration::from_millis(100), ..Limits::default() };
        let mut run = on.start(case.limits(limits)).await;
        eventually("the tool runs", || on.bodies.get() == before + 1).await;
        run.stop(Stop::Cancel).await;
        let outcome = run.end().await;
        assert_eq!(outcome.termination, T::Cancelled, "{api}: {outcome:?}");
        assert!(results(&outcome)[0].started, "{api}");
    }
}

/// An agent whose model calls an inner agent, and so on; the innermost runs a command.
#[cfg(target_os = "linux")]
fn deep(agent: AgentBuilder, levels: &[(String, &'static str)]) -> AgentBuilder {
    let Some(((url, api), rest)) = levels.split_first() else {
        return agent.tool(Shell::default());
    };
    let inner = deep(over(url, api), rest).build().unwrap();
    agent.tool(AgentTool::new("ask", "Asks.", inner))
}

async fn c25(on: On) {
    #[cfg(target_os = "linux")]
    for api in APIS {
        for stop in [Stop::Cancel, Stop::Terminate] {
            let mark = crate::processes::marker();
            let line = json!({"command": format!("sleep {mark} & sleep {mark}")});
            let ask = || Model::script(&on, api, [Turn::call("ask", &json!({"task": "deeper"}))]);
            let outer = ask();
            let inner = [ask(), ask(), Model::script(&on, api, [Turn::call("shell", &line)])];
            let levels: Vec<_> = inner.iter().map(|model| (model.url(), api)).collect();
            let case = on.case(&outer, move |agent| deep(agent, &levels));
            let limits = Limits { cancel_grace: Duration::from_millis(300), ..Limits::default() };
            let mut run = on.start(case.limits(limits)).await;
            crate::processes::started(mark, 2).await;
            run.stop(stop).await;
            let outcome = run.end().await;
            let wanted = if stop == Stop::Cancel { T::Cancelled } else { T::Terminated };
            assert_eq!(outcome.termination, wanted, "{api}: {outcome:?}");
            assert_eq!(results(&outcome).len(), 1, "{api}: the call is answered");
            gone(mark).await;
            let calls: Vec<usize> = inner.iter().map(|model| model.calls.get()).collect();
            assert_eq!(calls, [1, 1, 1], "{api}: no inner run calls its model again");
        }
    }
    #[cfg(not(target_os = "linux"))]
    drop(on);
}

/// Tools for the limits: one whose results differ, one that fails, and one that hangs.
fn limited(agent: AgentBuilder, on: &On) -> AgentBuilder {
    let bodies = on.bodies.clone();
    let moving = tool_fn("act", "Acts.", move |arguments: Value, _| {
        bodies.add();
        async move { format!("result {arguments}") }
    });
    let fail = tool_fn("fail", "Fails.", |_: Value, _| async { ToolOutput::error("no") });
    let hang = tool_fn("hang", "Hangs.", |_: Value, context: ToolContext| async move {
        context.cancelled().await;
        ToolOutput::error("stopped")
    });
    agent.tool(moving).tool(fail).tool(hang).max_output_tokens(300).price(price())
}

async fn c26(on: On) {
    // Longer than a driver takes to store that a call begins, which is part of these times.
    let some = Duration::from_secs(3);
    let off = Limits {
        max_unproductive_turns: None,
        max_turns: None,
        max_retries: Some(0),
        ..Limits::default()
    };
    let busy = |number: usize| Turn::call("act", &json!({"n": number})).usage(50, 50);
    let fails = |_| Turn::call("fail", &json!({}));
    let hangs = |_| Turn::call("hang", &json!({}));
    let silent = |_| Turn::text("late").after(LONG);
    let slow = |_| Turn::text("word ".repeat(1_000)).pace(Duration::from_millis(50));
    let stalls = |_| Turn::pieces(&["It", " stalls"]);
    let thinks = |_| Turn::text("late").reasoning("hm");
    let empty = |_| Turn::text("");
    let down = |_| Turn::error(500, "down");
    let cut = |_| Turn::text("and then ").finish("max_tokens");
    type Answer = fn(usize) -> Turn;
    let cases: Vec<(&str, Limits, Answer, T)> = vec![
        ("max_turns", Limits { max_turns: Some(3), ..off.clone() }, busy, T::ErrorMaxTurns),
        (
            "max_budget_usd",
            Limits { max_budget_usd: Some(0.01), ..off.clone() },
            busy,
            T::ErrorMaxBudgetUsd,
        ),
        ("max_tokens", Limits { max_tokens: Some(4_000), ..off.clone() }, busy, T::ErrorMaxTokens),
        ("timeout", Limits { timeout: Some(some), ..off.clone() }, silent, T::ErrorTimeout),
        (
            "turn_timeout",
            Limits { turn_timeout: Some(some), ..off.clone() },
            slow,
            T::ErrorDuringExecution,
        ),
        (
            "first_content_timeout",
            Limits { first_content_timeout: Some(some), ..off.clone() },
            silent,
            T::ErrorDuringExecution,
        ),
        (
            "stall_timeout",
            Limits { stall_timeout: Some(some), ..off.clone() },
            stalls,
            T::ErrorDuringExecution,
        ),
        (
            "thinking_timeout",
            Limits {
                thinking_timeout: Some(some),
                max_retries: Some(1),
                stall_timeout: None,
                turn_timeout: None,
                ..off.clone()
            },
            thinks,
            T::ErrorThinkingStarved,
        ),
        (
            "tool_timeout",
            Limits { tool_timeout: Some(some), max_consecutive_mistakes: Some(2), ..off.clone() },
            hangs,
            T::ErrorConsecutiveMistakes,
        ),
        (
            "max_consecutive_mistakes",
            Limits { max_consecutive_mistakes: Some(4), ..off.clone() },
            fails,
            T::ErrorConsecutiveMistakes,
        ),
        (
            "max_unproductive_turns",
            Limits {
                max_unproductive_turns: Some(2),
                max_consecutive_mistakes: None,
                ..off.clone()
            },
            fails,
            T::ErrorNoProgress,
        ),
        (
            "max_empty_turns",
            Limits { max_empty_turns: Some(3), ..off.clone() },
            empty,
            T::ErrorNoProgress,
        ),
        (
            "max_retries",
            Limits { max_retries: Some(1), ..off.clone() },
            down,
            T::ErrorDuringExecution,
        ),
        ("max_continuations", Limits { max_continuations: 2, ..off }, cut, T::ErrorOutputTruncated),
    ];
    for (name, limits, answer, termination) in cases {
        let api = "anthropic-messages";
        let model = Model::replying(&on, api, move |request| {
            let turn = answer(usize::try_from(request.number).unwrap());
            match name {
                "stall_timeout" => silent_after_event(request, api, &turn, ["", "text_delta"]),
                "thinking_timeout" => {
                    silent_after_event(request, api, &turn, ["", "thinking_delta"])
                }
                _ => Reply::turn(request, &turn),
            }
        });
        let tools = on.clone();
        let case = on.case(&model, move |agent| limited(agent, &tools));
        let outcome = on.run(case.limits(limits)).await;
        assert_eq!(outcome.termination, termination, "{name}: {outcome:?}");
        let took = outcome.duration;
        match name {
            "max_turns" => assert_eq!(outcome.turns, 3),
            "max_budget_usd" => assert!(outcome.cost <= NanoUsd::from_usd(0.01), "{outcome:?}"),
            "max_tokens" => assert!(outcome.usage.total_tokens() <= 4_000, "{outcome:?}"),
            "timeout" | "turn_timeout" | "first_content_timeout" | "stall_timeout" => {
                assert!(took >= some && took < crate::run::HANG, "{name}: {took:?}");
                assert_eq!(outcome.model_calls, 1, "{name}");
            }
            "thinking_timeout" => assert_eq!(outcome.model_calls, 2),
            "tool_timeout" => assert!(took >= 2 * some, "{took:?}"),
            "max_consecutive_mistakes" => assert_eq!(outcome.turns, 4),
            // The first is new; the two after it repeat it.
            "max_unproductive_turns" => assert_eq!(outcome.turns, 3),
            "max_empty_turns" => assert_eq!(outcome.model_calls, 4),
            "max_retries" => assert_eq!(outcome.model_calls, 2),
            "max_continuations" => assert_eq!(outcome.turns, 3),
            _ => unreachable!("{name}"),
        }
    }
}

async fn c27(on: On) {
    for api in APIS {
        let act = || Turn::call("act", &json!({}));
        let busy = || vec![act(), Turn::call("act", &json!({"n": 1})), Turn::text("FINAL(7)")];
        // The limit comes before the answer, at the answer, and there is no declaration.
        let cases = [
            (busy(), T::ErrorMaxTurns),
            (vec![act(), Turn::text("FINAL(7)")], T::Submitted),
            (vec![act(), Turn::text("seven")], T::Stop),
        ];
        for (turns, termination) in cases {
            let model = Model::script(&on, api, turns);
            let tools = on.clone();
            let case = on.case(&model, move |agent| {
                agent.tool(tools.act("act")).policy(FinalPattern::default())
            });
            let limits = Limits { max_turns: Some(2), ..Limits::default() };
            let outcome = on.run(case.limits(limits)).await;
            assert_eq!(outcome.termination, termination, "{api}: {outcome:?}");
        }
    }
}

async fn c28(on: On) {
    for api in APIS {
        let model = Model::script(&on, api, [Turn::text("late").after(LONG)]);
        let mut run = on.start(on.case(&model, |agent| agent)).await;
        eventually("the model is called", || model.calls.get() == 1).await;
        run.stop(Stop::Terminate).await;
        assert_eq!(run.end().await.termination, T::Terminated, "{api}");
        let refused = run.again().await;
        assert!(!refused.is_empty());
        assert_eq!(run.stored().await.termination, T::Terminated, "{api}");
        assert_eq!(model.calls.get(), 1, "{api}: {refused}");
    }
}

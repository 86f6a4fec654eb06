//! Each limit is enforced, limits do not cancel each other out, and all spending is counted.

use super::{Strict, results};
use crate::support::{agent, eventually, over};
use endstop::agent::AgentTool;
use endstop::budget::SharedBudget;
use endstop::event::AgentEventKind;
use endstop::policy::FinalPattern;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, BuildError, Category, Limits, NanoUsd, Outcome, Price, Termination, ToolStatus,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(3600);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn price() -> Price {
    Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(10.0), ..Price::default() }
}

/// A model that calls a tool without end, each time with other arguments.
fn busy() -> ScriptedModel {
    let turns = (0..200).map(|n| Turn::call("act", &json!({"n": n})).usage(50, 50));
    ScriptedModel::new(turns).price(price())
}

fn act() -> impl endstop::tool::Tool + 'static {
    let count = AtomicUsize::new(0);
    tool_fn("act", "Acts.", move |_: Value, _| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move { format!("result {n}") }
    })
}

async fn run(limits: Limits, model: ScriptedModel) -> Outcome {
    let agent = Agent::builder(model)
        .tool(act())
        .tool(tool_fn("fail", "Fails.", |_: Value, _| async { ToolOutput::error("no") }))
        .tool(tool_fn("hang", "Hangs.", |_: Value, context: ToolContext| async move {
            context.cancelled().await;
            ToolOutput::error("stopped")
        }))
        .max_output_tokens(300)
        .limits(limits)
        .build()
        .unwrap();
    agent.run("go").unwrap().await
}

#[tokio::test(start_paused = true)]
async fn rate_pauses_run_until_its_deadline() {
    let off = Limits { max_unproductive_turns: None, max_turns: Some(5), ..Limits::default() };
    // A turn has 100 tokens, so that two of five are made in each minute.
    let slow = Limits { max_rate: "150 tokens/m".parse().ok(), ..off };
    let outcome = run(slow.clone(), busy()).await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    let seconds = outcome.duration.as_secs();
    assert!((120..130).contains(&seconds), "{seconds}");
    let timeout = Some(Duration::from_secs(90));
    let outcome = run(Limits { timeout, ..slow.clone() }, busy()).await;
    assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorTimeout, 4));
    assert!(outcome.decided_by.evidence.contains("200 tokens of 150 tokens per minute"));
    assert!(outcome.retry_after.is_some_and(|wait| wait > Duration::from_secs(30)));
    // Money needs a price, as under a ceiling.
    let limits = Limits { max_rate: "$2/h".parse().ok(), ..slow };
    let unpriced = Agent::builder(ScriptedModel::new([Turn::text("hi")])).limits(limits).build();
    let Err(BuildError::NoPrice { ceiling, .. }) = unpriced else { panic!("a price is missing") };
    assert_eq!(ceiling, "max_rate");
}

#[tokio::test(start_paused = true)]
async fn warned_model_reads_what_is_left() {
    let limits = Limits { max_turns: Some(5), warn_model: true, ..Limits::default() };
    let outcome = run(Limits { max_unproductive_turns: None, ..limits }, busy()).await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    let said = outcome.messages.iter().map(endstop::Message::plain_text);
    let told: Vec<String> = said.filter(|text| text.starts_with("This run is near")).collect();
    assert_eq!(
        told,
        [
            "This run is near a limit. Left: 1 of 5 turns. The limit will end the run: finish now, and state what is not done."
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_limit_is_enforced() {
    use Termination as T;
    let off = Limits { max_unproductive_turns: None, max_turns: None, ..Limits::default() };
    let call = |name: &str| ScriptedModel::new([Turn::call(name, &json!({}))]).repeat_last();
    let silent = || ScriptedModel::new([Turn::text("late").after(LONG)]).repeat_last();
    let sleepy = || {
        ScriptedModel::new([Turn::text("word ".repeat(10_000)).pace(Duration::from_secs(1))])
            .repeat_last()
    };
    let s = Duration::from_secs;
    let kept: Vec<(&str, Limits, ScriptedModel, Termination)> = vec![
        ("max_turns", Limits { max_turns: Some(3), ..off.clone() }, busy(), T::ErrorMaxTurns),
        (
            "max_budget_usd",
            Limits { max_budget_usd: Some(0.01), ..off.clone() },
            busy(),
            T::ErrorMaxBudgetUsd,
        ),
        (
            "max_tokens",
            Limits { max_tokens: Some(2_000), ..off.clone() },
            busy(),
            T::ErrorMaxTokens,
        ),
        ("timeout", Limits { timeout: Some(s(30)), ..off.clone() }, silent(), T::ErrorTimeout),
        (
            "turn_timeout",
            Limits { turn_timeout: Some(s(5)), max_retries: Some(1), ..off.clone() },
            sleepy(),
            T::ErrorDuringExecution,
        ),
        (
            "first_content_timeout",
            Limits { first_content_timeout: Some(s(5)), max_retries: Some(1), ..off.clone() },
            silent(),
            T::ErrorDuringExecution,
        ),
        (
            "stall_timeout",
            Limits { stall_timeout: Some(s(5)), max_retries: Some(1), ..off.clone() },
            ScriptedModel::new([Turn::pieces(&["It", " stalls"]).pace(LONG)]).repeat_last(),
            T::ErrorDuringExecution,
        ),
        (
            "thinking_timeout",
            Limits {
                thinking_timeout: Some(s(5)),
                stall_timeout: None,
                turn_timeout: None,
                ..off.clone()
            },
            ScriptedModel::new([Turn::text("late").reasoning("hm").pace(LONG)]).repeat_last(),
            T::ErrorThinkingStarved,
        ),
        (
            "tool_timeout",
            Limits { tool_timeout: Some(s(1)), max_consecutive_mistakes: Some(2), ..off.clone() },
            call("hang"),
            T::ErrorConsecutiveMistakes,
        ),
        (
            "max_consecutive_mistakes",
            Limits { max_consecutive_mistakes: Some(4), ..off.clone() },
            call("fail"),
            T::ErrorConsecutiveMistakes,
        ),
        (
            "max_unproductive_turns",
            Limits {
                max_unproductive_turns: Some(2),
                max_consecutive_mistakes: None,
                ..off.clone()
            },
            call("fail"),
            T::ErrorNoProgress,
        ),
        (
            "max_empty_turns",
            Limits { max_empty_turns: Some(3), ..off.clone() },
            ScriptedModel::new([Turn::text("")]).repeat_last(),
            T::ErrorNoProgress,
        ),
        (
            "max_retries",
            Limits { max_retries: Some(4), ..off.clone() },
            ScriptedModel::new([Turn::error(500, "down")]).repeat_last(),
            T::ErrorDuringExecution,
        ),
        (
            "max_continuations",
            Limits { max_continuations: 2, ..off },
            ScriptedModel::new([Turn::text("and then ").finish("length")]).repeat_last(),
            T::ErrorOutputTruncated,
        ),
    ];
    for (name, limits, model, termination) in kept {
        let began = Instant::now();
        let outcome = run(limits.clone(), model).await;
        assert_eq!(outcome.termination, termination, "{name}: {outcome:?}");
        assert!(!outcome.is_success(), "{name}");
        let took = began.elapsed();
        match name {
            "max_turns" => assert_eq!(outcome.turns, 3),
            "max_budget_usd" => assert!(outcome.cost <= NanoUsd::from_usd(0.01)),
            "max_tokens" => assert!(outcome.usage.total_tokens() <= 2_000),
            "timeout" => assert_eq!(took.as_secs(), 30, "{took:?}"),
            // Two attempts, and at most one backoff between them.
            "turn_timeout" | "first_content_timeout" | "stall_timeout" | "thinking_timeout" => {
                assert!(took >= s(10) && took < s(15), "{name}: {took:?}");
                assert_eq!(outcome.model_calls, 2);
            }
            "tool_timeout" => assert!(took >= s(2) && took < s(5), "{took:?}"),
            "max_consecutive_mistakes" => assert_eq!(outcome.turns, 4),
            // The first is new; the two after it repeat it.
            "max_unproductive_turns" => assert_eq!(outcome.turns, 3),
            "max_empty_turns" => assert_eq!(outcome.model_calls, 4),
            "max_retries" => assert_eq!(outcome.model_calls, 5),
            "max_continuations" => assert_eq!(outcome.turns, 3),
            _ => unreachable!("{name}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn expired_timeout_is_named() {
    let s = Duration::from_secs;
    let silent = || ScriptedModel::new([Turn::text("late").after(LONG)]).repeat_last();
    let base = Limits { max_retries: Some(0), ..Limits::default() };
    let cases = [
        (Limits { timeout: Some(s(2)), ..base.clone() }, "timeout"),
        (Limits { turn_timeout: Some(s(2)), ..base.clone() }, "turn"),
        (Limits { first_content_timeout: Some(s(2)), ..base.clone() }, "first_content"),
    ];
    for (limits, word) in cases {
        let outcome = run(limits, silent()).await;
        let decided = format!("{} {}", outcome.decided_by.decision, outcome.decided_by.evidence);
        assert!(decided.contains(word), "{word}: {decided}");
    }
    // A slow but active tool does not count as silence of the provider.
    let hang = ScriptedModel::new([Turn::call("hang", &json!({})), Turn::text("done")]);
    let limits = Limits { tool_timeout: Some(s(300)), stall_timeout: Some(s(5)), ..base };
    let outcome = run(limits, hang).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(results(&outcome)[0].status, ToolStatus::Timeout);
    assert!(results(&outcome)[0].content.contains("timed out after 300s"), "{outcome:?}");
}

#[tokio::test]
async fn policy_and_limit_both_apply() {
    let with = |max_turns| {
        Agent::builder(busy())
            .tool(act())
            .policy(FinalPattern::default())
            .limits(Limits { max_turns: Some(max_turns), ..Limits::default() })
            .build()
            .unwrap()
    };
    assert_eq!(with(2).run("go").unwrap().await.termination, Termination::ErrorMaxTurns);
    let declares = [Turn::call("act", &json!({})), Turn::text("FINAL(7)")];
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let outcome = Agent::builder(ScriptedModel::new(declares))
        .tool(act())
        .policy(FinalPattern::default())
        .limits(limits.clone())
        .build()
        .unwrap()
        .run("go")
        .unwrap()
        .await;
    assert_eq!(outcome.termination, Termination::Submitted, "the answer on the last turn stands");
    let answers = [Turn::call("act", &json!({})), Turn::text("seven")];
    let agent = agent(answers).tool(act()).policy(FinalPattern::default()).limits(limits);
    let outcome = agent.build().unwrap().run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(outcome.also.is_empty(), "the last turn that is allowed crosses nothing");
}

#[tokio::test]
async fn endless_same_call_is_detected() {
    let stuck = || {
        let model =
            ScriptedModel::new([Turn::call("poll", &json!({"b": 1, "a": 2}))]).repeat_last();
        Agent::builder(model)
            .tool(tool_fn("poll", "Polls.", |_: Value, _| async { "still running" }))
    };
    let outcome = stuck().build().unwrap().run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorNoProgress, "{outcome:?}");
    assert!(outcome.turns <= 5 && outcome.no_progress_snapshot.is_some(), "{outcome:?}");
    assert_eq!((outcome.category(), outcome.exit_status()), (Category::Capacity, 20));

    let agent = agent([Turn::call("ask", &json!({"task": "it"})), Turn::text("It is stuck.")])
        .tool(AgentTool::new("ask", "Asks.", stuck().build().unwrap()))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(results(&outcome)[0].content.contains("error_no_progress"), "{outcome:?}");
}

#[tokio::test]
async fn cycles_are_detected_despite_other_calls() {
    // Calls in cycles of two to four, each time with another order of keys and other ids.
    for length in 2..=4_usize {
        let turns = (0..40_usize).map(move |n| {
            let at = n % length;
            let arguments = match n % 2 {
                0 => format!(r#"{{"at": {at}, "deep": {{"x": 1, "y": [1, 2]}}}}"#),
                _ => format!(r#"{{"deep": {{"y": [1, 2], "x": 1}}, "at": {at}}}"#),
            };
            Turn::text("").and_raw_call("look", arguments)
        });
        let agent = Agent::builder(ScriptedModel::new(turns))
            .tool(tool_fn("look", "Looks.", |_: Value, _| async { "the same" }))
            .build()
            .unwrap();
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorNoProgress, "{length}: {outcome:?}");
        assert!(outcome.turns as usize <= length + 4, "{length}: {}", outcome.turns);
    }
    // The same calls in parallel in one turn, each time in another order.
    let turns = (0..20).map(|n| {
        let (a, b) = (json!({"n": 1}), json!({"n": 2}));
        let (first, second) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        Turn::call("look", first).and_call("look", second)
    });
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(tool_fn("look", "Looks.", |_: Value, _| async { "the same" }).parallel_safe())
        .build()
        .unwrap();
    assert_eq!(agent.run("go").unwrap().await.termination, Termination::ErrorNoProgress);
}

#[tokio::test]
async fn progressing_polls_are_not_a_loop() {
    let twelve = || (0..12).map(|_| Turn::call("poll", &json!({}))).chain([Turn::text("done")]);
    let count = AtomicUsize::new(0);
    let moving = tool_fn("poll", "Polls.", move |_: Nothing, _| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move { format!("{n} of 12 built") }
    });
    let agent = Agent::builder(ScriptedModel::new(twelve())).tool(moving).build().unwrap();
    assert_eq!(agent.run("go").unwrap().await.termination, Termination::Stop);

    let waiting = tool_fn("poll", "Waits.", |_: Nothing, _| async { "still building" })
        .exempt_from_no_progress();
    let agent = Agent::builder(ScriptedModel::new(twelve())).tool(waiting).build().unwrap();
    assert_eq!(agent.run("go").unwrap().await.termination, Termination::Stop);
}

#[tokio::test]
async fn counters_restart_with_each_run() {
    let failing = tool_fn("fail", "Fails.", |_: Nothing, _| async { ToolOutput::error("no") });
    let turns = (0..4).flat_map(|_| {
        [Turn::call("fail", &json!({})), Turn::call("fail", &json!({})), Turn::text("I could not.")]
    });
    let agent = agent(turns)
        .tool(failing)
        .limits(Limits { max_turns: Some(3), max_unproductive_turns: Some(2), ..Limits::default() })
        .build()
        .unwrap();
    for run in 1..=4 {
        let outcome = agent.run("try").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "run {run}: {outcome:?}");
        assert_eq!(outcome.turns, 3, "run {run}");
    }
}

#[tokio::test]
async fn cancelled_stream_is_charged() {
    let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
    let server = Server::start(|request| {
        Reply::turn(request, &Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2)))
    })
    .unwrap();
    let agent = over(&server, "openai-chat")
        .price(price())
        .shared_budget(budget.clone())
        .max_output_tokens(2_000)
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    let mut said = 0;
    while said < 100 {
        if let Some(AgentEventKind::TextDelta { .. }) = handle.next().await.map(|event| event.kind)
        {
            said += 1;
        }
    }
    agent.cancel();
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(outcome.usage.estimated, "the provider counts at the end alone: this is an estimate");
    assert!(outcome.usage.output_tokens >= Some(100), "{:?}", outcome.usage);
    assert!(outcome.cost > NanoUsd::ZERO);
    // The part that was not streamed may have been generated, so the budget counts the whole
    // reservation.
    let upper = outcome.cost_upper.unwrap();
    assert!(outcome.cost_unknown && upper > outcome.cost, "{outcome:?}");
    assert_eq!((budget.spent(), budget.reserved()), (upper, NanoUsd::ZERO));
}

#[tokio::test]
async fn cut_stream_counts_by_its_reservation() {
    // One format counts only at the end of a stream, the other also counts a few tokens at the
    // start.
    for api in ["openai-chat", "anthropic-messages"] {
        for reset in [false, true] {
            let server = Server::start(move |request| {
                let reply = Reply::turn(request, &Turn::text("word ".repeat(500)));
                if reset { reply.reset_after(900) } else { reply.cut_after(900) }
            })
            .unwrap();
            let limits =
                Limits { max_budget_usd: Some(0.025), max_retries: Some(9), ..Limits::default() };
            let agent = over(&server, api).price(price()).limits(limits).max_output_tokens(1_000);
            let outcome = agent.build().unwrap().run("go").unwrap().await;
            assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd, "{api}: {outcome:?}");
            assert_eq!(outcome.model_calls, 3, "{api}: a cent each, the third with what is left");
            let upper = outcome.cost_upper.unwrap().to_usd();
            // The script reports a prompt of 100 tokens, which is more than was sent.
            let most = 0.0251;
            assert!((0.02..=most).contains(&upper), "{api}: {upper} of {most}");
            assert!(outcome.cost.to_usd() < 0.01, "{api}: what was visible is known");
            assert!(outcome.cost_unknown && outcome.usage.estimated, "{api}");
            let evidence = &outcome.decided_by.evidence;
            assert!(evidence.contains("more may have been billed"), "{evidence}");
        }
    }
}

#[tokio::test]
async fn ceiling_without_price_is_refused() {
    let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
    let built = agent([Turn::text("free")]).limits(limits).build();
    assert!(matches!(built, Err(BuildError::NoPrice { .. })));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_check() {
    // Eight runs at once under a ceiling that has room for two calls.
    let ceiling = NanoUsd::from_usd(0.007);
    let budget = SharedBudget::new(ceiling);
    let most = Arc::new(AtomicUsize::new(0));
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let slow = Turn::text("so").usage(20, 250).after(Duration::from_millis(30));
        let agent = Agent::builder(ScriptedModel::new([slow]).price(price()))
            .shared_budget(budget.clone())
            .max_output_tokens(300)
            .build()
            .unwrap();
        let (whole, most) = (budget.clone(), Arc::clone(&most));
        running.spawn(async move {
            let mut handle = agent.run("go").unwrap();
            while handle.next().await.is_some() {
                let now = usize::try_from(whole.committed().0).unwrap();
                most.fetch_max(now, Ordering::SeqCst);
            }
            handle.await
        });
    }
    let ended = running.join_all().await;
    let answered = ended.iter().filter(|outcome| outcome.is_success()).count();
    assert_eq!(answered, 2, "{:?}", ended.iter().map(|e| e.termination).collect::<Vec<_>>());
    for outcome in ended.iter().filter(|outcome| !outcome.is_success()) {
        assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd);
        assert_eq!(outcome.model_calls, 0, "it ends before the call");
    }
    assert!(most.load(Ordering::SeqCst) as u64 <= ceiling.0);
    assert_eq!(budget.reserved(), NanoUsd::ZERO);
}

#[tokio::test]
async fn hanging_tool_ends_in_time() {
    let strict = Strict::new(
        "openai-chat",
        [Turn::call("hang", &json!({})), Turn::text("It did not answer.")],
    );
    let limits = Limits {
        tool_timeout: Some(Duration::from_millis(100)),
        cancel_grace: Duration::from_millis(100),
        ..Limits::default()
    };
    let agent = strict
        .agent()
        .tool(tool_fn("hang", "Hangs.", |_: Nothing, _| async {
            std::future::pending::<()>().await;
            "never"
        }))
        .limits(limits)
        .build()
        .unwrap();
    // The tool never returns, so the run ends only because of its limits.
    let ending = tokio::time::timeout(crate::support::HANG, agent.run("go").unwrap());
    let outcome = ending.await.expect("the limits end it");
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(results(&outcome)[0].status, ToolStatus::Timeout);
    eventually("nothing of it is left", || strict.server.open_connections() <= 1).await;
    strict.accepted_all();
}

//! Agents as tools of agents: a stop reaches the innermost run, its spending counts in the outer
//! runs, and every ending of an inner run is reported to the outer one, which ends once.

use crate::support::{HANG, agent, answers, eventually, marker, processes_with};
use endstop::agent::AgentTool;
use endstop::budget::SharedBudget;
use endstop::event::AgentEventKind;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Shell, tool_fn};
use endstop::{Agent, AgentBuilder, Limits, NanoUsd, Price, Termination, ToolStatus};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A dollar for a million prompt tokens, a thousand dollars for a million generated ones.
fn price() -> Price {
    Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(1_000.0), ..Price::default() }
}

fn ask(task: &str) -> Turn {
    Turn::call("ask", &json!({"task": task}))
}

/// A loop whose model calls an inner agent, and so on; the innermost runs a command that sleeps.
fn deep(levels: usize, mark: &str) -> AgentBuilder {
    if levels == 0 {
        let command = format!("MARK={mark} sleep 1000 & MARK={mark} sleep 1000");
        return agent([Turn::call("shell", &json!({"command": command}))])
            .tool(Shell::default().with_timeout(Duration::from_secs(900)));
    }
    let mark = mark.to_owned();
    agent([ask("go deeper")]).tool(AgentTool::new(
        "ask",
        "Asks.",
        deep(levels - 1, &mark).build().unwrap(),
    ))
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn stop_reaches_deepest_run_and_processes() {
    type Stop = fn(&Agent);
    let stops: [(Stop, Termination); 2] =
        [(Agent::cancel, Termination::Cancelled), (Agent::terminate, Termination::Terminated)];
    for (stop, termination) in stops {
        stopped_deep(async |agent| stop(agent), termination).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn timeout_reaches_deepest_run_and_processes() {
    // The clock jumps to the limit only after the command runs, however long its start takes.
    let pass = async |_: &Agent| {
        tokio::time::pause();
        tokio::time::advance(LATER).await;
        tokio::time::resume();
    };
    stopped_deep(pass, Termination::ErrorTimeout).await;
}

/// The time limit of a run that starts processes.
#[cfg(target_os = "linux")]
const LATER: Duration = Duration::from_secs(1800);

/// Stops a run whose innermost run has started processes, and checks that nothing is left.
#[cfg(target_os = "linux")]
async fn stopped_deep(stop: impl AsyncFnOnce(&Agent), termination: Termination) {
    let mark = marker();
    let limits = Limits {
        cancel_grace: Duration::from_millis(300),
        timeout: Some(LATER),
        tool_timeout: None,
        turn_timeout: None,
        ..Limits::default()
    };
    let agent = deep(3, &mark).limits(limits).build().unwrap();
    let handle = agent.run("go").unwrap();
    eventually("the command runs", || processes_with(&mark) == 2).await;
    stop(&agent).await;
    let outcome = handle.await;
    assert_eq!(outcome.termination, termination, "{outcome:?}");
    assert_eq!(answers(&outcome).len(), 1, "the call is answered: {outcome:?}");
    eventually("no process is left", || processes_with(&mark) == 0).await;
    agent.settled().await;
}

#[tokio::test]
async fn inner_limit_is_a_tool_error() {
    let agent = agent([ask("everything"), Turn::text("I could not find out.")])
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                Agent::builder(ScriptedModel::new([ask("more")]).repeat_last())
                    .tool(AgentTool::new(
                        "ask",
                        "Asks.",
                        agent_that_says("nothing").build().unwrap(),
                    ))
                    .limits(Limits { max_turns: Some(1), ..Limits::default() })
            }
            .build()
            .unwrap(),
        ))
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    let mut endings = 0;
    while let Some(event) = handle.next().await {
        endings += usize::from(matches!(event.kind, AgentEventKind::Finished { .. }));
    }
    let outcome = handle.await;
    assert_eq!((outcome.termination, endings), (Termination::Stop, 1), "{outcome:?}");
    let [(status, told)] = &answers(&outcome)[..] else { panic!("{outcome:?}") };
    assert_eq!(*status, ToolStatus::Error);
    assert!(told.contains("error_max_turns (capacity): 1 of 1 turns"), "{told}");
}

fn agent_that_says(text: &str) -> AgentBuilder {
    agent([Turn::text(text)])
}

#[tokio::test]
async fn inner_success_returns_answer_and_cost() {
    let inner = || {
        let model = ScriptedModel::new([Turn::text("42").usage(1_000, 100)]).price(price());
        Agent::builder(model)
    };
    let model = ScriptedModel::new([ask("what is it").usage(10, 1), Turn::text("42").usage(20, 2)])
        .price(price());
    let agent = Agent::builder(model)
        .tool(AgentTool::new("ask", "Asks.", inner().build().unwrap()))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(answers(&outcome), [(ToolStatus::Ok, "42".to_owned())]);
    assert_eq!(outcome.usage.input_tokens, Some(1_030));
    assert_eq!(outcome.usage.output_tokens, Some(103));
    assert_eq!(outcome.cost, NanoUsd(1_030_000 + 103_000_000), "to the nano-dollar");
    assert!(!outcome.cost_unknown && !outcome.usage.estimated);
}

#[tokio::test]
async fn unknown_inner_cost_is_unknown_outside() {
    let model = ScriptedModel::new([ask("what"), Turn::text("42")]).price(price());
    let agent = Agent::builder(model)
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            agent([Turn::text("42").usage(9, 9)]).build().unwrap(),
        ))
        .build()
        .unwrap();
    assert!(agent.run("go").unwrap().await.cost_unknown);
}

/// An agent whose every turn generates as much as its cap allows.
fn spender() -> AgentBuilder {
    let turn = ask("more").usage(100, 999);
    Agent::builder(ScriptedModel::new([turn]).repeat_last().price(price()))
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                let said = ScriptedModel::new([Turn::text("so").usage(100, 999)]).repeat_last();
                let said = said.price(price());
                Agent::builder(said).max_output_tokens(1_000)
            }
            .build()
            .unwrap(),
        ))
        .limits(Limits { max_unproductive_turns: None, ..Limits::default() })
        .max_output_tokens(1_000)
}

#[tokio::test]
async fn ceiling_holds_for_all_inner_runs() {
    // A turn costs nearly a dollar, so four fit in total, in whichever run they happen.
    let ceiling = 4.2;
    let heard = Arc::new(Mutex::new(0));
    let count = Arc::clone(&heard);
    let agent = spender()
        .limits(Limits {
            max_budget_usd: Some(ceiling),
            max_unproductive_turns: None,
            ..Limits::default()
        })
        .tool(AgentTool::new("more", "Asks.", spender().build().unwrap()))
        .on_event(move |event| {
            *count.lock().unwrap() +=
                usize::from(matches!(event.kind, AgentEventKind::Finished { .. }));
        })
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd, "{outcome:?}");
    assert!(outcome.cost <= NanoUsd::from_usd(ceiling), "{}", outcome.cost);
    assert!(outcome.cost >= NanoUsd::from_usd(3.9), "{}", outcome.cost);
    assert_eq!(*heard.lock().unwrap(), 1, "one ending is reported");
}

/// An agent that calls two inner agents at once, and so on, with answers of this many tokens.
fn family(levels: usize, output: u64) -> AgentBuilder {
    let two = ask("one").and_call("ask", &json!({"task": "two"})).usage(10, output);
    let turns = if levels == 0 { [Turn::text("so").usage(10, output)] } else { [two] };
    let mut agent = Agent::builder(ScriptedModel::new(turns).repeat_last());
    if levels > 0 {
        let inner = family(levels - 1, output).build().unwrap();
        agent = agent.tool(AgentTool::new("ask", "Asks.", inner));
    }
    agent
        .limits(Limits {
            max_unproductive_turns: None,
            max_consecutive_mistakes: None,
            ..Limits::default()
        })
        .max_output_tokens(256)
}

#[tokio::test]
async fn token_ceiling_holds_for_inner_runs() {
    for (seed, levels) in (0..12_u64).zip([1, 2, 3].into_iter().cycle()) {
        let max = 1_000 + seed * 977;
        let whole = SharedBudget::tokens(20_000);
        let limits = Limits {
            max_tokens: Some(max),
            max_turns: None,
            max_unproductive_turns: None,
            max_consecutive_mistakes: None,
            ..Limits::default()
        };
        let output = 1 + seed * 61 % 256;
        let mut agent = family(levels, output).limits(limits);
        if seed % 2 == 0 {
            agent = agent.shared_budget(whole.clone());
        }
        let outcome = agent.build().unwrap().run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorMaxTokens, "{seed}: {outcome:?}");
        let used = outcome.tokens_upper.unwrap();
        assert!(used <= max, "{seed}: {used} of {max}");
        assert!(used >= outcome.usage.total_tokens() && outcome.model_calls > 0, "{seed}");
        if seed % 2 == 0 {
            assert_eq!((whole.spent_tokens(), whole.committed_tokens()), (used, used), "{seed}");
        }
    }
}

#[tokio::test]
async fn shared_budget_continues_a_cut_answer() {
    // A high ceiling of the outer run does not lower the caps of an inner run.
    let model = ScriptedModel::new([ask("it").usage(10, 10), Turn::text("done").usage(10, 10)]);
    let agent = Agent::builder(model.price(price()))
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                let half = Turn::text("The first half,").finish("length").usage(20, 1_000);
                let rest = Turn::text(" and the second.").usage(20, 10);
                Agent::builder(ScriptedModel::new([half, rest]).price(price()))
                    .max_output_tokens(1_000)
                    .limits(Limits { max_continuations: 1, ..Limits::default() })
            }
            .build()
            .unwrap(),
        ))
        .limits(Limits {
            max_budget_usd: Some(100.0),
            max_tokens: Some(1_000_000),
            ..Limits::default()
        })
        .max_output_tokens(300)
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    let [(status, told)] = &answers(&outcome)[..] else { panic!("{outcome:?}") };
    assert_eq!(*status, ToolStatus::Ok, "{told}");
}

#[tokio::test(start_paused = true)]
async fn parallel_inner_runs_share_remaining_budget() {
    let ceiling = NanoUsd::from_usd(3.2);
    let whole = SharedBudget::new(ceiling);
    let four =
        (0..3).fold(ask("0"), |turn, n| turn.and_call("ask", &json!({"task": n.to_string()})));
    let model = ScriptedModel::new([four.usage(10, 10), Turn::text("done").usage(10, 10)]);
    let agent = Agent::builder(model.price(price()))
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                let slow = Turn::text("so").usage(100, 1_000).after(Duration::from_millis(20));
                Agent::builder(ScriptedModel::new([slow]).repeat_last().price(price()))
                    .max_output_tokens(1_000)
            }
            .build()
            .unwrap(),
        ))
        .shared_budget(whole.clone())
        .max_output_tokens(300)
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    let watched = whole.clone();
    while handle.next().await.is_some() {
        assert!(watched.committed() <= ceiling, "{}", watched.committed());
    }
    let outcome = handle.await;
    let results = answers(&outcome);
    let refused = results.iter().filter(|(status, _)| *status == ToolStatus::Error).count();
    assert_eq!((results.len(), refused), (4, 1), "three fit, one does not: {results:?}");
    assert!(results.iter().any(|(_, told)| told.contains("error_max_budget_usd (capacity)")));
    assert_eq!(whole.reserved(), NanoUsd::ZERO);
    assert_eq!(whole.spent(), outcome.cost);
}

#[tokio::test]
async fn budget_given_twice_is_booked_once() {
    let whole = SharedBudget::new(NanoUsd::from_usd(10.0));
    let inner = whole.clone();
    let model = ScriptedModel::new([ask("it").usage(10, 1), Turn::text("done").usage(10, 1)]);
    let agent = Agent::builder(model.price(price()))
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                let said = Turn::text("so").usage(100, 500);
                Agent::builder(ScriptedModel::new([said]).price(price()))
                    .shared_budget(inner.clone())
                    .max_output_tokens(1_000)
            }
            .build()
            .unwrap(),
        ))
        .shared_budget(whole.clone())
        .limits(Limits { max_budget_usd: Some(5.0), ..Limits::default() })
        .max_output_tokens(300)
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((whole.spent(), whole.reserved()), (outcome.cost, NanoUsd::ZERO));
}

#[tokio::test]
async fn ceiling_without_price_prevents_inner_run() {
    let model = ScriptedModel::new([ask("what").usage(1, 1), Turn::text("I cannot.").usage(1, 1)]);
    let agent = Agent::builder(model.price(price()))
        .tool(AgentTool::new("ask", "Asks.", agent_that_says("for free").build().unwrap()))
        .limits(Limits { max_budget_usd: Some(5.0), ..Limits::default() })
        .max_output_tokens(300)
        .on_event(|e| eprintln!("{e:?}"))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    let [(status, told)] = &answers(&outcome)[..] else { panic!("{outcome:?}") };
    assert_eq!(*status, ToolStatus::Error);
    assert!(told.contains("needs a price"), "{told}");
}

#[tokio::test]
async fn stopped_run_counts_inner_spending() {
    for terminate in [false, true] {
        let inner = || {
            let turns =
                [ask("x").usage(1_000, 100), Turn::text("late").after(Duration::from_secs(3600))];
            Agent::builder(ScriptedModel::new(turns).price(price())).tool(AgentTool::new(
                "ask",
                "Asks.",
                agent_that_says("fine").build().unwrap(),
            ))
        };
        let model = ScriptedModel::new([ask("go").usage(10, 1)]).price(price());
        let told = Arc::new(Mutex::new(0));
        let count = Arc::clone(&told);
        let agent = Agent::builder(model)
            .tool(AgentTool::new(
                "ask",
                "Asks.",
                {
                    let count = Arc::clone(&count);
                    inner().on_event(move |event| {
                        if matches!(event.kind, AgentEventKind::TurnStarted { .. })
                            && event.turn() == Some(2)
                        {
                            *count.lock().unwrap() += 1;
                        }
                    })
                }
                .build()
                .unwrap(),
            ))
            .build()
            .unwrap();
        let handle = agent.run("go").unwrap();
        eventually("the inner run is in its second turn", || *told.lock().unwrap() == 1).await;
        let began = Instant::now();
        if terminate {
            agent.terminate();
        } else {
            agent.cancel();
        }
        let outcome = handle.await;
        assert!(began.elapsed() < HANG);
        assert!(outcome.cost >= NanoUsd(1_010_000 + 101_000_000), "{terminate}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terminate_leaves_nothing_of_inner_run() {
    /// Counts its live instances.
    struct There(Arc<Mutex<i32>>);
    impl Drop for There {
        fn drop(&mut self) {
            *self.0.lock().unwrap() -= 1;
        }
    }
    for _ in 0..50 {
        let there = Arc::new(Mutex::new(0));
        let count = Arc::clone(&there);
        let agent = agent([ask("it")])
            .tool(AgentTool::new(
                "ask",
                "Asks.",
                {
                    let count = Arc::clone(&count);
                    agent([Turn::call("hang", &json!({}))]).tool(tool_fn(
                        "hang",
                        "Hangs.",
                        move |_: serde_json::Value, _| {
                            *count.lock().unwrap() += 1;
                            let there = There(Arc::clone(&count));
                            async move {
                                std::future::pending::<()>().await;
                                drop(there);
                                "never"
                            }
                        },
                    ))
                }
                .build()
                .unwrap(),
            ))
            .build()
            .unwrap();
        let handle = agent.run("go").unwrap();
        eventually("the inner tool runs", || *there.lock().unwrap() == 1).await;
        agent.terminate();
        assert_eq!(handle.await.termination, Termination::Terminated);
        assert_eq!(
            *there.lock().unwrap(),
            0,
            "the inner run is gone before the ending is reported"
        );
    }
}

#[test]
fn runtime_shutdown_charges_running_call() {
    let ceiling = NanoUsd::from_usd(5.0);
    let whole = SharedBudget::new(ceiling);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let handle = runtime.block_on(async {
        let long = "word ".repeat(10_000);
        let words = Turn::text(long).pace(Duration::from_millis(2));
        let agent = Agent::builder(ScriptedModel::new([words]).price(price()))
            .shared_budget(whole.clone())
            .max_output_tokens(1_000)
            .build()
            .unwrap();
        let mut handle = agent.run("go").unwrap();
        let mut deltas = 0;
        while deltas < 20 {
            let event = handle.next().await.unwrap();
            deltas += usize::from(matches!(event.kind, AgentEventKind::TextDelta { .. }));
        }
        handle
    });
    assert!(whole.reserved() > NanoUsd::ZERO);
    drop(runtime);
    let outcome = handle.try_outcome().unwrap();
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.usage.estimated && outcome.cost > NanoUsd::ZERO, "{outcome:?}");
    let upper = outcome.cost_upper.unwrap();
    assert_eq!((whole.spent(), whole.reserved()), (upper, NanoUsd::ZERO));
}

#[tokio::test]
async fn inner_agent_serves_many_calls() {
    let inner = Agent::builder(ScriptedModel::new([Turn::text("so")]).repeat_last());
    let inner = inner.build().unwrap();
    let two = ask("one").and_call("ask", &json!({"task": "two"}));
    let outer = agent([two, ask("three"), Turn::text("done")])
        .tool(AgentTool::new("ask", "Asks.", inner.clone()))
        .build()
        .unwrap();
    let outcome = outer.run("go").unwrap().await;
    let told = (ToolStatus::Ok, "so".to_owned());
    assert_eq!(answers(&outcome), [told.clone(), told.clone(), told]);
    // The agent is not used up, and its own terminate refuses later calls.
    assert!(inner.run("alone").unwrap().await.is_success());
    inner.terminate();
    let outer = agent([ask("four"), Turn::text("done")])
        .tool(AgentTool::new("ask", "Asks.", inner))
        .build()
        .unwrap();
    let outcome = outer.run("go").unwrap().await;
    let [(status, told)] = &answers(&outcome)[..] else { panic!("{outcome:?}") };
    assert_eq!(*status, ToolStatus::Error);
    assert!(told.contains("AgentLoop has been terminated"), "{told}");
}

//! Tests that nothing of a run starts after `cancel` or `terminate` has returned: no tool, model
//! call, hook, approval or compaction, of the run itself or of an agent that one of its tools runs.
//!
//! ```text
//! cargo test -p endstop --test it late_starts                                    # 66 runs of each
//! ENDSTOP_CANCELS=10000 cargo test -p endstop --test it late_starts -- --nocapture
//! ```
//!
//! Each run is stopped at one of its events, from the observer that receives it or from another
//! thread, without a journal and with one whose writes take 2 ms. The first instruction of all user
//! code checks if the stop has returned.

mod probe;

use self::probe::*;
use crate::support::HANG;
use endstop::agent::AgentTool;
use endstop::compaction::{CompactionRequest, DropOldTurns};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::hook::{Approver, CompactionFuture, Compactor, Hook, HookFuture};
use endstop::journal::{
    Journal, JournalError, Record, RecordedRun, RunHeader, RunJournal, SqliteJournal,
};
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Tool, ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, Limits, Message, MessageId, Outcome, Permission, Role, Termination, ToolCall, Watch,
    compaction::{Compaction, ProactiveCompaction},
    hook::{ChangedResult, ConsultPoint, HookDecision, Hooks},
    provider::{ErrorClass, ModelError},
};
use futures_core::Stream;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

/// The events at which a run is stopped.
const EVENTS: [&str; 11] = [
    "turn_started",
    "delta",
    "turn_ended",
    "attempt_failed",
    "tool_started",
    "tool_ended",
    "told",
    "fired",
    "compacted",
    "compaction_failed",
    "stopping",
];

/// The origin of a stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Observer,
    Thread,
}

/// Stops a run, and records that the stop has returned.
fn stop(agent: &Agent, probe: &Probe, terminate: bool) {
    if terminate {
        agent.terminate()
    } else {
        agent.cancel()
    }
    probe.returned.store(true, Ordering::SeqCst);
}

fn name(event: &AgentEvent) -> &'static str {
    match event.kind {
        AgentEventKind::TextDelta { .. } => "delta",
        AgentEventKind::TurnStarted { .. } => "turn_started",
        AgentEventKind::TurnFinished { .. } => "turn_ended",
        AgentEventKind::AttemptFailed { .. } => "attempt_failed",
        AgentEventKind::ToolStarted { .. } => "tool_started",
        AgentEventKind::ToolFinished { .. } => "tool_ended",
        AgentEventKind::MessageInjected { .. } => "told",
        AgentEventKind::RuleHit { .. } => "fired",
        AgentEventKind::Compacted { .. } => "compacted",
        AgentEventKind::CompactionFailed { .. } => "compaction_failed",
        AgentEventKind::Stopping { .. } => "stopping",
        _ => "",
    }
}

fn said(id: u64) -> Message {
    let role = if id % 2 == 1 { Role::User } else { Role::Assistant };
    Message::text(MessageId(id), role, "some words of an old turn ".repeat(8))
}

/// Stops the runs sent to it, each after the given number of iterations of a spin loop.
type Stopper = mpsc::Sender<(Agent, Probe, bool, u64)>;

fn stopper() -> Stopper {
    let (send, receive) = mpsc::channel::<(Agent, Probe, bool, u64)>();
    std::thread::spawn(move || {
        for (agent, probe, terminate, spins) in receive {
            (0..spins).for_each(|_| std::hint::spin_loop());
            stop(&agent, &probe, terminate);
        }
    });
    send
}

/// Executes one run that is stopped at an event.
async fn run(
    nth: u64,
    from: From,
    journal: Option<&SqliteJournal>,
    stopper: Stopper,
    counts: &Arc<Counts>,
) {
    let event = EVENTS[nth as usize % EVENTS.len()];
    // If an event occurs several times, the run is stopped at one of the first four.
    let which = match event {
        "turn_started" | "delta" | "turn_ended" | "tool_started" | "tool_ended" => {
            1 + (nth / EVENTS.len() as u64) % 4
        }
        _ => 1,
    };
    let terminate = nth.is_multiple_of(7);
    let changes = nth.is_multiple_of(2);
    let probe = Probe { returned: Arc::default(), counts: Arc::clone(counts), changes };
    let inner = {
        let probe = probe.clone();
        AgentTool::new(
            "ask",
            "Asks.",
            {
                let turns = [Turn::call("work", &json!({})), Turn::text("so")].map(Some);
                Agent::builder(probe.model(turns)).tool(probe.tool("work"))
            }
            .build()
            .unwrap(),
        )
    };
    let four = |last: &str, arguments: &Value| {
        let turn = Turn::call("work", &json!({"n": 1})).and_call("work", &json!({"n": 2}));
        Some(turn.and_call("guarded", &json!({})).and_call(last, arguments))
    };
    let turns = match event {
        // A tool halts the run while another waits to be stopped.
        "stopping" => {
            let turn = Turn::call("wait", &json!({})).and_call("halt", &json!({}));
            vec![Some(turn.and_call("work", &json!({})))]
        }
        _ => vec![
            four("ask", &json!({"task": "it"})),
            None,
            four("work", &json!({"n": 3})),
            Some(Turn::text("this is the answer")),
        ],
    };
    let this = Arc::new(OnceLock::<Agent>::new());
    let (stopped, heard) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut builder = Agent::builder(probe.model(turns))
        .tool(Parallel(probe.tool("work")))
        .tool(Parallel(probe.tool("guarded")))
        .tool(Parallel(probe.tool("wait")))
        .tool(Parallel(probe.tool("halt")))
        .tool(inner)
        .permission("guarded", Permission::Ask)
        .approver(probe.clone())
        .hook(probe.clone())
        .compactor(ProbedCompactor {
            probe: probe.clone(),
            fails: event == "compaction_failed",
            asked: AtomicUsize::new(0),
        })
        .proactive_compaction(ProactiveCompaction::Ask)
        .watches([Watch::parse(r#"warn:max_steps={"steps": 1}"#).unwrap()])
        .limits(Limits {
            cancel_grace: Duration::from_millis(200),
            max_unproductive_turns: None,
            ..Limits::default()
        });
    if let Some(journal) = journal {
        builder = builder.journal(Slow(journal.clone()));
    }
    let agent = {
        let (this, probe, counts) = (Arc::clone(&this), probe.clone(), Arc::clone(counts));
        builder.on_event(move |happened| {
            if name(happened) != event || heard.fetch_add(1, Ordering::SeqCst) + 1 != which {
                return;
            }
            if stopped.swap(true, Ordering::SeqCst) {
                return;
            }
            *counts.stopped.lock().unwrap().entry(event).or_default() += 1;
            let agent = this.get().unwrap().clone();
            match from {
                From::Observer => stop(&agent, &probe, terminate),
                From::Thread => {
                    let job = (agent, probe.clone(), terminate, nth % 997 * 20);
                    stopper.send(job).unwrap();
                }
            }
        })
    };
    let agent = agent.build().unwrap();
    this.set(agent.clone()).ok().unwrap();
    let earlier: Vec<Message> = (1..=8).map(said).collect();
    let outcome = agent.session_from(earlier).unwrap().run("Do it.").unwrap().await;
    agent.settled().await;
    let was_stopped = matches!(
        outcome.termination,
        Termination::Cancelled
            | Termination::Terminated
            | Termination::Stop
            | Termination::ErrorHalted
            | Termination::ErrorCompactionFailed
    );
    let (termination, by) = (outcome.termination, outcome.decided_by);
    assert!(was_stopped, "{event} {which} {from:?}: {termination} {by:?}");
}

#[allow(clippy::print_stdout, reason = "the counts are the result of the test")]
async fn nothing_starts_late(from: From, slow: bool) {
    let runs = std::env::var("ENDSTOP_CANCELS").ok().and_then(|n| n.parse().ok()).unwrap_or(66);
    let dir = tempfile::tempdir().unwrap();
    let journal = slow.then(|| SqliteJournal::open(dir.path().join("journal.db")).unwrap());
    let counts = Arc::<Counts>::default();
    let (next, stopper) = (Arc::new(AtomicU64::new(0)), stopper());
    let mut lanes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (next, counts) = (Arc::clone(&next), Arc::clone(&counts));
        let (journal, stopper) = (journal.clone(), stopper.clone());
        lanes.spawn(async move {
            loop {
                let nth = next.fetch_add(1, Ordering::SeqCst);
                if nth >= runs {
                    return;
                }
                run(nth, from, journal.as_ref(), stopper.clone(), &counts).await;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
    let stopped = counts.stopped.lock().unwrap().clone();
    let ran = counts.ran.lock().unwrap().clone();
    let late = counts.late.lock().unwrap().clone();
    println!(
        "{from:?}, slow journal {slow}, {runs} runs: stopped {stopped:?}; ran {ran:?}; late {late:?}"
    );
    assert!(late.is_empty(), "started after the stop had returned: {late:?} of {ran:?}");
    // Each event stopped some runs, and each kind of code could have started.
    assert_eq!(stopped.len(), EVENTS.len(), "{stopped:?}");
    for what in ["tool", "changed tool", "model call", "request", "hook", "approval", "compaction"]
    {
        assert!(ran.contains_key(what), "{what}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_an_observers_stop() {
    nothing_starts_late(From::Observer, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_another_threads_stop() {
    nothing_starts_late(From::Thread, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_stop_slow_journal() {
    nothing_starts_late(From::Observer, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_thread_stop_journal() {
    nothing_starts_late(From::Thread, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancel_does_not_wait_for_tool() {
    // The first poll of the tool blocks its thread until the cancelling thread has finished
    // waiting.
    let (send, receive) = mpsc::channel::<()>();
    let (receive, started) = (Mutex::new(receive), Arc::new(AtomicBool::new(false)));
    let (begins, released) = (Arc::clone(&started), Arc::new(AtomicBool::new(false)));
    let (receive, ends) = (Arc::new(receive), Arc::clone(&released));
    let agent = Agent::builder(ScriptedModel::new([Turn::call("block", &json!({}))]))
        .tool(tool_fn("block", "Blocks.", move |_: Value, _| {
            begins.store(true, Ordering::SeqCst);
            ends.store(receive.lock().unwrap().recv_timeout(HANG).is_ok(), Ordering::SeqCst);
            async { "done" }
        }))
        .build()
        .unwrap();
    let handle = agent.run("go").unwrap();
    crate::support::eventually("the tool blocks", || started.load(Ordering::SeqCst)).await;
    agent.cancel();
    send.send(()).unwrap();
    assert_eq!(handle.await.termination, Termination::Cancelled);
    agent.settled().await;
    assert!(released.load(Ordering::SeqCst), "the cancel waited for the tool");
}

#[tokio::test]
async fn tool_can_cancel_its_own_run() {
    // On a single thread, a cancel that waited for the tool's first poll would wait for itself.
    let this = Arc::new(OnceLock::<Agent>::new());
    let own = Arc::clone(&this);
    let calls = Turn::call("stop", &json!({})).and_call("stop", &json!({"n": 2}));
    let agent = Agent::builder(ScriptedModel::new([calls]))
        .tool(tool_fn("stop", "Stops.", move |_: Value, _| {
            own.get().unwrap().cancel();
            async { "stopped" }
        }))
        .build()
        .unwrap();
    this.set(agent.clone()).ok().unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    let results: Vec<_> =
        outcome.messages.iter().flat_map(|message| message.tool_results()).collect();
    let first = (results[0].content.as_str(), results[0].started);
    assert_eq!(first, ("stopped", true), "{results:?}");
    assert!(!results[1].started, "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_reaches_tools_before_the_journal() {
    // The journal blocks the write of the cancel until the tool has received its stop request, or
    // until it gives up.
    struct Stuck(SqliteJournal, Arc<AtomicBool>, Arc<AtomicBool>);
    struct StuckRun(Box<dyn RunJournal>, Arc<AtomicBool>, Arc<AtomicBool>);
    impl Journal for Stuck {
        fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
            Ok(Box::new(StuckRun(self.0.begin(header)?, Arc::clone(&self.1), Arc::clone(&self.2))))
        }
        fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
            self.0.load(id)
        }
        fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
            self.0.resume(id)
        }
    }
    impl RunJournal for StuckRun {
        fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
            let began = std::time::Instant::now();
            while records.iter().any(|record| record.name == "cancel")
                && !self.1.load(Ordering::SeqCst)
            {
                self.2.store(began.elapsed() > HANG, Ordering::SeqCst);
                if self.2.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            self.0.append(records)
        }
        fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
            self.0.ended(outcome, text)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path().join("journal.db")).unwrap();
    let (started, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begins, hears) = (Arc::clone(&started), Arc::clone(&heard));
    let gave_up = Arc::new(AtomicBool::new(false));
    let agent = Agent::builder(ScriptedModel::new([Turn::call("wait", &json!({}))]))
        .tool(tool_fn("wait", "Waits.", move |_: Value, context: ToolContext| {
            let (begins, hears) = (Arc::clone(&begins), Arc::clone(&hears));
            async move {
                begins.store(true, Ordering::SeqCst);
                context.cancelled().await;
                hears.store(true, Ordering::SeqCst);
                ToolOutput::error("stopped")
            }
        }))
        .journal(Stuck(journal, Arc::clone(&heard), Arc::clone(&gave_up)))
        .build()
        .unwrap();
    let handle = agent.run("go").unwrap();
    crate::support::eventually("the tool waits", || started.load(Ordering::SeqCst)).await;
    agent.cancel();
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(heard.load(Ordering::SeqCst) && !gave_up.load(Ordering::SeqCst));
}

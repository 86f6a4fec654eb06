//! Resuming a run of the journal.

use super::{Note, Place, agent, echo, price};
use crate::support::{answers, eventually};
use endstop::agent::AgentTool;
use endstop::budget::SharedBudget;
use endstop::compaction::{CompactionConfig, CompactionRequest};
use endstop::hook::{CompactionFuture, Compactor};
use endstop::journal::{
    Journal, JournalError, Record, RecordedRun, RunHeader, RunJournal, SqliteJournal,
};
use endstop::schema::OutputSchema;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, Limits, Message, MessageId, NanoUsd, Outcome, Resume, Role, StartError,
    Termination, ToolStatus, compaction::Compaction, core::EventKind,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A journal that ignores all records after a given number, as if the process had died there.
#[derive(Clone)]
pub(super) struct Dies {
    pub(super) inner: SqliteJournal,
    pub(super) after: u32,
}

struct DyingLog {
    inner: Box<dyn RunJournal>,
    left: u32,
}

impl Journal for Dies {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(DyingLog { inner: self.inner.begin(header)?, left: self.after }))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.inner.load(id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.inner.resume(id)
    }
}

impl RunJournal for DyingLog {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
        self.left = left;
        self.inner.append(records)
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        if self.left == 0 { Ok(()) } else { self.inner.ended(outcome, text) }
    }
}

/// Turns 1 to 6 call a tool, the seventh answers. The first `done` turns are left out.
fn script(done: usize) -> Vec<Turn> {
    let mut turns: Vec<Turn> = (1..=6)
        .map(|n| Turn::call("count", &json!({"text": format!("{n}")})).usage(100 * n, 10))
        .collect();
    turns.push(Turn::text("counted").usage(700, 10));
    turns.into_iter().skip(done).collect()
}

fn turns_kept(run: &RecordedRun) -> usize {
    run.events.iter().filter(|event| event.kind.name() == "turn_ended").count()
}

#[tokio::test]
async fn resume_after_any_record_repeats_nothing() {
    let counted = Arc::new(AtomicU32::new(0));
    let count = |repeatable: bool| {
        let counted = Arc::clone(&counted);
        let tool = tool_fn("count", "Counts.", move |note: Note, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { ToolOutput::ok(note.text) }
        });
        if repeatable { tool.repeatable() } else { tool }
    };
    let whole = {
        let place = Place::new();
        let journal = place.journal();
        let agent = agent(script(0), &journal).tool(count(false)).build().unwrap();
        agent.run("count").unwrap().outcome().await
    };
    for repeatable in [false, true] {
        let mut lost = 0;
        // One record for the start, two for each of the six turns with a tool, one for the last
        // turn.
        for after in 1..14 {
            let place = Place::new();
            counted.store(0, Ordering::SeqCst);
            let id = {
                let inner = place.journal();
                let dies = Dies { inner: inner.clone(), after };
                let agent = agent(script(0), &inner).journal(dies).tool(count(repeatable)).build();
                let outcome = agent.unwrap().run("count").unwrap().outcome().await;
                outcome.run_id.clone().unwrap()
            };
            // The process and its lock are gone.
            let journal = place.journal();
            let before = journal.load(&id).unwrap();
            assert!(before.outcome.is_none(), "after {after}");
            let done = turns_kept(&before);
            counted.store(0, Ordering::SeqCst);
            let agent = agent(script(done), &journal).tool(count(repeatable)).build().unwrap();
            let outcome = agent.resume(Resume::new(&id)).unwrap().outcome().await;

            assert_eq!(outcome.termination, Termination::Stop, "after {after}");
            assert_eq!(outcome.run_id.as_deref(), Some(id.as_str()));
            assert_eq!((outcome.turns, outcome.tool_calls), (7, 6), "after {after}");
            let told = answers(&outcome);
            let cut: Vec<_> = told.iter().filter(|(status, _)| *status != ToolStatus::Ok).collect();
            lost += cut.len();
            for (status, content) in cut {
                assert_eq!(*status, ToolStatus::Aborted);
                assert!(content.contains("may have done"), "{content}");
            }
            let asked = before.effects.iter().flatten();
            let calls = asked.filter(|effect| effect["effect"] == "call_model").count();
            let in_flight = calls > turns_kept(&before);
            // The possible cost of the cut call is added and marked as an estimate.
            assert_eq!(outcome.usage.estimated, in_flight, "after {after}");
            assert!(outcome.cost >= whole.cost, "after {after}");
            assert!(outcome.cost.0 <= whole.cost.0 + 5_000_000, "after {after}: {}", outcome.cost);
            assert_eq!(outcome.model_calls, whole.model_calls + u32::from(in_flight));

            let run = journal.load(&id).unwrap();
            let again = run.replay(None).unwrap();
            assert_eq!(
                serde_json::to_string(again.outcome().unwrap()).unwrap(),
                run.outcome.unwrap().to_string()
            );
            let written = journal.runs(10).unwrap();
            assert_eq!(written.len(), 1, "one run, one ending");
        }
        assert_eq!(lost, if repeatable { 0 } else { 6 });
    }
}

#[tokio::test]
async fn raised_limit_continues_as_new_run() {
    let place = Place::new();
    let journal = place.journal();
    let limits = |max_turns| Limits { max_turns: Some(max_turns), ..Limits::default() };
    let build =
        |done: usize, max_turns| {
            agent(script(done), &journal)
                .tool(tool_fn("count", "Counts.", |note: Note, _| async move {
                    ToolOutput::ok(note.text)
                }))
                .limits(limits(max_turns))
                .build()
                .unwrap()
        };
    let first = build(0, 3).run("count").unwrap().outcome().await;
    assert_eq!(first.termination, Termination::ErrorMaxTurns);
    let id = first.run_id.clone().unwrap();

    let same = build(3, 3).resume(Resume::new(&id)).unwrap_err();
    assert!(matches!(&same, StartError::Ended { .. }), "{same:?}");
    let why = same.to_string();
    assert!(why.contains("error_max_turns") && why.contains("raise"), "{why}");

    let session = build(3, 10).session();
    let second = session.resume(Resume::new(&id)).unwrap().outcome().await;
    assert_eq!(second.termination, Termination::Stop);
    assert_eq!((second.turns, second.model_calls), (7, 7));
    assert!(!second.usage.estimated, "nothing was lost");
    assert!(second.messages.starts_with(&first.messages[..6]));
    assert_eq!(session.messages(), second.messages, "the conversation is the session's");
    assert_ne!(second.run_id, first.run_id);

    let runs = journal.runs(10).unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].continues.as_deref(), Some(id.as_str()));
    let unchanged = journal.load(&id).unwrap();
    assert_eq!(unchanged.outcome.unwrap()["termination"], "error_max_turns");
    let again = journal.load(&runs[0].id).unwrap();
    let replayed = again.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(replayed.outcome().unwrap()).unwrap(),
        serde_json::to_string(&second).unwrap()
    );

    let done = build(7, 10).resume(Resume::new(&runs[0].id)).unwrap_err().to_string();
    assert!(done.contains("ended as stop") && done.contains("nothing to resume"), "{done}");
}

#[tokio::test]
async fn changed_configuration_needs_consent_to_resume() {
    let place = Place::new();
    let journal = place.journal();
    let id = {
        let dies = Dies { inner: place.journal(), after: 3 };
        let agent = agent(script(0), &journal).journal(dies).tool(echo()).system("old").build();
        agent.unwrap().run("count").unwrap().outcome().await.run_id.clone().unwrap()
    };
    let other = || agent(script(1), &journal).system("new").build().unwrap();
    let agent = other();
    let error = agent.resume(Resume::new(&id)).unwrap_err();
    let StartError::Changed(changes) = &error else { panic!("{error:?}") };
    let what: Vec<&str> = changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(what, ["instructions", "tool echo", "tool finish"]);
    assert!(error.to_string().contains("was old, is new"), "{error}");
    assert_eq!(agent.lifecycle(), endstop::Lifecycle::Idle, "nothing was begun");

    let outcome = other().resume(Resume::new(&id).accept_changes()).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorConsecutiveMistakes, "the tool is gone");
    assert!(answers(&outcome).last().unwrap().1.contains("unknown tool"));
}

#[tokio::test]
async fn driven_run_cannot_be_resumed_elsewhere() {
    let place = Place::new();
    let journal = place.journal();
    let hang = tool_fn("count", "Hangs.", |_: Note, context| async move {
        context.cancelled().await;
        ToolOutput::ok("stopped")
    });
    let agent_one = agent(script(0), &journal).tool(hang).build().unwrap();
    let mut handle = agent_one.run("count").unwrap();
    while let Some(event) = handle.next().await {
        if serde_json::to_value(&event).unwrap()["type"] == "tool_started" {
            break;
        }
    }
    let other = place.journal();
    let run = other.runs(1).unwrap().remove(0);
    assert!(run.running);
    assert!(other.interrupted().unwrap().is_empty(), "its process lives");
    let thief = agent(script(1), &other).tool(echo()).build().unwrap();
    let error = thief.resume(Resume::new(&run.id)).unwrap_err().to_string();
    assert!(error.contains("driven by another process"), "{error}");
    agent_one.cancel();
    handle.outcome().await;
    assert!(!other.runs(1).unwrap()[0].running);
}

#[tokio::test]
async fn missing_journal_or_run_names_fix() {
    let place = Place::new();
    let journal = place.journal();
    let none = agent([], &journal).build().unwrap();
    let error = none.resume(Resume::new("zzz")).unwrap_err();
    assert!(matches!(&error, StartError::Journal(_)), "{error:?}");
    assert!(error.to_string().contains("no run `zzz`"), "{error}");
    let bare = endstop::Agent::builder(endstop::testkit::ScriptedModel::new([])).build().unwrap();
    let error = bare.resume(Resume::new("zzz")).unwrap_err().to_string();
    assert!(error.contains("AgentBuilder::journal"), "{error}");
    assert_eq!(none.lifecycle(), endstop::Lifecycle::Idle);
}

#[tokio::test]
async fn resume_books_earlier_spending_once() {
    // Also if a call was running, which is booked as an estimate and repeated.
    for after in 1..10 {
        let place = Place::new();
        let whole = || SharedBudget::new(NanoUsd::from_usd(10.0));
        let id = {
            let inner = place.journal();
            let dies = Dies { inner: inner.clone(), after };
            let agent = agent(script(0), &inner).journal(dies).shared_budget(whole());
            let agent = agent.max_output_tokens(500).tool(echo_count()).build().unwrap();
            agent.run("count").unwrap().outcome().await.run_id.unwrap()
        };
        let (journal, budget) = (place.journal(), whole());
        let done = turns_kept(&journal.load(&id).unwrap());
        let agent = agent(script(done), &journal).shared_budget(budget.clone());
        let agent = agent.max_output_tokens(500).tool(echo_count()).build().unwrap();
        let outcome = agent.resume(Resume::new(&id)).unwrap().outcome().await;
        assert_eq!(outcome.termination, Termination::Stop, "after {after}: {outcome:?}");
        let booked = (budget.spent(), budget.reserved());
        let upper = outcome.cost_upper.unwrap();
        assert_eq!(booked, (upper, NanoUsd::ZERO), "after {after}");
    }
}

/// A journal that calls back for each record before writing it.
struct Watched<F>(SqliteJournal, F);

struct WatchedRun<F>(Box<dyn RunJournal>, F);

impl<F: Fn(&Record) -> bool + Clone + Send + Sync + 'static> Journal for Watched<F> {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(WatchedRun(self.0.begin(header)?, self.1.clone())))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.0.load(id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.0.resume(id)
    }
}

/// Ignores all records from the first for which the callback returns false, as if the process had
/// died there.
impl<F: Fn(&Record) -> bool + Send + 'static> RunJournal for WatchedRun<F> {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let lives = records.iter().map(&self.1).take_while(|lives| *lives).count();
        self.0.append(&records[..lives])
    }
    fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inner_spending_is_journalled_at_once() {
    let place = Place::new();
    let (spent, dead) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    // The process dies after two reports of spending. The outer run has no other event between
    // them, because its only tool runs all the time.
    let log = {
        let (spent, dead) = (Arc::clone(&spent), Arc::clone(&dead));
        move |record: &Record| {
            let lives = !dead.load(Ordering::SeqCst);
            if lives && record.name == "spent" && spent.fetch_add(1, Ordering::SeqCst) == 1 {
                dead.store(true, Ordering::SeqCst);
            }
            lives
        }
    };
    let ask = |journal: &SqliteJournal| {
        agent([Turn::call("ask", &json!({"task": "it"})).usage(10, 1), Turn::text("done")], journal)
    };
    let waits = Arc::clone(&spent);
    let tool = move || {
        let waits = Arc::clone(&waits);
        AgentTool::new(
            "ask",
            "Asks.",
            {
                let look = |n| Turn::call("look", &json!({ "n": n })).usage(1_000, 100);
                let turns = [look(1), look(2), Turn::text("so")];
                let (waits, calls) = (Arc::clone(&waits), AtomicU32::new(0));
                // Each inner turn ends before its spending is in the journal, and the next waits for
                // that.
                let look = tool_fn("look", "Looks.", move |_: serde_json::Value, _| {
                    let (waits, nth) =
                        (Arc::clone(&waits), calls.fetch_add(1, Ordering::SeqCst) + 1);
                    async move {
                        eventually("the outer journal has it", || {
                            waits.load(Ordering::SeqCst) >= nth
                        })
                        .await;
                        ToolOutput::ok("seen")
                    }
                });
                Agent::builder(ScriptedModel::new(turns).price(price())).tool(look)
            }
            .build()
            .unwrap(),
        )
    };
    let id = {
        let journal = Watched(place.journal(), log);
        let agent = ask(&place.journal()).journal(journal).tool(tool()).build().unwrap();
        let outcome = agent.run("go").unwrap().await;
        agent.settled().await;
        outcome.run_id.unwrap()
    };
    let recorded = place.journal().load(&id).unwrap();
    let names: Vec<&str> = recorded.events.iter().map(|event| event.kind.name()).collect();
    assert_eq!(names.last(), Some(&"spent"), "the process died while the tool ran: {names:?}");
    assert_eq!(names.iter().filter(|name| **name == "spent").count(), 2, "{names:?}");

    // Spending that the dead process had reported is booked once: two inner turns and one outer
    // turn.
    let (journal, budget) = (place.journal(), SharedBudget::new(NanoUsd::from_usd(10.0)));
    let agent = agent([Turn::text("done").usage(0, 0)], &journal).shared_budget(budget.clone());
    let agent = agent.max_output_tokens(500).tool(tool()).build().unwrap();
    let outcome = agent.resume(Resume::new(&id)).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let cost = |input, output| {
        NanoUsd(price().input.0 / 1_000_000 * input + price().output.0 / 1_000_000 * output)
    };
    assert_eq!(outcome.cost, cost(10, 1) + cost(2_000, 200));
    assert_eq!((budget.spent(), budget.reserved()), (outcome.cost, NanoUsd::ZERO));
}

#[tokio::test]
async fn resume_in_one_process_books_once() {
    let place = Place::new();
    let journal = place.journal();
    let whole = SharedBudget::new(NanoUsd::from_usd(10.0));
    let build = |turns: Vec<Turn>, max_turns: u32, budget: &SharedBudget| {
        let limits = Limits { max_turns: Some(max_turns), ..Limits::default() };
        let agent = agent(turns, &journal).limits(limits).shared_budget(budget.clone());
        agent.max_output_tokens(500).tool(echo_count()).build().unwrap()
    };
    let call = || Turn::call("count", &json!({"text": "1"})).usage(1_000, 100);
    let first = build(vec![call()], 1, &whole).run("count").unwrap().await;
    assert_eq!(first.termination, Termination::ErrorMaxTurns, "{first:?}");
    assert_eq!(whole.spent(), first.cost);
    let id = first.run_id.unwrap();

    // With the same budget, which has booked the first run already.
    let second = build(vec![call()], 2, &whole).resume(Resume::new(&id)).unwrap().await;
    assert_eq!(second.termination, Termination::ErrorMaxTurns, "{second:?}");
    assert!(second.cost > first.cost);
    assert_eq!((whole.spent(), whole.reserved()), (second.cost, NanoUsd::ZERO));
    let id = second.run_id.unwrap();

    // A new part of that budget books everything that the run spent; the whole has it already.
    let part = whole.part(NanoUsd::from_usd(5.0));
    let third = build(vec![call()], 3, &part).resume(Resume::new(&id)).unwrap().await;
    assert_eq!(third.termination, Termination::ErrorMaxTurns, "{third:?}");
    assert_eq!((part.spent(), whole.spent()), (third.cost, third.cost));

    // A budget of another process has booked nothing of it yet.
    let other = SharedBudget::new(NanoUsd::from_usd(10.0));
    let id = third.run_id.unwrap();
    let fourth = build(vec![Turn::text("done")], 4, &other).resume(Resume::new(&id)).unwrap().await;
    assert_eq!(fourth.termination, Termination::Stop, "{fourth:?}");
    assert_eq!((other.spent(), whole.spent()), (fourth.cost, third.cost));
}

fn echo_count() -> impl endstop::tool::Tool + 'static {
    tool_fn("count", "Counts.", |note: Note, _| async move { ToolOutput::ok(note.text) })
}

/// A compactor that never answers.
struct Hangs;

impl Compactor for Hangs {
    fn compact(&self, _: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(std::future::pending())
    }
}

/// Returns an agent with a small context window.
fn nearly_full(turns: Vec<Turn>, journal: &SqliteJournal) -> AgentBuilder {
    agent(turns, journal).tool(echo()).context_window(3_000)
}

#[tokio::test]
async fn interrupted_compaction_is_requested_again() {
    let place = Place::new();
    let id = {
        let inner = place.journal();
        let dies = Dies { inner: inner.clone(), after: 1 };
        let agent = nearly_full(vec![], &inner).journal(dies).compactor(Hangs).build().unwrap();
        let said = |id: u64| {
            let role = if id % 2 == 1 { Role::User } else { Role::Assistant };
            Message::text(MessageId(id), role, "much was said ".repeat(100))
        };
        let session = agent.session_from((1..=8).map(said).collect::<Vec<Message>>()).unwrap();
        let handle = session.run("go on").unwrap();
        let asked = || {
            let id = inner.runs(1).unwrap().first()?.id.clone();
            let run = inner.load(&id).ok()?;
            run.effects.iter().flatten().find(|effect| effect["effect"] == "compact")?;
            Some(id)
        };
        eventually("the compaction is on disk", || asked().is_some()).await;
        agent.terminate();
        handle.outcome().await;
        asked().unwrap()
    };
    // The process and its lock are gone.
    let journal = place.journal();
    let turns = vec![Turn::call("echo", &json!({"text": "a"})), Turn::text("done")];
    let agent =
        nearly_full(turns, &journal).compaction(&CompactionConfig::default()).build().unwrap();
    let outcome = agent.resume(Resume::new(&id)).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((outcome.compactions.len(), outcome.epoch), (1, 1));

    // The conversation before and after it is in the journal, with the sizes.
    let run = journal.load(&id).unwrap();
    let effects: Vec<&serde_json::Value> = run.effects.iter().flatten().collect();
    let asked = effects.iter().find(|effect| effect["effect"] == "compact").unwrap();
    assert_eq!(asked["before"]["messages"], 9);
    let told = effects.iter().find(|effect| effect["type"] == "compacted").unwrap();
    assert_eq!((&told["before"], &told["strategy"]), (&json!(9), &json!("drop")));
    assert!(told["bytes_after"].as_u64() < told["bytes_before"].as_u64(), "{told}");
    let given = run.events.iter().find_map(|event| match &event.kind {
        EventKind::Compacted { result: Compaction::Done { messages, .. }, .. } => Some(messages),
        _ => None,
    });
    assert_eq!(given.unwrap().len() as u64, told["after"].as_u64().unwrap());
    let again = run.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(again.outcome().unwrap()).unwrap(),
        run.outcome.unwrap().to_string()
    );
}

#[tokio::test]
async fn resumed_run_keeps_its_type() {
    let place = Place::new();
    let journal = place.journal();
    let one = |max_turns| Limits { max_turns: Some(max_turns), ..Limits::default() };
    let note = json!({"text": "seven"});
    let first = agent([Turn::call("echo", &note)], &journal).tool(echo()).limits(one(1));
    let outcome = first.build().unwrap().run_typed::<Note>("Note it.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    let id = outcome.run_id.clone().unwrap();

    let again = [Turn::text("seven"), Turn::text(note.to_string())];
    let again = agent(again, &journal).tool(echo()).limits(one(3)).build().unwrap();
    // Without the type, and with another one, the answer would not be what the run promised.
    assert!(matches!(again.resume(&id), Err(StartError::Changed(_))));
    assert!(matches!(again.resume_typed::<u8>(&id), Err(StartError::Changed(_))));
    let schema = OutputSchema::of::<Note>();
    let same = schema.as_value().clone();
    // The schema of the type is enough: the first answer violates it and is repaired.
    let outcome = again.resume(Resume::new(&id).output_schema(schema)).unwrap().await;
    assert_eq!((outcome.turns, outcome.structured), (3, Some(note.clone())));
    let stored = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(stored.header.output_schema, Some(same));

    let typed = agent([Turn::text(note.to_string())], &journal).tool(echo()).limits(one(3));
    let outcome = typed.build().unwrap().resume_typed::<Note>(&id).unwrap().await;
    assert_eq!(outcome.into_result().unwrap().text, "seven");
}

#[tokio::test]
async fn schema_can_be_set_on_resume() {
    let place = Place::new();
    let journal = place.journal();
    let one = |max_turns| Limits { max_turns: Some(max_turns), ..Limits::default() };
    let note = json!({"text": "seven"});
    let first = agent([Turn::call("echo", &note)], &journal).tool(echo()).limits(one(1));
    let outcome = first.build().unwrap().run("Note it.").unwrap().await;
    let id = outcome.run_id.unwrap();
    let again = [Turn::text("seven"), Turn::text(note.to_string())];
    let again = agent(again, &journal).tool(echo()).limits(one(3)).build().unwrap();
    let how = Resume::new(&id).accept_changes();
    let outcome = again.resume_typed::<Note>(how).unwrap().await;
    assert_eq!((outcome.turns, outcome.structured.clone()), (3, Some(note)));
    let id = outcome.run_id.clone().unwrap();
    assert_eq!(outcome.into_result().unwrap().text, "seven");
    // The journal replays to the same outcome, with the validation.
    let replay = journal.load(&id).unwrap().replay(None).unwrap();
    assert_eq!(replay.outcome().unwrap().structured, Some(json!({"text": "seven"})));
}

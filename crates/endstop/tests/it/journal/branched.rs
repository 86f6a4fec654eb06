//! Branching: a new run with the beginning of a journalled one.

use super::{Note, Place, agent, echo, price};
use crate::support::{eventually, over};
use endstop::compaction::{Compaction, CompactionFuture, CompactionRequest, Compactor};
use endstop::core::{EventKind, GuestMode, RunSpec};
use endstop::hook::ParkApprovals;
use endstop::journal::{Journal, PrefixError, Record, RunHeader, SqliteJournal};
use endstop::park::{Answer, RunStatus};
use endstop::policy::{PolicyEnd, StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use endstop::testkit::{ScriptedModel, Server, Turn, strict};
use endstop::tool::{Tool, ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, Branch, Limits, Message, MessageId, NanoUsd, Outcome, Permission, Resume,
    Role, StartError, Termination,
};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

const TURNS: u32 = 20;

/// A tool that appends a line to a file for each call.
fn append(file: PathBuf) -> impl Tool + 'static {
    tool_fn("append", "Appends a line.", move |note: Note, _| {
        let mut file = OpenOptions::new().create(true).append(true).open(&file).unwrap();
        writeln!(file, "{}", note.text).unwrap();
        async move { ToolOutput::ok(format!("appended {}", note.text)) }
    })
    .repeatable()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

/// Nineteen turns with a call, some with two and some with reasoning, and an answer.
fn long_script() -> Vec<Turn> {
    let turn = |nth: u32| {
        let turn = Turn::text(format!("Step {nth}."))
            .and_call("append", &json!({"text": nth.to_string()}));
        let turn =
            if nth.is_multiple_of(3) { turn.reasoning(format!("thought {nth}")) } else { turn };
        if nth.is_multiple_of(4) {
            turn.and_call("append", &json!({"text": "again"}))
        } else {
            turn
        }
    };
    (1..TURNS).map(turn).chain([Turn::text("All steps are done.")]).collect()
}

fn long_agent(server: &Server, api: &str, file: &Path, journal: &SqliteJournal) -> AgentBuilder {
    let limits = Limits { max_turns: Some(40), ..Limits::default() };
    over(server, api)
        .tool(append(file.to_owned()))
        .system("You append lines.")
        .watches(Vec::new())
        .limits(limits)
        .journal(journal.clone())
}

/// Branches after each turn of a run of twenty turns: the first request of the branch is, byte for
/// byte, that of the run for its next turn, and no tool runs again.
async fn branch_after_each_turn(api: &str) {
    let place = Place::new();
    let journal = place.journal();
    let file = place.dir.path().join("lines");
    let server = Server::script(long_script()).unwrap();
    let parent = long_agent(&server, api, &file, &journal).build().unwrap();
    let parent = parent.run("Append all lines.").unwrap().await;
    assert_eq!((parent.termination, parent.turns), (Termination::Stop, TURNS), "{api}");
    let (requests, id) = (server.requests(), parent.run_id.clone().unwrap());
    let written = lines(&file);
    assert_eq!(written, 23, "19 turns, of which 4 call twice");

    for turn in 0..TURNS {
        let server = Server::script([Turn::text("Enough.")]).unwrap();
        let agent = long_agent(&server, api, &file, &journal).build().unwrap();
        let outcome = agent.branch(Branch::new(&id, turn)).unwrap().await;

        assert_eq!(outcome.termination, Termination::Stop, "{api} {turn}");
        assert_eq!(lines(&file), written, "{api} {turn}: a tool of the prefix ran again");
        let sent = server.requests();
        assert_eq!(sent.len(), 1);
        let expected = &requests[turn as usize];
        assert_eq!(
            sent[0].bytes, expected.bytes,
            "{api} {turn}: {}\n{}",
            sent[0].body, expected.body
        );
        assert_eq!(strict::problem(api, &sent[0].body), None, "{api} {turn}");

        // Both runs are linked, and the branch replays to its outcome.
        let point = outcome.branched_from.clone().unwrap();
        assert_eq!((&point.run_id, point.turn, point.left_out), (&id, turn, 0));
        assert_eq!((outcome.turns, outcome.tool_calls), (1, 0), "{api} {turn}");
        let own = outcome.run_id.clone().unwrap();
        let stored = journal.load(&own).unwrap();
        assert_eq!(stored.header.continues.as_deref(), Some(id.as_str()));
        assert_eq!(stored.task(), "Append all lines.");
        assert_eq!(stored.replay(None).unwrap().outcome(), Some(&outcome), "{api} {turn}");
        let branches = journal.branches(&id).unwrap();
        assert_eq!(branches.len(), turn as usize + 1);
        assert_eq!((&branches[turn as usize].id, branches[turn as usize].turn), (&own, turn));
    }
    // At its answer the run can only continue with a message.
    let server = Server::script([Turn::text("You are welcome.")]).unwrap();
    let agent = long_agent(&server, api, &file, &journal).build().unwrap();
    let refused = agent.branch(Branch::new(&id, TURNS)).unwrap_err();
    assert_eq!(refused, StartError::Answered { run: id.clone(), turn: TURNS });
    let outcome = agent.branch(Branch::new(&id, TURNS).message("Thanks.")).unwrap().await;
    assert_eq!(outcome.last_text.as_deref(), Some("You are welcome."));
    assert_eq!(outcome.messages[..parent.messages.len()], parent.messages);
    assert_eq!(lines(&file), written);
    let unchanged = journal.load(&id).unwrap();
    assert_eq!(unchanged.replay(None).unwrap().outcome(), Some(&parent));
}

#[tokio::test]
async fn openai_branches_repeat_no_tool() {
    branch_after_each_turn("openai-chat").await;
}

#[tokio::test]
async fn anthropic_branches_repeat_no_tool() {
    branch_after_each_turn("anthropic-messages").await;
}

fn calls(n: u64) -> Vec<Turn> {
    (1..=n)
        .map(|nth| Turn::call("echo", &json!({"text": nth.to_string()})).usage(100, 10))
        .collect()
}

/// A run of three turns with a call, and an answer.
async fn short_run(journal: &SqliteJournal) -> Outcome {
    let turns = calls(3).into_iter().chain([Turn::text("three").usage(100, 10)]);
    let agent = agent(turns, journal).tool(echo()).build().unwrap();
    agent.run("Count to three.").unwrap().await
}

/// An agent that answers at once.
fn next(journal: &SqliteJournal) -> AgentBuilder {
    let model = ScriptedModel::new([Turn::text("done").usage(100, 10)]).repeat_last();
    Agent::builder(model.price(price())).journal(journal.clone()).tool(echo())
}

#[tokio::test]
async fn branch_pays_only_for_itself() {
    let place = Place::new();
    let journal = place.journal();
    let id = short_run(&journal).await.run_id.unwrap();
    // $3 for a thousand thousand tokens of the prompt, and $15 of the output.
    let turn = NanoUsd(100 * 3_000 + 10 * 15_000);
    assert_eq!(price().input, NanoUsd::from_usd(3.0));
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let agent = agent(calls(1).into_iter().chain([Turn::text("done").usage(100, 10)]), &journal);
    let agent = agent.tool(echo()).limits(limits).build().unwrap();
    let outcome = agent.branch(Branch::new(&id, 2)).unwrap().await;
    assert_eq!((outcome.termination, outcome.turns), (Termination::Stop, 2));
    assert_eq!((outcome.cost.0 / 1000, outcome.usage.total_tokens()), (turn.0 * 2 / 1000, 220));
    let point = outcome.branched_from.unwrap();
    assert_eq!(
        (point.cost.0 / 1000, point.tokens, point.cost_unknown),
        (turn.0 * 2 / 1000, 220, false)
    );

    // The prefix of a branch of a branch includes both.
    let own = outcome.run_id.unwrap();
    let outcome = next(&journal).build().unwrap().branch(Branch::new(&own, 1)).unwrap().await;
    let point = outcome.branched_from.unwrap();
    assert_eq!((&point.run_id, point.turn, point.tokens), (&own, 1, 330));
    assert_eq!(point.cost.0 / 1000, turn.0 * 3 / 1000);
    let texts: Vec<_> = outcome
        .messages
        .iter()
        .flat_map(Message::tool_results)
        .map(|one| one.content.clone())
        .collect();
    assert_eq!(texts, ["1", "2", "1"], "two turns of the run, one of its branch");
}

#[tokio::test]
async fn missing_turns_are_refused() {
    let place = Place::new();
    let journal = place.journal();
    let run = short_run(&journal).await.run_id.unwrap();
    let agent = next(&journal).build().unwrap();
    for turn in [5, 6, u32::MAX] {
        let refused = agent.branch(Branch::new(&run, turn)).unwrap_err();
        let expected = PrefixError::NoSuchTurn { run: run.clone(), turn, turns: 4 };
        assert_eq!(refused, StartError::Prefix(expected));
    }
    assert!(matches!(agent.branch(Branch::new("gone", 1)), Err(StartError::Journal(_))));
    let unstored = crate::support::agent([Turn::text("done")]).build().unwrap();
    assert_eq!(unstored.branch(Branch::new(&run, 1)).unwrap_err(), StartError::NoJournal);
    let refused = agent.branch(Branch::new(&run, 1).id("not an id")).unwrap_err();
    assert_eq!(refused, StartError::InvalidId("not an id".to_owned()));
    assert!(matches!(
        agent.branch(Branch::new(&run, 1).message("  ")),
        Err(StartError::BlankInput)
    ));
    // Nothing of that is stored, and the agent is idle.
    assert_eq!(journal.runs(10).unwrap().len(), 1);
    assert_eq!(
        agent.branch(Branch::new(&run, 1).id("own-id")).unwrap().await.run_id.unwrap(),
        "own-id"
    );
}

#[tokio::test]
async fn changed_tools_need_consent() {
    let place = Place::new();
    let journal = place.journal();
    let run = short_run(&journal).await.run_id.unwrap();
    let what = |error: StartError| match error {
        StartError::Changed(changes) => {
            changes.into_iter().map(|change| change.what).collect::<Vec<_>>()
        }
        other => panic!("{other}"),
    };
    let script = || [Turn::text("done")];
    let without = agent(script(), &journal).build().unwrap();
    // Without a tool there is nothing to finish.
    let gone = ["tool echo", "tool finish"];
    assert_eq!(what(without.branch(Branch::new(&run, 1)).unwrap_err()), gone);
    let other = tool_fn("echo", "Says it twice.", |note: Note, _| async move {
        ToolOutput::ok(note.text.repeat(2))
    });
    let other = agent(script(), &journal).tool(other).system("Be brief.").build().unwrap();
    assert_eq!(
        what(other.branch(Branch::new(&run, 1)).unwrap_err()),
        ["instructions", "tool echo"]
    );
    let outcome = other.branch(Branch::new(&run, 1).accept_changes()).unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop);
    // Permissions, limits and policies are what a branch may differ in.
    let asks = agent(script(), &journal)
        .tool(echo())
        .permission("echo", Permission::Deny)
        .policy(endstop::policy::Registry::new().build(&json!("final_pattern")).unwrap())
        .limits(Limits { max_turns: Some(1), ..Limits::default() });
    assert_eq!(asks.build().unwrap().branch(Branch::new(&run, 1)).unwrap().await.turns, 1);
}

/// Keeps the task and the last turn, once there are three.
struct KeepsLastTurn;

impl Compactor for KeepsLastTurn {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        let all = request.messages;
        let Some(last) = all.len().checked_sub(2).filter(|at| *at >= 5) else {
            return Box::pin(async { Compaction::NotNeeded });
        };
        let messages = [&all[..1], &all[last..]].concat();
        let strategy = "keeps-last-turn".to_owned();
        Box::pin(async { Compaction::Done { messages, cost: NanoUsd::ZERO, strategy } })
    }
}

#[tokio::test]
async fn compacted_turns_can_be_branched() {
    let place = Place::new();
    let journal = place.journal();
    let long = "word ".repeat(40);
    let turns = (1..=4).map(|nth| Turn::call("echo", &json!({"text": format!("{nth} {long}")})));
    let first = agent(turns.chain([Turn::text("done")]), &journal).tool(echo());
    let first = first.compactor(KeepsLastTurn).context_window(100).build().unwrap();
    let outcome = first.run("Say four things.").unwrap().await;
    let shortened: Vec<_> =
        outcome.compactions.iter().filter(|one| one.after.is_some()).map(|one| one.turn).collect();
    assert_eq!(shortened, [4], "{:?}", outcome.compactions);
    let id = outcome.run_id.unwrap();
    let recorded = journal.load(&id).unwrap();
    let at = |turn| recorded.prefix(turn, None).unwrap().messages;
    let whole: Vec<usize> = (0..=4).map(|turn| at(turn).len()).collect();
    // The first turns as they were before the compaction.
    assert_eq!(whole, [1, 3, 5, 3, 5]);
    let first = at(1);
    assert!(first[2].tool_results().next().unwrap().content.starts_with("1 word"));
    let outcome = next(&journal).build().unwrap().branch(Branch::new(&id, 1)).unwrap().await;
    assert_eq!(outcome.messages[..3], first);
}

/// Notes which message it must keep, and shortens nothing.
struct NotesTask(Arc<Mutex<Vec<Option<MessageId>>>>);

impl Compactor for NotesTask {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        self.0.lock().unwrap().push(request.task);
        Box::pin(async { Compaction::NotNeeded })
    }
}

#[tokio::test]
async fn compaction_of_branch_keeps_task() {
    let place = Place::new();
    let journal = place.journal();
    let id = short_run(&journal).await.run_id.unwrap();
    let noted = Arc::default();
    let compactor = NotesTask(Arc::clone(&noted));
    let agent = next(&journal).compactor(compactor).context_window(40).build().unwrap();
    let outcome = agent.branch(Branch::new(&id, 2).message("Go faster.")).unwrap().await;
    assert_eq!(outcome.turns, 1, "{:?}", outcome.decided_by);
    // The task of the run, and neither the result nor the new message.
    assert_eq!(noted.lock().unwrap().first(), Some(&Some(MessageId(1))));
    assert_eq!(outcome.messages[0].plain_text(), "Count to three.");
}

#[tokio::test]
async fn parked_run_branches_before_its_request() {
    let place = Place::new();
    let journal = place.journal();
    let asks = tool_fn("act", "Acts.", |_: Note, _| async { ToolOutput::ok("acted") });
    let turns = calls(1).into_iter().chain([Turn::call("act", &json!({"text": "x"}))]);
    let parking = agent(turns, &journal)
        .tool(echo())
        .tool(asks)
        .permission("act", Permission::Ask)
        .approver(ParkApprovals::new());
    let handle = parking.build().unwrap().run("Act.").unwrap();
    let id = handle.run_id().to_owned();
    assert!(matches!(handle.wait_for_status().await, RunStatus::Parked(_)));
    let agent = next(&journal).build().unwrap();
    let branch = |turn| agent.branch(Branch::new(&id, turn).accept_changes());
    let expected = PrefixError::NoSuchTurn { run: id.clone(), turn: 2, turns: 1 };
    assert_eq!(branch(2).unwrap_err(), StartError::Prefix(expected));
    assert_eq!(branch(1).unwrap().await.messages.len(), 4);
    assert_eq!(journal.pending().unwrap().len(), 1, "the request is still open");
    // The decision and the resume are events like the others.
    journal.answer(&id, &Answer::approve()).unwrap();
    let acts = || tool_fn("act", "Acts.", |_: Note, _| async { ToolOutput::ok("acted") });
    let resumed = next(&journal).tool(acts()).approver(ParkApprovals::new());
    let resumed = resumed.permission("act", Permission::Ask).build().unwrap();
    let outcome = resumed.resume(Resume::new(&id).accept_changes()).unwrap().await;
    assert_eq!((outcome.termination, outcome.turns), (Termination::Stop, 3));
    assert_eq!(branch(2).unwrap().await.messages.len(), 6);
}

#[tokio::test]
async fn running_run_branches_at_complete_turns() {
    let place = Place::new();
    let journal = place.journal();
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (in_tool, free) = (Arc::clone(&started), Arc::clone(&release));
    let waits = tool_fn("waits", "Waits.", move |_: Note, _| {
        let (in_tool, free) = (Arc::clone(&in_tool), Arc::clone(&free));
        async move {
            in_tool.notify_one();
            free.notified().await;
            ToolOutput::ok("waited")
        }
    });
    let turns = calls(1).into_iter();
    let turns = turns.chain([Turn::call("waits", &json!({"text": "x"})), Turn::text("end")]);
    let working = agent(turns, &journal).tool(echo()).tool(waits).build().unwrap();
    let handle = working.run("Wait.").unwrap();
    let id = handle.run_id().to_owned();
    started.notified().await;

    let agent = next(&journal).build().unwrap();
    let branch = |turn| agent.branch(Branch::new(&id, turn).accept_changes());
    let expected = PrefixError::NoSuchTurn { run: id.clone(), turn: 2, turns: 1 };
    assert_eq!(branch(2).unwrap_err(), StartError::Prefix(expected));
    assert_eq!(branch(0).unwrap().await.messages.len(), 2);
    assert_eq!(branch(1).unwrap().await.messages.len(), 4);
    release.notify_one();
    assert_eq!(handle.outcome().await.termination, Termination::Stop, "not disturbed");
    assert_eq!(branch(2).unwrap().await.messages.len(), 6);
}

#[tokio::test]
async fn background_calls_stay_with_their_run() {
    let place = Place::new();
    let journal = place.journal();
    let (release, ran) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let slow = || {
        let (free, ran) = (Arc::clone(&release), Arc::clone(&ran));
        let tool = tool_fn("slow", "Takes its time.", move |_: Note, _| {
            let free = Arc::clone(&free);
            ran.fetch_add(1, Ordering::SeqCst);
            async move {
                free.notified().await;
                ToolOutput::ok("slow result")
            }
        });
        tool.background()
    };
    let turns = [
        Turn::call("slow", &json!({"text": "x"})),
        Turn::call("echo", &json!({"text": "1"})),
        Turn::text("I wait."),
        Turn::text("end"),
    ];
    let working = agent(turns, &journal).tool(echo()).tool(slow()).build().unwrap();
    let handle = working.run("Be slow.").unwrap();
    let id = handle.run_id().to_owned();
    // Released only if the run waits for it, so that it is open after both turns.
    eventually("two turns", || journal.load(&id).is_ok_and(|run| run.prefix(2, None).is_ok()))
        .await;
    release.notify_one();
    assert_eq!(handle.outcome().await.termination, Termination::Stop);

    let other = next(&journal).tool(slow()).build().unwrap();
    let outcome = other.branch(Branch::new(&id, 2)).unwrap().await;
    assert_eq!((outcome.termination, ran.load(Ordering::SeqCst)), (Termination::Stop, 1));
    let told = &outcome.messages[5];
    assert_eq!(
        (told.role, told.plain_text().as_str()),
        (
            Role::User,
            "Background call h1 (slow) was started before this run branched off from another one. It does not run here, and its result will not follow. It may have done its work."
        )
    );
    // After its result was read nothing is open.
    let recorded = journal.load(&id).unwrap();
    let whole = recorded.prefix(3, None).unwrap().messages;
    assert!(whole.last().unwrap().plain_text().contains("slow result"), "{whole:?}");
}

#[tokio::test]
async fn guest_runs_cannot_be_branched() {
    let place = Place::new();
    let journal = place.journal();
    let spec = RunSpec { guest: Some(GuestMode::default()), ..RunSpec::default() };
    let header = RunHeader { id: "guest".into(), spec, ..RunHeader::default() };
    let mut log = journal.begin(&header).unwrap();
    let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
    let event = serde_json::to_string(&start).unwrap();
    log.append(&[Record { name: "start".into(), event, ..Record::default() }]).unwrap();
    drop(log);
    let refused = next(&journal).build().unwrap().branch(Branch::new("guest", 0)).unwrap_err();
    assert_eq!(refused, StartError::Prefix(PrefixError::Guest { run: "guest".to_owned() }));
    assert!(refused.to_string().contains("only that program"), "{refused}");
}

#[tokio::test]
async fn redacted_conversation_needs_consent() {
    let place = Place::new();
    let journal = place.journal();
    let secret = "sk-proj-4fQ9xTz71LmN0pWvR2sY";
    let turns = [Turn::call("echo", &json!({"text": secret})), Turn::text("done")];
    let first = agent(turns, &journal).tool(echo()).build().unwrap();
    let id = first.run("Say it.").unwrap().await.run_id.unwrap();
    let agent = next(&journal).build().unwrap();
    let Err(StartError::Redacted(cuts)) = agent.branch(Branch::new(&id, 1)) else {
        panic!("consent is needed")
    };
    let how = Branch::new(&id, 1).accept_redacted();
    let outcome = agent.branch(how).unwrap().await;
    assert!(format!("{:?}", outcome.messages).contains("[redacted]"));
    let own = journal.load(&outcome.run_id.unwrap()).unwrap();
    assert_eq!(own.redacted, cuts, "a branch of the branch needs consent, too");
}

#[tokio::test]
async fn messages_about_limits_stay_out() {
    let place = Place::new();
    let journal = place.journal();
    let limits =
        Limits { max_turns: Some(2), tell_remaining: true, wrap_up: true, ..Limits::default() };
    let turns = calls(2).into_iter().chain([Turn::text("I was counting.")]);
    let first = agent(turns, &journal).tool(echo()).limits(limits.clone()).build().unwrap();
    let outcome = first.run("Count.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
    assert_eq!(outcome.hand_over.as_deref(), Some("I was counting."));
    let recorded = journal.load(&outcome.run_id.clone().unwrap()).unwrap();
    let roles = |turn| {
        let prefix = recorded.prefix(turn, None).unwrap();
        prefix.messages.iter().map(|message| message.role).collect::<Vec<_>>()
    };
    let (user, model, tool) = (Role::User, Role::Assistant, Role::Tool);
    assert_eq!(roles(0), [user]);
    // The message before the first turn is part of what the model has read by then.
    assert_eq!(roles(1), [user, user, model, tool]);
    assert_eq!(roles(2), [user, user, model, tool, user, model, tool], "no hand-over");
    let limits = Limits { max_turns: Some(9), ..limits };
    let agent = next(&journal).limits(limits).build().unwrap();
    let branched = agent.branch(Branch::new(outcome.run_id.unwrap(), 2)).unwrap().await;
    let told = branched.messages[7].plain_text();
    assert!(told.starts_with("Left in this run: 9 of 9 turns"), "{told}");
}

/// Stops the run after a number of steps. It is code, so no journal can rebuild it.
#[derive(Clone)]
struct StopsAt(i64);

impl TerminationPolicy for StopsAt {
    fn name(&self) -> &str {
        "stops_at"
    }
    fn should_terminate(&mut self, _: &StepResult, context: &StepContext) -> Verdict {
        if context.step < self.0 {
            return Verdict::Continue;
        }
        let stop = Stop::submitted("stops_at", format!("step {}", context.step));
        Verdict::Stop(Stop { ends_as: PolicyEnd::Halted, ..stop })
    }
    fn reset(&mut self) {}
}

#[tokio::test]
async fn policy_in_code_is_passed() {
    let place = Place::new();
    let journal = place.journal();
    let first = agent(calls(9), &journal).tool(echo()).policy(StopsAt(2)).build().unwrap();
    let outcome = first.run("Count.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorHalted, "{:?}", outcome.decided_by);
    let (id, turns) = (outcome.run_id.unwrap(), outcome.turns);
    let agent_without = next(&journal).build().unwrap();
    let refused = agent_without.branch(Branch::new(&id, 1)).unwrap_err();
    assert!(matches!(refused, StartError::Prefix(PrefixError::Policy { .. })), "{refused}");
    // With the policy, also from where it stopped the run.
    let agent = next(&journal).policy(StopsAt(9)).build().unwrap();
    assert_eq!(agent.branch(Branch::new(&id, 1)).unwrap().await.termination, Termination::Stop);
    let agent = next(&journal).policy(StopsAt(2)).build().unwrap();
    let outcome = agent.branch(Branch::new(&id, turns)).unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "its steps count from zero");
}

#[tokio::test]
async fn parts_of_other_apis_are_counted() {
    let place = Place::new();
    let journal = place.journal();
    let file = place.dir.path().join("lines");
    let server = Server::script(long_script()).unwrap();
    let first = long_agent(&server, "anthropic-messages", &file, &journal).build().unwrap();
    let id = first.run("Append all lines.").unwrap().await.run_id.unwrap();
    let server = Server::script([Turn::text("Enough.")]).unwrap();
    let other = long_agent(&server, "openai-chat", &file, &journal).build().unwrap();
    let outcome = other.branch(Branch::new(&id, 7)).unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{:?}", outcome.decided_by);
    let point = outcome.branched_from.unwrap();
    assert_eq!(point.left_out, 2, "the signed reasoning of turns 3 and 6");
    let sent = &server.requests()[0];
    assert_eq!(strict::problem("openai-chat", &sent.body), None);
    assert!(!String::from_utf8_lossy(&sent.bytes).contains("c2ln"), "{}", sent.body);
}

#[tokio::test]
async fn damage_before_the_turn_is_named() {
    let place = Place::new();
    let journal = place.journal();
    let id = short_run(&journal).await.run_id.unwrap();
    let mut recorded = journal.load(&id).unwrap();
    recorded.damage = Some("event 4 cannot be read".to_owned());
    // The part that is lost begins in the second turn.
    let kept = recorded.events.iter().position(|event| event.kind.name() == "tool_ended").unwrap();
    recorded.events.truncate(kept + 1);
    recorded.outcome = None;
    assert_eq!(recorded.prefix(1, None).unwrap().messages.len(), 3);
    let error = recorded.prefix(2, None).unwrap_err();
    assert!(
        matches!(&error, PrefixError::Damaged { damage, .. } if damage.contains("event 4")),
        "{error}"
    );
    // A kernel that decides differently would restore another conversation.
    let mut recorded = journal.load(&id).unwrap();
    recorded.effects[1] = vec![json!({"effect": "validate", "id": 77})];
    let error = recorded.prefix(2, None).unwrap_err();
    assert!(matches!(error, PrefixError::Differs { event: 1, .. }), "{error}");
    assert_eq!(recorded.prefix(0, None).unwrap().messages.len(), 1, "before the difference");
}

#[tokio::test]
async fn resumed_branch_keeps_its_origin() {
    let place = Place::new();
    let journal = place.journal();
    let id = short_run(&journal).await.run_id.unwrap();
    let limits = |turns| Limits { max_turns: Some(turns), ..Limits::default() };
    let one = agent(calls(1), &journal).tool(echo()).limits(limits(1)).build().unwrap();
    let branch = one.branch(Branch::new(&id, 1)).unwrap().await;
    assert_eq!(branch.termination, Termination::ErrorMaxTurns);
    let own = branch.run_id.unwrap();
    let more = next(&journal).limits(limits(3)).build().unwrap();
    let resumed = more.resume(own.as_str()).unwrap().await;
    assert_eq!((resumed.termination, resumed.turns), (Termination::Stop, 2));
    assert_eq!(resumed.branched_from.map(|from| (from.run_id, from.turn)), Some((id.clone(), 1)));
    let runs = journal.runs(3).unwrap();
    let links: Vec<_> =
        runs.iter().map(|run| (run.continues.as_deref(), run.branched_at)).collect();
    assert_eq!(links, [(Some(own.as_str()), None), (Some(id.as_str()), Some(1)), (None, None)]);
    assert_eq!(journal.branches(&own).unwrap(), [], "it continues, and does not branch");
}

//! Parked runs: the request is journalled, decided by anyone, and the run is resumed.

use endstop::agent::{AgentTool, cancel_parked};
use endstop::event::AgentEventKind;
use endstop::hook::{ConsultPoint, Hook, HookDecision, HookFuture, Hooks, Park, ParkApprovals};
use endstop::journal::{DecideError, SqliteJournal};
use endstop::park::{Answer, AnswerRefused, ParkDecision, ParkRequest, RunStatus};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, LimitChanges, Limits, Outcome, Permission, Resume, RunHandle, StartError,
    SteerError, Termination, ToolResult, ToolStatus,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The arguments of the calls that ran.
type Ran = Arc<Mutex<Vec<Value>>>;

struct Place {
    _dir: tempfile::TempDir,
    journal: SqliteJournal,
    ran: Ran,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(dir.path().join("journal.db")).unwrap();
        Place { _dir: dir, journal, ran: Ran::default() }
    }

    /// An agent without a journal whose tool `act` needs approval.
    fn acting(&self, script: impl Into<Vec<Turn>>) -> AgentBuilder {
        let ran = Arc::clone(&self.ran);
        let act = tool_fn("act", "Acts.", move |arguments: Value, _| {
            ran.lock().unwrap().push(arguments);
            async { ToolOutput::ok("acted") }
        });
        Agent::builder(ScriptedModel::new(script.into()))
            .tool(act)
            .permission("act", Permission::Ask)
            .finish_tool(false)
    }

    fn parking(&self, script: impl Into<Vec<Turn>>) -> AgentBuilder {
        self.acting(script).approver(ParkApprovals::new()).journal(self.journal.clone())
    }

    /// Parks a run, and returns its id and its request.
    async fn park(&self) -> (String, ParkRequest) {
        let agent = self.parking([act(json!({"b": 1, "a": 2}))]).build().unwrap();
        parked(agent.run("go").unwrap()).await
    }

    /// Resumes a run with a model that answers in text.
    async fn resume(&self, run: &str) -> Outcome {
        let agent = self.parking([Turn::text("Done.")]).build().unwrap();
        agent.resume(run).unwrap().outcome().await
    }

    fn ran(&self) -> Vec<Value> {
        self.ran.lock().unwrap().clone()
    }

    /// Returns the names of the run's events.
    fn events(&self, run: &str) -> Vec<&'static str> {
        self.journal.load(run).unwrap().events.iter().map(|event| event.kind.name()).collect()
    }
}

fn act(arguments: Value) -> Turn {
    Turn::call("act", &arguments)
}

async fn parked(run: RunHandle) -> (String, ParkRequest) {
    let id = run.run_id().to_owned();
    match run.wait_for_status().await {
        RunStatus::Parked(request) => (id, ParkRequest::clone(&request)),
        other => panic!("not parked: {other:?}"),
    }
}

fn refusal<T: std::fmt::Debug>(answered: Result<T, DecideError>) -> AnswerRefused {
    match answered {
        Err(DecideError::Refused(refused)) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

fn results(outcome: &Outcome) -> Vec<&ToolResult> {
    outcome.messages.iter().flat_map(|message| message.tool_results()).collect()
}

/// Checks that the stored run ends once, and that its replay gives the same outcome.
fn replays(place: &Place, run: &str, outcome: &Outcome) {
    let recorded = place.journal.load(run).unwrap();
    let again = recorded.replay(None).unwrap();
    let again = serde_json::to_string(again.outcome().unwrap()).unwrap();
    assert_eq!(again, serde_json::to_string(outcome).unwrap());
    assert_eq!(recorded.outcome.unwrap().to_string(), again);
}

#[tokio::test]
async fn approved_call_runs_after_resume() {
    let place = Place::new();
    let agent = place.parking([act(json!({"b": 1, "a": 2}))]).build().unwrap();
    let mut run = agent.run("go").unwrap();
    let id = run.run_id().to_owned();
    let mut last = None;
    while let Some(event) = run.next().await {
        last = Some(event.kind);
    }
    let Some(AgentEventKind::Parked { request }) = last else { panic!("{last:?}") };
    assert_eq!(request.tool.as_deref(), Some("act"));
    assert_eq!(request.subject, r#"{"a":2,"b":1}"#);
    assert!(matches!(run.status(), RunStatus::Parked(_)));
    assert!(run.try_outcome().is_none(), "a park is not an ending");
    drop(run);
    let listed = &place.journal.runs(9).unwrap()[0];
    assert!(listed.parked && !listed.running && listed.termination.is_none(), "{listed:?}");
    assert!(place.journal.interrupted().unwrap().is_empty(), "it waits for a decision");
    assert!(place.ran().is_empty());

    let answer = Answer::approve().digest(&request.digest);
    let answered = place.journal.answer(&id, &answer).unwrap();
    assert_eq!(answered.decision, Some(ParkDecision::Approve));
    assert_eq!(place.journal.pending().unwrap()[0].decision, Some(ParkDecision::Approve));
    let outcome = place.resume(&id).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(place.ran(), [json!({"a": 2, "b": 1})]);
    assert_eq!(outcome.run_id.as_deref(), Some(id.as_str()), "still the same run");
    assert!(place.journal.pending().unwrap().is_empty());
    let events = place.events(&id);
    let at = events.iter().position(|name| *name == "parked").unwrap();
    assert_eq!(events[at..at + 5], ["parked", "decided", "resumed", "answered", "tool_ended"]);
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn changed_arguments_run_after_resume() {
    let place = Place::new();
    let (id, request) = place.park().await;
    let Value::Object(arguments) = json!({"a": 7, "deep": {"x": ["}"]}}) else { panic!() };
    let answer = Answer::approve_changed(arguments.clone()).digest(&request.digest);
    let decision = place.journal.answer(&id, &answer).unwrap().decision.unwrap();
    assert_eq!(decision.name(), "approve_changed");
    let refused = refusal(place.journal.answer(&id, &Answer::approve()));
    assert!(matches!(refused, AnswerRefused::AlreadyDecided { .. }), "{refused}");
    let outcome = place.resume(&id).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(place.ran(), [Value::Object(arguments)]);
    // The conversation has the call of the model, and an event has the change.
    assert!(outcome.messages[1].tool_calls().all(|call| call.arguments.contains(r#""a":2"#)));
    let told = place.journal.load(&id).unwrap().events_again().unwrap();
    let changed = told.iter().filter(|event| event.kind.name() == "tool_call_changed").count();
    assert_eq!(changed, 1, "{told:?}");
    replays(&place, &id, &outcome);
}

/// Arguments may be nested as deeply as a request may be, and the journal must be readable with them.
#[tokio::test]
async fn deep_changed_arguments_stay_readable() {
    let place = Place::new();
    let (id, _) = place.park().await;
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(126), "]".repeat(126));
    let Value::Object(arguments) = serde_json::from_str(&deep).unwrap() else { panic!() };
    place.journal.answer(&id, &Answer::approve_changed(arguments)).unwrap();
    let outcome = place.resume(&id).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(place.ran().len(), 1);
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn denied_call_never_runs() {
    let place = Place::new();
    let (id, _) = place.park().await;
    place.journal.answer(&id, &Answer::deny("not on a Friday")).unwrap();
    let outcome = place.resume(&id).await;
    assert_eq!(results(&outcome)[0].content, "denied: not on a Friday");
    assert_eq!(results(&outcome)[0].status, ToolStatus::Denied);
    assert!(place.ran().is_empty());
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn late_approval_is_a_timeout() {
    let place = Place::new();
    let approver = ParkApprovals::new().expires_after(HOUR).reason("touches production");
    let agent = place.parking([act(json!({}))]).approver(approver).build().unwrap();
    let (id, request) = parked(agent.run("go").unwrap()).await;
    assert_eq!(request.reason.as_deref(), Some("touches production"));
    assert_eq!(request.expires_ms, Some(request.asked_ms + 3_600_000));
    let day_later = request.asked_ms + 24 * 3_600_000;
    assert!(!place.journal.pending().unwrap()[0].expired);
    assert!(place.journal.pending_at(day_later).unwrap()[0].expired);

    let refused = refusal(place.journal.answer_at(&id, &Answer::approve(), day_later));
    assert!(matches!(refused, AnswerRefused::Expired { .. }), "{refused:?}");
    // Also after the clock was set back.
    let refused = refusal(place.journal.answer_at(&id, &Answer::approve(), request.asked_ms));
    assert_eq!(refused, AnswerRefused::AlreadyDecided { run: id.clone(), decision: "expired" });

    let outcome = place.resume(&id).await;
    let result = results(&outcome)[0];
    assert_eq!(result.status, ToolStatus::Denied);
    assert!(result.content.contains("expired after 3600 s"), "{}", result.content);
    assert!(result.content.contains("a timeout, not a person's decision"), "{}", result.content);
    assert!(place.ran().is_empty());
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn resume_after_expiry_denies_by_timeout() {
    let place = Place::new();
    let approver = ParkApprovals::new().expires_after(Duration::ZERO);
    let agent = place.parking([act(json!({}))]).approver(approver).build().unwrap();
    let (id, _) = parked(agent.run("go").unwrap()).await;
    let outcome = place.resume(&id).await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(results(&outcome)[0].content.contains("a timeout"), "{outcome:?}");
    assert!(place.events(&id).contains(&"decided"), "the history has the timeout");
    assert!(place.ran().is_empty());
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn first_decision_counts() {
    let place = Place::new();
    let (id, request) = place.park().await;
    let other = Answer::approve().digest("00000000");
    let refused = refusal(place.journal.answer(&id, &other));
    assert!(matches!(refused, AnswerRefused::Digest { .. }), "{refused}");
    assert!(refused.to_string().contains(&request.digest), "{refused}");
    let refused = refusal(place.journal.answer(&id, &Answer::text("yes")));
    assert!(matches!(refused, AnswerRefused::Kind { .. }), "{refused}");

    place.journal.answer(&id, &Answer::deny("no")).unwrap();
    let refused = refusal(place.journal.answer(&id, &Answer::approve()));
    assert!(matches!(refused, AnswerRefused::AlreadyDecided { .. }), "{refused}");
    let agent = place.parking([Turn::text("Done.")]).build().unwrap();
    let refused = agent.resume(Resume::new(&id).answer(Answer::approve())).unwrap_err();
    let StartError::Answer(refused) = refused else { panic!("{refused}") };
    assert!(matches!(refused, AnswerRefused::AlreadyDecided { .. }), "{refused}");

    place.resume(&id).await;
    let refused = refusal(place.journal.answer(&id, &Answer::approve()));
    assert!(matches!(refused, AnswerRefused::Ended { .. }), "{refused}");
    assert!(refused.to_string().contains("stop"), "{refused}");
    let refused = place.journal.answer("nonesuch", &Answer::approve()).unwrap_err();
    assert!(matches!(refused, DecideError::Journal(_)), "{refused}");
    assert!(place.ran().is_empty());
}

#[tokio::test]
async fn simultaneous_decisions_leave_one() {
    let place = Place::new();
    let (id, _) = place.park().await;
    let threads: Vec<_> = (0..8)
        .map(|nth| {
            // Each has a connection of its own, as another process would.
            let (path, id) = (place.journal.path().to_owned(), id.clone());
            std::thread::spawn(move || {
                let journal = SqliteJournal::open(path).unwrap();
                journal.answer(&id, &Answer::deny(format!("by {nth}"))).is_ok()
            })
        })
        .collect();
    let won = threads.into_iter().map(|thread| thread.join().unwrap());
    assert_eq!(won.filter(|won| *won).count(), 1);
    let decided = place.events(&id).into_iter().filter(|name| *name == "decided").count();
    assert_eq!(decided, 1);
}

#[tokio::test]
async fn answer_to_live_run_is_refused() {
    let place = Place::new();
    let agent = place
        .acting([act(json!({}))])
        .approval_events(true)
        .journal(place.journal.clone())
        .build()
        .unwrap();
    let mut run = agent.run("go").unwrap();
    while !matches!(
        run.next().await.map(|event| event.kind),
        Some(AgentEventKind::ApprovalRequested { .. })
    ) {}
    let refused = refusal(place.journal.answer(run.run_id(), &Answer::approve()));
    assert!(matches!(refused, AnswerRefused::Live { .. }), "{refused}");
    let id = run.run_id().to_owned();
    run.cancel();
    assert_eq!(run.outcome().await.termination, Termination::Cancelled);
    let refused = refusal(place.journal.answer(&id, &Answer::approve()));
    assert!(refused.to_string().contains("cancelled"), "{refused}");
    assert!(place.ran().is_empty());
}

#[tokio::test]
async fn undecided_run_parks_again() {
    let place = Place::new();
    let approver = ParkApprovals::new().expires_after(HOUR);
    let agent = place.parking([act(json!({}))]).approver(approver).build().unwrap();
    let (id, request) = parked(agent.run("go").unwrap()).await;
    // Later, and under other terms: the request and its expiry stay.
    let agent = place.parking([]).build().unwrap();
    let (again, same) = parked(agent.resume(id.as_str()).unwrap()).await;
    assert_eq!((again, &same), (id.clone(), &request));

    let agent = place.parking([Turn::text("Done.")]).build().unwrap();
    let how = Resume::new(&id).answer(Answer::approve().digest(&request.digest[..12]));
    let outcome = agent.resume(how).unwrap().outcome().await;
    assert!(outcome.is_success());
    assert_eq!(place.ran().len(), 1);
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn cancelled_parked_run_has_ended() {
    let place = Place::new();
    let (id, _) = place.park().await;
    let outcome = cancel_parked(&place.journal, &id).unwrap();
    assert_eq!(outcome.termination, Termination::Cancelled);
    replays(&place, &id, &outcome);
    let refused = refusal(place.journal.answer(&id, &Answer::approve()));
    assert!(matches!(refused, AnswerRefused::Ended { .. }), "{refused}");
    assert!(cancel_parked(&place.journal, &id).is_err(), "it ends once");
    assert!(place.ran().is_empty() && place.journal.pending().unwrap().is_empty());
}

#[tokio::test]
async fn several_calls_park_one_by_one() {
    let place = Place::new();
    let script = [Turn::call("act", &json!({"n": 1})).and_call("act", &json!({"n": 2}))];
    let agent = place.parking(script).build().unwrap();
    let (id, first) = parked(agent.run("go").unwrap()).await;
    let again = |answer: Answer| {
        let agent = place.parking([Turn::text("Done.")]).build().unwrap();
        agent.resume(Resume::new(&id).answer(answer)).unwrap()
    };
    let (_, second) = parked(again(Answer::deny("not this one"))).await;
    assert_ne!(first.digest, second.digest);
    let stale = refusal(place.journal.answer(&id, &Answer::approve().digest(&first.digest)));
    assert!(matches!(stale, AnswerRefused::Digest { .. }), "{stale:?}");
    let outcome = again(Answer::approve()).outcome().await;
    assert_eq!(place.ran(), [json!({"n": 2})]);
    let statuses: Vec<_> = results(&outcome).iter().map(|result| result.status).collect();
    assert_eq!(statuses, [ToolStatus::Denied, ToolStatus::Ok]);
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn park_waits_for_running_calls() {
    let place = Place::new();
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let look = tool_fn("look", "Looks.", move |_: Value, _| {
        let opened = Arc::clone(&opened);
        async move {
            opened.notified().await;
            ToolOutput::ok("seen")
        }
    })
    .parallel_safe();
    let script = [Turn::call("look", &json!({})).and_call("act", &json!({}))];
    let agent = place.parking(script).tool(look).build().unwrap();
    let mut run = agent.run("go").unwrap();
    while !matches!(
        run.next().await.map(|event| event.kind),
        Some(AgentEventKind::ToolStarted { .. })
    ) {}
    assert!(matches!(run.status(), RunStatus::Running), "a call is running");
    gate.notify_one();
    let (id, _) = parked(run).await;
    let events = place.events(&id);
    let at = |name| events.iter().position(|event| *event == name).unwrap();
    assert!(at("tool_ended") < at("parked"), "{events:?}");
}

/// A message that is sent when the run is parked was accepted, and lost.
#[tokio::test]
async fn parked_run_refuses_messages() {
    let place = Place::new();
    let agent = place.parking([act(json!({}))]).build().unwrap();
    let mut run = agent.run("go").unwrap();
    while !matches!(run.next().await.map(|event| event.kind), Some(AgentEventKind::Parked { .. })) {
    }
    assert_eq!(run.say("Be careful."), Err(SteerError::Parked));
    let turns = LimitChanges::new().set("max_turns", json!(3)).unwrap();
    assert_eq!(run.set_limits(turns), Err(SteerError::Parked));

    // The process that resumes it takes messages.
    let id = run.run_id().to_owned();
    place.journal.answer(&id, &Answer::approve()).unwrap();
    let script = [Turn::text("Done."), Turn::text("Careful.")];
    let resumed = place.parking(script).build().unwrap().resume(id.as_str()).unwrap();
    resumed.say("Be careful.").unwrap();
    let outcome = resumed.outcome().await;
    assert!(outcome.messages.iter().any(|message| message.plain_text() == "Be careful."));
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn run_without_journal_denies() {
    let place = Place::new();
    let script = [act(json!({})), Turn::text("Done.")];
    let agent = place.acting(script).approver(ParkApprovals::new()).build().unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert!(results(&outcome)[0].content.contains("cannot be parked"), "{outcome:?}");
    assert!(place.ran().is_empty());
}

#[tokio::test]
async fn nested_run_denies() {
    let place = Place::new();
    let inner = place.parking([act(json!({})), Turn::text("Could not.")]).build().unwrap();
    let script = [Turn::call("helper", &json!({"task": "act"})), Turn::text("Done.")];
    let agent = Agent::builder(ScriptedModel::new(script))
        .tool(AgentTool::new("helper", "Helps.", inner))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert!(place.ran().is_empty() && place.journal.pending().unwrap().is_empty());
}

#[tokio::test]
async fn permission_is_checked_again() {
    let place = Place::new();
    let (id, _) = place.park().await;
    place.journal.answer(&id, &Answer::approve()).unwrap();
    let agent =
        place.parking([Turn::text("Done.")]).permission("act", Permission::Deny).build().unwrap();
    let outcome = agent.resume(Resume::new(&id).accept_changes()).unwrap().outcome().await;
    assert!(results(&outcome)[0].content.contains("permission denied"), "{outcome:?}");
    assert!(place.ran().is_empty());
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn lowered_budget_is_checked_again() {
    let place = Place::new();
    let price = || "in=1000,out=1000";
    let with = |script: Vec<Turn>, max: f64| {
        let price = endstop::wire::catalog::prices::parse_price(price()).unwrap();
        let limits = Limits { max_budget_usd: Some(max), ..Limits::default() };
        place.parking(script).price(price).limits(limits).build().unwrap()
    };
    let script = vec![act(json!({})).usage(1000, 1000)];
    let (id, _) = parked(with(script, 100.0).run("go").unwrap()).await;
    place.journal.answer(&id, &Answer::approve()).unwrap();
    let outcome = with(vec![Turn::text("Done.")], 1.0).resume(id.as_str()).unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxBudgetUsd, "{outcome:?}");
    assert!(place.ran().is_empty());
    replays(&place, &id, &outcome);
}

/// Parks the run at each answer in text.
struct AsksUser;

impl Hook for AsksUser {
    fn points(&self) -> Hooks {
        Hooks { reply: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async { HookDecision::Park(Park::default()) })
    }
}

#[tokio::test]
async fn question_is_answered_with_text() {
    let place = Place::new();
    let agent = |text: &str| place.parking([Turn::text(text)]).hook(AsksUser).build().unwrap();
    let (id, request) = parked(agent("Which colour?").run("Paint.").unwrap()).await;
    assert_eq!((request.kind.as_str(), request.subject.as_str()), ("question", "Which colour?"));
    place.journal.answer(&id, &Answer::text("Blue.")).unwrap();
    let (_, second) = parked(agent("Painted blue.").resume(id.as_str()).unwrap()).await;
    assert_eq!(second.subject, "Painted blue.");
    // Without a reply the model's answer stands.
    let how = Resume::new(&id).answer(Answer::deny("nothing to add"));
    let outcome = agent("unused").resume(how).unwrap().outcome().await;
    assert_eq!(outcome.answer().as_deref(), Some("Painted blue."), "{outcome:?}");
    replays(&place, &id, &outcome);
}

#[tokio::test]
async fn outcome_of_parked_run_is_cancelled() {
    let place = Place::new();
    let agent = place.parking([act(json!({}))]).build().unwrap();
    let session = agent.session();
    let run = session.run("go").unwrap();
    let id = run.run_id().to_owned();
    let outcome = run.outcome().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(outcome.decided_by.evidence.contains("parked"), "{outcome:?}");
    assert!(place.journal.load(&id).unwrap().outcome.is_none(), "the journal has no ending");
    // The session is free for the resumed run.
    place.journal.answer(&id, &Answer::deny("no")).unwrap();
    assert_eq!(parked_or_ended(session.resume(id.as_str())).await, "ended");
}

async fn parked_or_ended(run: Result<RunHandle, StartError>) -> &'static str {
    match run.unwrap().wait_for_status().await {
        RunStatus::Parked(_) => "parked",
        _ => "ended",
    }
}

#[tokio::test]
async fn cancel_while_parking_ends_run() {
    let place = Place::new();
    let gate = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&gate);
    let look = tool_fn("look", "Looks.", move |_: Value, _| {
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            ToolOutput::ok("seen")
        }
    })
    .parallel_safe();
    let script = [Turn::call("look", &json!({})).and_call("act", &json!({}))];
    let agent = place.parking(script).tool(look).build().unwrap();
    let mut run = agent.run("go").unwrap();
    while !matches!(
        run.next().await.map(|event| event.kind),
        Some(AgentEventKind::ToolStarted { .. })
    ) {}
    run.cancel();
    let outcome = run.outcome().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(place.journal.pending().unwrap().is_empty());
}

#[tokio::test]
async fn damaged_decision_cannot_approve_other_call() {
    let place = Place::new();
    let (id, _) = place.park().await;
    place.journal.answer(&id, &Answer::approve()).unwrap();
    // A third party changes the call in the file.
    let file = rusqlite::Connection::open(place.journal.path()).unwrap();
    file.execute_batch("DROP TRIGGER what_happened_stands").unwrap();
    let changed = file
        .execute(
            r#"UPDATE log SET event = replace(event, '\"a\":2', '\"a\":3') WHERE name = 'turn_ended'"#,
            [],
        )
        .unwrap();
    assert_eq!(changed, 1);
    let outcome = place.resume(&id).await;
    assert!(results(&outcome)[0].content.contains("another request"), "{outcome:?}");
    assert!(place.ran().is_empty());
}

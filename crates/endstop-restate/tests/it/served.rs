//! Durable runs behind a server, over an engine that answers as the test wants, and a store that the test
//! fills as workers do.

use crate::engine::{FakeEngine, Reply};
use crate::support::{Worker, next};
use endstop::event::RequestId;
use endstop::park::Answer;
use endstop::wire::redact::KnownKeys;
use endstop::{Approval, LimitChanges, Limits};
use endstop_restate::serve::{DurableRuns, RunsOptions};
use endstop_restate::{
    Attempt, Began, Catalog, Content, Decision, Head, HeadState, Letter, Past, Step, StepEnd,
    Store, Summary, Task, Tip,
};
use endstop_serve::backend::{
    After, AgentInfo, Backend, BackendError, ErrorKind, EventFrames, Filter, RunRequest, RunState,
    Started, Stop,
};
use serde_json::{Map, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A deadline longer than anything in these tests takes, so that only a hang exceeds it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A store, an engine, and any number of servers.
pub(crate) struct Lab {
    pub(crate) store: Store,
    pub(crate) engine: FakeEngine,
    pub(crate) reported: Arc<Mutex<Vec<String>>>,
    _folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let engine = FakeEngine::start(store.id());
        Lab { store, engine, reported: Arc::default(), _folder: folder }
    }

    pub(crate) fn server(&self) -> DurableRuns {
        self.server_at(&self.engine.url(), DEADLINE)
    }

    /// A server that soon gives up an engine that does not answer.
    fn hasty_server(&self) -> DurableRuns {
        self.server_at(&self.engine.url(), Duration::from_secs(1))
    }

    fn server_at(&self, url: &str, engine_time: Duration) -> DurableRuns {
        let limits = Limits { max_turns: Some(10), ..Limits::default() };
        let agent = AgentInfo { name: "a".to_owned(), model: None, limits };
        let mut options = RunsOptions::new(url);
        options.engine_time = engine_time;
        let reported = Arc::clone(&self.reported);
        let report = move |problem: &str| reported.lock().unwrap().push(problem.to_owned());
        DurableRuns::open(self.store.clone(), vec![agent], &options, report).unwrap()
    }

    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::of(&self.store)
    }

    /// Writes a step as a worker does, and notes it if the engine has it.
    pub(crate) fn put(&self, run: &str, past: &mut Past, step: &Step, confirmed: bool) {
        let kept = self.store.put(run, past.steps(), step).unwrap();
        past.take(step);
        if !confirmed {
            return;
        }
        let tip = Tip { number: kept.number, sha256: kept.sha256 };
        match &step.end {
            Some(StepEnd::Ended { outcome }) => {
                self.catalog().ended(run, &Summary::of(outcome, tip, 99)).unwrap();
            }
            Some(StepEnd::Parked { .. }) => {
                self.catalog().head(run, &Head { tip, state: HeadState::Parked }).unwrap();
            }
            _ => self.catalog().head(run, &Head { tip, state: HeadState::Running }).unwrap(),
        }
    }

    /// Drives a run until it parks or ends.
    pub(crate) async fn drive(
        &self,
        worker: &Worker,
        run: &str,
        past: &mut Past,
        answer: Option<Answer>,
    ) {
        let began = Began { invocation: "inv_1".to_owned(), at_ms: 7 };
        self.catalog().begin(run, &began).unwrap();
        let mut attempt = attempt(worker, run, past, answer);
        loop {
            let step = next(&mut attempt).await;
            self.put(run, past, &step, true);
            attempt.stored();
            if step.end.is_some() {
                return;
            }
        }
    }
}

fn attempt(worker: &Worker, run: &str, past: &Past, answer: Option<Answer>) -> Attempt {
    let task = Task { id: run.to_owned(), ..worker.task() };
    Attempt::begin(task, Arc::new(past.clone()), answer, None)
}

pub(crate) fn request() -> RunRequest {
    RunRequest {
        agent: "a".to_owned(),
        task: "Work.".to_owned(),
        limits: Map::new(),
        origin: None,
        trace_parent: None,
    }
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, BackendError>) -> ErrorKind {
    result.unwrap_err().kind
}

async fn listed(runs: &DurableRuns) -> Vec<String> {
    let runs = runs.list(Filter { most: 100, ..Filter::default() }).await.unwrap();
    runs.into_iter().map(|run| run.id).collect()
}

/// Reads the events of a run after a place until their end.
pub(crate) async fn events(runs: &DurableRuns, run: &str, after: u64) -> Vec<String> {
    let Some(mut source) = runs.follow(run, After::Number(after)).await.unwrap() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    while let Some(frame) =
        tokio::time::timeout(DEADLINE, source.next()).await.expect("the stream hangs")
    {
        all.push(String::from_utf8(frame.to_vec()).unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_key_finds_its_run() {
    let lab = Lab::new();
    let (one, other) = (lab.server(), lab.server());
    let Started::New(id) = one.start("ci", Some("k"), request()).await.unwrap() else {
        panic!("the run is known already")
    };
    let again = other.start("ci", Some("k"), request()).await.unwrap();
    assert_eq!(again, Started::Known(id.clone()));
    // A server that was restarted, and the same key of another token.
    assert_eq!(lab.server().start("ci", Some("k"), request()).await.unwrap().id(), id);
    assert_ne!(lab.server().start("ops", Some("k"), request()).await.unwrap().id(), id);
    let changed = RunRequest { task: "Other.".to_owned(), ..request() };
    assert_eq!(kind(one.start("ci", Some("k"), changed).await), ErrorKind::KeyReused);
    assert_eq!(lab.engine.got(&format!("/{id}/start/send")).len(), 1);
    let run = one.get(&id).await.unwrap().unwrap();
    assert_eq!((run.state, run.request.task.as_str()), (RunState::Queued, "Work."));
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_requests_start_one_run() {
    let lab = Lab::new();
    let servers: Vec<Arc<DurableRuns>> = (0..4).map(|_| Arc::new(lab.server())).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..16 {
        let server = Arc::clone(&servers[nth % 4]);
        tasks.spawn(async move { server.start("ci", Some("k"), request()).await.unwrap() });
    }
    let started = tasks.join_all().await;
    let new = started.iter().filter(|started| matches!(started, Started::New(_))).count();
    assert_eq!(new, 1, "{started:?}");
    assert!(started.iter().all(|one| one.id() == started[0].id()), "{started:?}");
    assert_eq!(listed(&servers[0]).await, [started[0].id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_engine_accepts_nothing() {
    let lab = Lab::new();
    let down = lab.server_at("http://127.0.0.1:1", DEADLINE);
    for key in [None, Some("k")] {
        let error = down.start("", key, request()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("repeat the request") && !error.message.contains("127.0"));
    }
    assert_eq!(kind(down.ready().await), ErrorKind::Unavailable);
    // Nothing is left behind, and what is there can be read.
    assert_eq!(std::fs::read_dir(lab.store.folder().join("runs")).unwrap().count(), 0);
    let id = lab.server().start("", Some("k"), request()).await.unwrap().id().to_owned();
    assert_eq!(listed(&down).await, [id.as_str()]);
    assert_eq!(kind(down.stop(&id, Stop::Cancel).await), ErrorKind::Unavailable);
    assert!(!down.get(&id).await.unwrap().unwrap().stopping);
    // A repeated request needs no engine, because the store has its run.
    let again = down.start("", Some("k"), request()).await.unwrap();
    assert_eq!(again, Started::Known(id));
}

/// Each way in which an engine can fail after it has read the request for a run. It may have the run.
#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_run_never_begins() {
    let hostile = [
        Reply::Silence,
        Reply::Close,
        Reply::Answer(500, "{}".to_owned()),
        Reply::Answer(503, String::new()),
        Reply::Answer(429, String::new()),
        Reply::Answer(301, String::new()),
        Reply::ok("not JSON"),
        Reply::ok(&format!("\"{}\"", "x".repeat(2 << 20))),
        Reply::ok(&"[".repeat(100_000)),
    ];
    for reply in hostile {
        let lab = Lab::new();
        let server = lab.hasty_server();
        let fails = reply.clone();
        lab.engine
            .answers(move |request| request.path.ends_with("/start/send").then(|| fails.clone()));
        for key in [None, Some("k")] {
            let error = server.start("", key, request()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{reply:?}");
        }
        assert!(listed(&server).await.is_empty(), "{reply:?}");
        // The engine had the requests after all, and gives them to a worker.
        let sent = lab.engine.got("/start/send");
        assert!(sent.len() >= 2, "{reply:?}");
        for request in &sent {
            let id = request.path.split('/').nth(2).unwrap();
            let decided = lab.catalog().decide(id, Decision::Accepted).unwrap();
            assert_eq!(decided, Decision::Withdrawn, "{reply:?}");
        }
        // The repeated request starts one run, with another id.
        lab.engine.answers(|_| None);
        let server = lab.server();
        let started = server.start("", Some("k"), request()).await.unwrap();
        assert!(matches!(started, Started::New(_)));
        assert!(sent.iter().all(|request| !request.path.contains(started.id())));
        assert_eq!(listed(&server).await, [started.id()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_confirms_what_the_engine_does_not() {
    let lab = Lab::new();
    let server = lab.hasty_server();
    let catalog = lab.catalog();
    lab.engine.answers(move |request| {
        let id = request.path.strip_suffix("/start/send")?.rsplit('/').next()?;
        // The worker is faster than the answer, which never comes.
        assert_eq!(catalog.decide(id, Decision::Accepted).unwrap(), Decision::Accepted);
        Some(Reply::Silence)
    });
    let started = server.start("", None, request()).await.unwrap();
    assert_eq!(listed(&server).await, [started.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_dead_server_is_repeated() {
    let lab = Lab::new();
    // The first server died after it had sent the request.
    lab.engine.answers(|request| request.path.ends_with("/start/send").then_some(Reply::Silence));
    let first = Arc::new(lab.server());
    let mut dies = tokio::task::JoinSet::new();
    dies.spawn(async move { first.start("", Some("k"), request()).await });
    while lab.engine.got("/start/send").is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    dies.shutdown().await;
    lab.engine.answers(|_| None);
    let server = lab.server();
    assert!(listed(&server).await.is_empty(), "no client has an answer");
    let started = server.start("", Some("k"), request()).await.unwrap();
    let sent = lab.engine.got("/start/send");
    assert!(sent.iter().all(|request| request.path.contains(started.id())), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_store_is_refused() {
    let lab = Lab::new();
    lab.engine
        .answers(|request| request.path.ends_with("/claim").then(|| Reply::ok("\"another\"")));
    let server = lab.server();
    assert_eq!(kind(server.start("", None, request()).await), ErrorKind::Unavailable);
    assert!(lab.engine.got("/start").is_empty());
    assert!(lab.reported.lock().unwrap()[0].contains("same shared folder"));
    // The workers were restarted with the right folder.
    lab.engine.answers(|_| None);
    assert!(server.start("", None, request()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_further_runs() {
    let lab = Lab::new();
    let mut options = RunsOptions::new(lab.engine.url());
    options.max_queued = 1;
    let agent = AgentInfo { name: "a".to_owned(), model: None, limits: Limits::default() };
    let server = DurableRuns::open(lab.store.clone(), vec![agent], &options, |_| {}).unwrap();
    let id = server.start("", Some("k"), request()).await.unwrap().id().to_owned();
    assert_eq!(kind(server.start("", None, request()).await), ErrorKind::Full);
    assert_eq!(kind(server.start("", Some("other"), request()).await), ErrorKind::Full);
    // A client that has lost the answer gets the run that it has started.
    let again = server.start("", Some("k"), request()).await.unwrap();
    assert!(matches!(&again, Started::Known(known) if *known == id), "{again:?}");
    let other = RunRequest { task: "another".to_owned(), ..request() };
    assert_eq!(kind(server.start("", Some("k"), other).await), ErrorKind::KeyReused);
    let began = Began { invocation: "inv_1".to_owned(), at_ms: 1 };
    lab.catalog().begin(&id, &began).unwrap();
    assert!(server.start("", None, request()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_reach_no_engine() {
    let lab = Lab::new();
    let server = lab.server();
    let Some(limits) = json!({"max_turns": 11}).as_object().cloned() else { panic!() };
    for (wrong, expected) in [
        (RunRequest { agent: "b".to_owned(), ..request() }, ErrorKind::UnknownAgent),
        (RunRequest { task: " ".to_owned(), ..request() }, ErrorKind::InvalidRun),
        (RunRequest { limits, ..request() }, ErrorKind::InvalidRun),
    ] {
        assert_eq!(kind(server.start("", None, wrong).await), expected);
    }
    for id in ["unknown", "..", "a/b", ""] {
        assert!(server.get(id).await.unwrap().is_none(), "{id:?}");
        assert_eq!(kind(server.stop(id, Stop::Cancel).await), ErrorKind::UnknownRun);
        assert_eq!(kind(server.say(id, "hi".to_owned()).await), ErrorKind::UnknownRun);
    }
    assert!(lab.engine.got("/").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_is_followed_from_any_server() {
    let lab = Lab::new();
    let (one, other) = (lab.server(), lab.server());
    let id = one.start("", None, request()).await.unwrap().id().to_owned();
    let worker = Worker { size: 20_000, ..Worker::new(3) };
    // A third server reads while the run works.
    let (reader, mut past) = (lab.server(), Past::default());
    let driven = lab.drive(&worker, &id, &mut past, None);
    let (live, ()) = tokio::join!(events(&reader, &id, 0), driven);
    let all = events(&one, &id, 0).await;
    assert_eq!(live, all);
    assert!(all.first().unwrap().starts_with("id: 1\nevent: turn_started\n"), "{all:?}");
    assert!(all.last().unwrap().contains("event: finished\n"));
    for after in 0..all.len() {
        assert_eq!(events(&other, &id, after as u64).await, all[after..]);
    }
    assert!(events(&other, &id, 10_000).await.is_empty(), "there is nothing after the end");
    let run = other.get(&id).await.unwrap().unwrap();
    assert_eq!((run.state, run.termination.as_deref()), (RunState::Ended, Some("stop")));
    assert_eq!((run.started_ms, run.ended_ms, run.turns), (Some(7), Some(99), Some(4)));
    assert_eq!(other.outcome(&id).await.unwrap().unwrap()["termination"], "stop");
    other.stop(&id, Stop::Cancel).await.unwrap();
    assert!(lab.engine.got("/stop").is_empty(), "the run has ended");
    let totals = other.totals().await.unwrap();
    assert_eq!(totals.ended[&("a".to_owned(), "stop".to_owned())], 1);
    assert_eq!((totals.started["a"], totals.running, totals.queued), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_step_is_not_shown() {
    let lab = Lab::new();
    let server = lab.server();
    let id = server.start("", None, request()).await.unwrap().id().to_owned();
    let worker = Worker::new(2);
    let mut past = Past::default();
    let mut first = attempt(&worker, &id, &past, None);
    let step = next(&mut first).await;
    lab.put(&id, &mut past, &step, true);
    first.stored();
    let before = past.clone();
    // The worker writes this step, and dies before the engine has it.
    let lost = next(&mut first).await;
    lab.put(&id, &mut past.clone(), &lost, false);
    drop(first);
    let mut source = server.follow(&id, After::Number(0)).await.unwrap().unwrap();
    let mut shown = Vec::new();
    while let Ok(frame) = tokio::time::timeout(Duration::from_millis(400), source.next()).await {
        shown.push(String::from_utf8(frame.unwrap().to_vec()).unwrap());
    }
    let frames = EventFrames::of(&before.recorded().unwrap(), KnownKeys::default()).unwrap();
    assert_eq!(shown.len() as u64, frames.numbers());
    // Another worker continues, with other steps.
    lab.drive(&worker, &id, &mut past, None).await;
    while let Some(frame) = tokio::time::timeout(DEADLINE, source.next()).await.unwrap() {
        shown.push(String::from_utf8(frame.to_vec()).unwrap());
    }
    assert_eq!(shown, events(&server, &id, 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_run_is_answered_once() {
    let lab = Lab::new();
    let (one, other) = (lab.server(), lab.server());
    let id = one.start("", None, request()).await.unwrap().id().to_owned();
    let worker = Worker { asks: true, ..Worker::new(1) };
    let mut past = Past::default();
    lab.drive(&worker, &id, &mut past, None).await;
    let run = other.get(&id).await.unwrap().unwrap();
    assert_eq!((run.state, run.approvals), (RunState::Parked, Some(1)));
    let open = other.open_requests(&id).await.unwrap();
    let request = RequestId(open[0]["request_id"].as_u64().unwrap());
    let answer = |approval| other.answer(&id, request, approval);
    let unknown = one.answer(&id, RequestId(request.0 ^ 1), Approval::Allow).await;
    assert_eq!(kind(unknown), ErrorKind::UnknownRequest);
    assert!(lab.engine.got("/answer").is_empty());
    let Some(arguments) = json!({"number": 70}).as_object().cloned() else { panic!() };
    answer(Approval::AllowChanged(arguments)).await.unwrap();
    let sent = lab.engine.got("/answer").remove(0);
    let decision: serde_json::Value = serde_json::from_str(&sent.body).unwrap();
    assert_eq!(
        (&decision["approve"], &decision["arguments"]["number"]),
        (&json!(true), &json!(70))
    );
    assert_eq!(decision["digest"].as_str().unwrap().len(), 64);
    answer(Approval::Allow).await.unwrap();
    let sent = &lab.engine.got("/answer")[1];
    assert!(
        sent.body.contains("\"approve\":true")
            && !sent.body.contains("arguments")
            && sent.path.contains(&id),
        "{sent:?}"
    );
    // The engine has the first decision, and the worker has not continued yet.
    lab.engine.answers(|request| {
        request.path.ends_with("/answer").then(|| Reply::Answer(409, "{}".to_owned()))
    });
    assert_eq!(kind(answer(Approval::Allow).await), ErrorKind::NotOpen);
    lab.engine.answers(|request| request.path.ends_with("/answer").then_some(Reply::Silence));
    let unanswered = lab.hasty_server().answer(&id, request, Approval::Allow).await;
    assert_eq!(kind(unanswered), ErrorKind::Unavailable);
    lab.drive(&worker, &id, &mut past, Some(Answer::approve())).await;
    assert_eq!(kind(answer(Approval::Allow).await), ErrorKind::NotOpen);
    assert_eq!(one.get(&id).await.unwrap().unwrap().state, RunState::Ended);
}

/// Writes the first step of a run, so that it works.
async fn begun(lab: &Lab, id: &str) -> (Attempt, Past) {
    let (worker, mut past) = (Worker::new(2), Past::default());
    lab.catalog().begin(id, &Began { invocation: "inv_1".to_owned(), at_ms: 7 }).unwrap();
    let mut attempt = attempt(&worker, id, &past, None);
    let step = next(&mut attempt).await;
    lab.put(id, &mut past, &step, true);
    (attempt, past)
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_need_a_working_run() {
    let lab = Lab::new();
    let server = lab.server();
    let say = async |id: &str| kind(server.say(id, "Hi.".to_owned()).await);
    let queued = server.start("", None, request()).await.unwrap().id().to_owned();
    assert_eq!(say(&queued).await, ErrorKind::NotStarted);
    let parked = server.start("", None, request()).await.unwrap().id().to_owned();
    let (worker, mut past) = (Worker { asks: true, ..Worker::new(1) }, Past::default());
    lab.drive(&worker, &parked, &mut past, None).await;
    assert_eq!(say(&parked).await, ErrorKind::Parked);
    lab.drive(&worker, &parked, &mut past, Some(Answer::approve())).await;
    assert_eq!(say(&parked).await, ErrorKind::NotOpen);
    let (_attempt, _) = begun(&lab, &queued).await;
    assert_eq!(kind(server.say(&queued, " ".to_owned()).await), ErrorKind::InvalidChange);
    let long = "x".repeat((64 << 10) + 1);
    assert_eq!(kind(server.say(&queued, long).await), ErrorKind::TooLarge);
    assert!(lab.engine.got("/steer").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_is_answered_with_its_decision() {
    let lab = Lab::new();
    let server = lab.server();
    let id = server.start("", None, request()).await.unwrap().id().to_owned();
    let (_attempt, _) = begun(&lab, &id).await;
    let engine = |steer: Reply, steered: Reply| {
        lab.engine.answers(move |request| match request.path.rsplit('/').next() {
            Some("steer") => Some(steer.clone()),
            Some("steered") => Some(steered.clone()),
            _ => None,
        });
    };
    engine(Reply::ok("7"), Reply::ok("null"));
    server.say(&id, "Only the tests.".to_owned()).await.unwrap();
    let changes = LimitChanges::new().set("max_turns", json!(3)).unwrap();
    server.set_limits(&id, changes.clone()).await.unwrap();
    let sent: Vec<Letter> = lab
        .engine
        .got("/steer")
        .iter()
        .filter(|request| request.path.ends_with("/steer"))
        .map(|request| serde_json::from_str(&request.body).unwrap())
        .collect();
    assert_eq!(sent[0].content, Content::Say("Only the tests.".to_owned()));
    assert_eq!(sent[1].content, Content::Limits(changes.clone()));
    assert_ne!(sent[0].id, sent[1].id, "each letter counts");
    assert_eq!(lab.engine.got("/steered")[0].body, "7");

    let refusal = r#"{"kind":"invalid","message":"the change would loosen max_turns"}"#;
    engine(Reply::ok("8"), Reply::ok(refusal));
    let refused = server.set_limits(&id, changes).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidChange);
    assert!(refused.message.contains("max_turns"), "{refused}");
    // The run has ended since it was looked up, and has got too many letters.
    for (status, expected) in [(409, ErrorKind::NotOpen), (413, ErrorKind::TooLarge)] {
        engine(Reply::Answer(status, "{}".to_owned()), Reply::Close);
        assert_eq!(kind(server.say(&id, "Hi.".to_owned()).await), expected);
    }
    engine(Reply::Silence, Reply::Close);
    let unsent = lab.hasty_server().say(&id, "Hi.".to_owned()).await;
    assert_eq!(kind(unsent), ErrorKind::Unavailable);
    // The engine has the letter, and no worker decides.
    engine(Reply::ok("9"), Reply::Silence);
    lab.hasty_server().say(&id, "Hi.".to_owned()).await.unwrap();
}

/// A reader has read the events of each beginning of a run, so no event may move when the run continues.
#[tokio::test(flavor = "multi_thread")]
async fn each_step_only_adds_events() {
    for asks in [false, true] {
        let worker = Worker { asks, ..Worker::new(3) };
        let (mut past, mut pasts) = (Past::default(), Vec::new());
        let mut answer = None;
        let mut crashes = 0;
        'run: loop {
            let mut attempt = attempt(&worker, "r1", &past, answer.take());
            let mut steps = 0;
            loop {
                let step = next(&mut attempt).await;
                past.take(&step);
                attempt.stored();
                pasts.push(past.clone());
                steps += 1;
                match &step.end {
                    Some(StepEnd::Parked { .. }) => {
                        answer = Some(Answer::approve());
                        break;
                    }
                    Some(_) => break 'run,
                    // Each attempt but the last few is cut off after some steps.
                    None if crashes < 4 && steps > crashes => {
                        crashes += 1;
                        break;
                    }
                    None => {}
                }
            }
        }
        let frames = |past: &Past| {
            let recorded = past.recorded().unwrap();
            let all = EventFrames::of(&recorded, KnownKeys::default()).unwrap();
            (0..all.numbers()).map(|at| all.get(at).unwrap()).collect::<Vec<_>>()
        };
        let whole = frames(&past);
        for (at, past) in pasts.iter().enumerate() {
            let beginning = frames(past);
            assert_eq!(beginning, whole[..beginning.len()], "asks: {asks}, step {at}");
        }
    }
}

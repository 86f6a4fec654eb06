//! A run of a scenario on some driver, and what must hold of every ending.

use crate::model::{Model, over};
use endstop::journal::RecordedRun;
use endstop::testkit::strict;
use endstop::testkit::{Reply, Server, Turn};
use endstop::tool::{Tool, ToolContext, ToolOutput, tool_fn};
use endstop::{AgentBuilder, Limits, Outcome, Termination, ToolResult};
use endstop_restate::Stop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time after which a run counts as hanging. Long, because a busy machine may stop a test for seconds.
pub const HANG: Duration = Duration::from_secs(60);

/// A time that no test waits for.
pub const LONG: Duration = Duration::from_secs(3600);

/// The formats with the strictest rules, which include those of the others.
pub const APIS: [&str; 2] = ["openai-chat", "anthropic-messages"];

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Builds the agent of a run. A durable driver builds it again for each attempt.
pub type Build = Arc<dyn Fn() -> AgentBuilder + Send + Sync>;

/// A run to be started.
#[derive(Clone)]
pub struct Case {
    pub build: Build,
    pub limits: Limits,
    /// A stop that comes before the run begins.
    pub stop_first: Option<Stop>,
}

impl Case {
    pub fn limits(self, limits: Limits) -> Case {
        Case { limits, ..self }
    }

    pub fn stop_first(self, stop: Stop) -> Case {
        Case { stop_first: Some(stop), ..self }
    }
}

/// The task of every run.
pub const TASK: &str = "Do it.";

/// Starts runs.
pub trait Driver: Send + Sync {
    /// Starts a run. An agent that cannot be built is an error here, or an ending.
    fn start(&self, case: Case) -> Boxed<'_, Result<Box<dyn Live>, String>>;
}

/// A run that was started.
pub trait Live: Send + Sync {
    /// Stops the run; a stop after the end does nothing.
    fn stop(&self, stop: Stop) -> Boxed<'_, ()>;
    /// Waits for the end.
    fn end(&mut self) -> Boxed<'_, Ended>;
    /// Reads the ending that is stored.
    fn stored(&self) -> Boxed<'_, Outcome>;
    /// Starts the run again after its end; returns the words that refuse it.
    fn again(&self) -> Boxed<'_, String>;
}

/// The end of a run, as its driver has stored it.
pub struct Ended {
    pub outcome: Outcome,
    /// Number of endings that were reported.
    pub endings: usize,
    /// `true` if nothing was reported after the ending.
    pub last: bool,
    pub recorded: RecordedRun,
}

/// The endings of a scenario, counted.
#[derive(Default)]
struct Tally {
    endings: BTreeMap<String, usize>,
}

/// A counter that is shared by the tools of a scenario.
#[derive(Clone, Default)]
pub struct Counter(pub Arc<AtomicUsize>);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// The surroundings of a scenario: the driver, and the counters of its table cell.
#[derive(Clone)]
pub struct On {
    driver: Arc<dyn Driver>,
    number: u32,
    tally: Arc<Mutex<Tally>>,
    /// Number of requests to the scripted servers.
    pub calls: Counter,
    /// Number of tool bodies that were started.
    pub bodies: Counter,
}

impl On {
    pub fn new(driver: Arc<dyn Driver>, number: u32) -> On {
        let (calls, bodies) = (Counter::default(), Counter::default());
        On { driver, number, tally: Arc::default(), calls, bodies }
    }

    /// Returns what happened, for the table.
    pub fn tally(&self) -> String {
        let tally = self.tally.lock().unwrap();
        let endings = tally.endings.iter().map(|(name, count)| format!("{count} × `{name}`"));
        let endings: Vec<String> = endings.collect();
        format!("{}; {}, {}", endings.join(", "), self.calls.get(), self.bodies.get())
    }

    /// Returns a case whose agent uses a scripted server.
    pub fn case(
        &self,
        model: &Model,
        with: impl Fn(AgentBuilder) -> AgentBuilder + Send + Sync + 'static,
    ) -> Case {
        let (url, api) = (model.url(), model.api);
        let build = move || with(over(&url, api).seed(1));
        Case { build: Arc::new(build), limits: Limits::default(), stop_first: None }
    }

    /// Returns a tool that counts its bodies and answers `done`.
    pub fn act(&self, name: &str) -> impl Tool + use<> {
        let bodies = self.bodies.clone();
        tool_fn(name, "Acts.", move |_: Value, _| {
            bodies.add();
            async { "done" }
        })
    }

    /// Returns a tool whose bodies wait until they are stopped.
    pub fn wait(&self, name: &str) -> impl Tool + use<> {
        let bodies = self.bodies.clone();
        tool_fn(name, "Waits.", move |_: Value, context: ToolContext| {
            bodies.add();
            async move {
                context.cancelled().await;
                ToolOutput::error("stopped")
            }
        })
    }

    /// Starts a run.
    pub async fn start(&self, case: Case) -> Started {
        self.try_start(case).await.unwrap()
    }

    /// Starts a run whose agent may be refused before it begins.
    pub async fn try_start(&self, case: Case) -> Result<Started, String> {
        let live = tokio::time::timeout(HANG, self.driver.start(case)).await;
        let live = live.unwrap_or_else(|_| panic!("C{}: no start after {HANG:?}", self.number))?;
        Ok(Started { live, on: self.clone() })
    }

    /// Runs a case to its end.
    pub async fn run(&self, case: Case) -> Outcome {
        self.start(case).await.end().await
    }

    pub fn note(&self, ending: &str) {
        *self.tally.lock().unwrap().endings.entry(ending.to_owned()).or_default() += 1;
    }
}

/// A run of a scenario.
pub struct Started {
    live: Box<dyn Live>,
    on: On,
}

impl Started {
    pub async fn stop(&self, stop: Stop) {
        self.live.stop(stop).await;
    }

    /// Waits for the end, and checks what holds of every ending.
    pub async fn end(&mut self) -> Outcome {
        let number = self.on.number;
        let ended = tokio::time::timeout(HANG, self.live.end()).await;
        let ended = ended.unwrap_or_else(|_| panic!("C{number}: no ending after {HANG:?}"));
        assert_eq!((ended.endings, ended.last), (1, true), "C{number}: {:?}", ended.outcome);
        agrees_with_itself(number, &ended.outcome);
        assert_replays(number, &ended);
        providers_accept(number, &ended.outcome).await;
        self.on.note(ended.outcome.termination.as_str());
        ended.outcome
    }

    pub async fn stored(&self) -> Outcome {
        self.live.stored().await
    }

    pub async fn again(&self) -> String {
        self.live.again().await
    }
}

/// Asserts that no field of the outcome contradicts another.
fn agrees_with_itself(number: u32, outcome: &Outcome) {
    let success = outcome.is_success();
    let json = serde_json::to_value(outcome).unwrap();
    let name = json["termination"].as_str().unwrap();
    assert_eq!(name, outcome.termination.as_str(), "C{number}");
    assert_eq!(json["category"], outcome.category().as_str(), "C{number}");
    assert_eq!(json["category"], Termination::category_str(name).as_str(), "C{number}");
    assert_eq!(success, Termination::is_success_str(name), "C{number}");
    assert_eq!(success, outcome.exit_status() == 0, "C{number}");
    assert!(!outcome.decided_by.evidence.is_empty(), "C{number}: the evidence is empty");
}

/// Asserts that a replay of the journal gives the same outcome.
fn assert_replays(number: u32, ended: &Ended) {
    // A policy of code cannot be built again from the journal.
    if ended.recorded.header.policy.is_some() {
        return;
    }
    let replay = ended.recorded.replay(None).unwrap_or_else(|e| panic!("C{number}: {e}"));
    let replayed = serde_json::to_value(replay.outcome().expect("an ending")).unwrap();
    let outcome = serde_json::to_value(&ended.outcome).unwrap();
    for name in ["termination", "turns", "tool_calls", "usage", "cost_usd", "messages"] {
        assert_eq!(replayed[name], outcome[name], "C{number}: {name}");
    }
}

/// Asserts that the strictest providers accept the conversation, and that it can be continued.
async fn providers_accept(number: u32, outcome: &Outcome) {
    for api in APIS {
        let refused = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&refused);
        let server = Server::start(move |request| {
            seen.lock().unwrap().extend(strict::problem(api, &request.body));
            Reply::turn(request, &Turn::text("continuing"))
        });
        let server = server.unwrap();
        let agent = over(&server.base_url(), api).build().unwrap();
        let session = agent.session_from(outcome.messages.clone());
        let session = session.unwrap_or_else(|e| panic!("C{number}: {e}: {:?}", outcome.messages));
        let after = session.run("Continue.").unwrap().await;
        let refused = refused.lock().unwrap();
        assert!(refused.is_empty(), "C{number}: {api}: {refused:?}: {:?}", outcome.messages);
        assert_eq!(after.termination, Termination::Stop, "C{number}: {api}: {after:?}");
    }
}

/// Returns the results of all calls, in the order of the conversation.
pub fn results(outcome: &Outcome) -> Vec<ToolResult> {
    outcome.messages.iter().flat_map(|message| message.tool_results()).cloned().collect()
}

/// Waits until a condition holds; fails after [`HANG`].
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < HANG, "after {HANG:?} still not: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

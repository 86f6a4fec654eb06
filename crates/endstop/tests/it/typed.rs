//! Runs whose answer is a value of a Rust type.

use crate::support::HANG;
use endstop::provider::http::HttpProvider;
use endstop::schema::OutputSchema;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, AgentEventKind, BuildError, Limits, NoValue, Outcome, Termination};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct City {
    name: String,
    /// Inhabitants.
    population: u32,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Tree {
    name: String,
    children: Vec<Tree>,
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Point,
    Circle { radius: f64 },
    Both(Box<Shape>, Box<Shape>),
}

/// A number that must be even, which its schema does not say.
#[derive(Debug, PartialEq, JsonSchema)]
struct Even(u32);

impl<'de> Deserialize<'de> for Even {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Even, D::Error> {
        let number = u32::deserialize(deserializer)?;
        if number % 2 == 0 {
            return Ok(Even(number));
        }
        Err(serde::de::Error::custom(format!("{number} is odd")))
    }
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Pair {
    left: Even,
    right: Even,
}

fn agent(answers: &[&str]) -> Agent {
    let turns: Vec<Turn> = answers.iter().map(|answer| Turn::text(*answer)).collect();
    Agent::builder(ScriptedModel::new(turns)).build().unwrap()
}

fn repairs(outcome: &Outcome) -> Vec<String> {
    let user = outcome.messages.iter().filter(|m| m.role == endstop::Role::User);
    user.skip(1).map(endstop::Message::plain_text).collect()
}

#[tokio::test]
async fn answer_becomes_value() {
    let answer = "Sure:\n```json\n{\"name\": \"Oslo\", \"population\": 717710}\n```";
    let outcome = agent(&[answer]).run_typed::<City>("Where?").unwrap().await;
    assert!(outcome.is_success());
    let city = City { name: "Oslo".into(), population: 717_710 };
    assert_eq!(outcome.value.as_ref(), Some(&city));
    assert_eq!(outcome.structured, Some(json!({"name": "Oslo", "population": 717_710})));
    assert_eq!(outcome.into_result().unwrap(), city);
}

#[tokio::test]
async fn undeserializable_answer_is_repaired() {
    let bad = r#"{"left": 2, "right": 3}"#;
    let good = r#"{"left": 2, "right": 4}"#;
    let outcome = agent(&[bad, good]).run_typed::<Pair>("Two even numbers.").unwrap().await;
    assert_eq!(outcome.value, Some(Pair { left: Even(2), right: Even(4) }));
    let [repair] = &repairs(&outcome)[..] else { panic!("{outcome:?}") };
    assert!(repair.contains("at `right`: 3 is odd"), "{repair}");

    let limits = Limits { max_structured_output_retries: Some(1), ..Limits::default() };
    let turns = [Turn::text(bad), Turn::text(bad)];
    let agent = Agent::builder(ScriptedModel::new(turns)).limits(limits).build().unwrap();
    let outcome = agent.run_typed::<Pair>("Two even numbers.").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorMaxStructuredOutputRetries);
    assert_eq!(outcome.value, None);
    let error = outcome.into_result().unwrap_err().to_string();
    assert!(error.contains("3 is odd"), "{error}");
}

#[tokio::test]
async fn bounds_are_validated() {
    let answers = [r#"{"name": "Oslo", "population": -1}"#, r#"{"name": "Oslo", "population": 1}"#];
    let outcome = agent(&answers).run_typed::<City>("Where?").unwrap().await;
    let [repair] = &repairs(&outcome)[..] else { panic!("{outcome:?}") };
    assert!(repair.contains("less than the minimum of 0"), "{repair}");
    assert_eq!(outcome.value.unwrap().population, 1);
}

#[tokio::test]
async fn other_roots_are_wrapped() {
    let list = agent(&[r#"{"value": ["a", "b"]}"#]).run_typed::<Vec<String>>("?").unwrap().await;
    assert_eq!(list.outcome.structured, Some(json!(["a", "b"])));
    assert_eq!(list.value.unwrap(), ["a", "b"]);
    // The bare value is as clear.
    let list = agent(&["[1, 2]"]).run_typed::<Vec<u8>>("?").unwrap().await;
    assert_eq!(list.value.unwrap(), [1, 2]);
    let text = agent(&["Paris, of course."]).run_typed::<String>("?").unwrap().await;
    assert_eq!(text.value.unwrap(), "Paris, of course.");
    let text = agent(&[r#"{"value": "Paris"}"#]).run_typed::<String>("?").unwrap().await;
    assert_eq!(text.value.unwrap(), "Paris");
    let none = agent(&[r#"{"value": null}"#]).run_typed::<Option<u8>>("?").unwrap().await;
    assert_eq!(none.value.unwrap(), None);
    let shape = agent(&[r#"{"value": {"both": ["point", {"circle": {"radius": 1.5}}]}}"#]);
    let shape = shape.run_typed::<Shape>("?").unwrap().await;
    let circle = Box::new(Shape::Circle { radius: 1.5 });
    assert_eq!(shape.value.unwrap(), Shape::Both(Box::new(Shape::Point), circle));
    // A map is an object, also with a key `value`.
    let map = agent(&[r#"{"value": 1}"#]).run_typed::<BTreeMap<String, u8>>("?").unwrap().await;
    assert_eq!(map.value.unwrap(), BTreeMap::from([("value".to_owned(), 1)]));
    let wrong = agent(&["[300]", "[3]"]).run_typed::<Vec<u8>>("?").unwrap().await;
    assert_eq!(wrong.turns, 2);
    assert_eq!(wrong.value.unwrap(), [3]);
}

#[tokio::test]
async fn deliverable_of_finish_is_typed() {
    let call = |value: Value| Turn::call("finish", &json!({"deliverable": value}));
    let turns = [call(json!({"name": "Oslo"})), call(json!({"name": "Oslo", "population": 7}))];
    let agent = Agent::builder(ScriptedModel::new(turns)).finish_tool(true).build().unwrap();
    let outcome = agent.run_typed::<City>("Where?").unwrap().await;
    assert_eq!(outcome.termination, Termination::Submitted);
    assert_eq!(outcome.into_result().unwrap().population, 7);
}

#[tokio::test]
async fn session_mixes_typed_and_untyped_runs() {
    let session = agent(&[r#"{"value": 4}"#, "Four.", r#"{"value": "x"}"#, "5"]).session();
    assert_eq!(session.run_typed::<u8>("2 + 2?").unwrap().await.value, Some(4));
    let plain = session.run("In words?").unwrap().await;
    assert_eq!((plain.structured.clone(), plain.answer()), (None, Some("Four.".to_owned())));
    let next = session.run_typed::<u8>("Plus one?").unwrap().await;
    assert_eq!((next.value, next.turns), (Some(5), 2));
}

#[test]
fn sent_schema_has_no_bounds() {
    let schema = OutputSchema::of::<City>();
    let sent = schema.as_value();
    assert_eq!(sent["additionalProperties"], false);
    let population = &sent["properties"]["population"];
    assert_eq!(population["description"], "Inhabitants. (minimum: 0)");
    assert!(population.get("minimum").is_none() && population.get("format").is_none());
    let list = OutputSchema::of::<Vec<City>>();
    assert_eq!(list.as_value()["properties"]["value"]["items"]["additionalProperties"], false);
    assert!(!list.as_value().to_string().contains("$ref"));
    // Only schemas are changed, not the values in them.
    let given = OutputSchema::new(json!({"type": "object", "default": {"minimum": 1}})).unwrap();
    assert_eq!(given.as_value(), &json!({"type": "object", "default": {"minimum": 1}}));
}

#[tokio::test]
async fn recursive_type_works_or_is_refused() {
    let tree = r#"{"name": "a", "children": [{"name": "b", "children": []}]}"#;
    let outcome = agent(&[tree]).run_typed::<Tree>("?").unwrap().await;
    assert_eq!(outcome.value.unwrap().children[0].name, "b");
    // The reference still resolves inside the wrapped form.
    let forest = agent(&[&format!("{{\"value\": [{tree}]}}")]);
    let forest = forest.run_typed::<Vec<Tree>>("?").unwrap().await;
    assert_eq!(forest.value.unwrap()[0].children[0].name, "b");
    let deep = r#"{"name": "a", "children": [{"name": "b", "children": [{"name": 1}]}]}"#;
    let repaired = agent(&[deep, tree]).run_typed::<Tree>("?").unwrap().await;
    assert!(repairs(&repaired)[0].contains("/children/0/children/0"), "{repaired:?}");

    for (model, takes) in [
        ("openai/gpt-5", true),
        ("gemini/gemini-3-pro", true),
        ("anthropic/claude-sonnet-4-5", false),
    ] {
        let options = HttpProvider::builder(model);
        let provider =
            options.env(|name| name.ends_with("_KEY").then(|| "k".into())).build().unwrap();
        let agent = Agent::builder(provider.clone()).build().unwrap();
        let started = agent.run_typed::<Tree>("?").map(drop);
        assert_eq!(started.is_ok(), takes, "{model}: {started:?}");
        let built = Agent::builder(provider).output_type::<Tree>().build().map(drop);
        assert_eq!(built.is_ok(), takes, "{model}: {built:?}");
        if let Err(BuildError::Params(problem)) = built {
            assert!(problem.to_string().contains("take no recursive schema"), "{problem}");
        }
        // A type of finite depth is taken by all.
        drop(agent.run_typed::<City>("?").unwrap());
    }
}

/// A type whose `Deserialize` panics.
#[derive(JsonSchema)]
struct Rough;

impl<'de> Deserialize<'de> for Rough {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Rough, D::Error> {
        panic!("rough")
    }
}

#[tokio::test]
async fn panicking_type_ends_run_by_name() {
    let outcome = agent(&["null", "null"]).run_typed::<Rough>("?").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.decided_by.decision.to_string(), "schema");
    assert!(outcome.value.is_none() && outcome.decided_by.evidence.contains("rough"));
}

/// Deserializes the first time; then the number decides: an error, a panic, or no end.
#[derive(Debug, JsonSchema)]
struct Once<const THEN: u8>;

impl<'de, const THEN: u8> Deserialize<'de> for Once<THEN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static READS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
        Value::deserialize(deserializer)?;
        match (READS[usize::from(THEN)].fetch_add(1, Ordering::SeqCst), THEN) {
            (0, _) => Ok(Once),
            (_, 0) => Err(serde::de::Error::custom("once only")),
            (_, 1) => panic!("rough the second time"),
            _ => forever(),
        }
    }
}

/// The time limit of a run whose type never deserializes.
const BOUND: Duration = Duration::from_secs(2);

fn forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Never deserializes.
#[derive(Debug, JsonSchema)]
struct Endless;

impl<'de> Deserialize<'de> for Endless {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Endless, D::Error> {
        forever()
    }
}

/// Runs a future on a runtime of one thread, which it must not block, and shuts the runtime down.
fn on_own_runtime<F: Future<Output: Send> + 'static>(
    future: impl FnOnce() -> F + Send + 'static,
) -> F::Output {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = runtime.block_on(future());
        drop(runtime);
        done.send(output)
    });
    wait.recv_timeout(HANG).expect("neither the run nor the runtime waits for the type")
}

async fn inconsistent<const THEN: u8>() -> String {
    // Only the endless one runs into it; a panic takes long to print.
    let turn_timeout = Some(if THEN == 2 { BOUND } else { HANG });
    let limits = Limits { turn_timeout, ..Limits::default() };
    let agent = Agent::builder(ScriptedModel::new([Turn::text("null")])).limits(limits).build();
    let outcome = agent.unwrap().run_typed::<Once<THEN>>("?").unwrap().await;
    // The ending is the one that observers have heard.
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(outcome.structured, Some(Value::Null));
    let problem = outcome.unread.clone().unwrap();
    let error = outcome.into_result().unwrap_err();
    assert!(matches!(error, NoValue::Unread { .. }) && error.to_string().ends_with(&problem));
    problem
}

#[test]
fn inconsistent_type_leaves_the_ending() {
    assert_eq!(on_own_runtime(inconsistent::<0>), "once only");
    let panicked = on_own_runtime(inconsistent::<1>);
    assert_eq!(panicked, "the type of the answer panicked: rough the second time");
    let endless = on_own_runtime(inconsistent::<2>);
    assert_eq!(endless, "the type of the answer did not deserialize within 2s");
}

#[test]
fn endless_type_ends_with_deadline() {
    let short = Some(BOUND);
    let whole = Limits { timeout: short, ..Limits::default() };
    let turn = Limits { turn_timeout: short, ..Limits::default() };
    for (limits, expected) in
        [(whole, Termination::ErrorTimeout), (turn, Termination::ErrorDuringExecution)]
    {
        let outcome = on_own_runtime(move || async {
            let agent = Agent::builder(ScriptedModel::new([Turn::text("null")])).limits(limits);
            let mut run = agent.build().unwrap().run_typed::<Endless>("?").unwrap();
            // The task still reads events while the type deserializes.
            while run.next().await.is_some() {}
            run.await.outcome
        });
        assert_eq!(outcome.termination, expected, "{outcome:?}");
        let by_type = outcome.decided_by.decision.to_string() == "schema";
        assert_eq!(by_type, expected == Termination::ErrorDuringExecution, "{outcome:?}");
    }
}

#[test]
fn endless_type_can_be_cancelled() {
    let outcome = on_own_runtime(|| async {
        let mut run = agent(&["null"]).run_typed::<Endless>("?").unwrap();
        while !matches!(
            run.next().await.map(|event| event.kind),
            Some(AgentEventKind::TurnFinished { .. })
        ) {}
        run.cancel();
        run.await.outcome
    });
    assert_eq!(outcome.termination, Termination::Cancelled);
}

#[tokio::test]
async fn outcome_is_displayed_in_two_lines() {
    let outcome = agent(&["Paris."]).run("?").unwrap().await;
    let text = outcome.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("stop (success)"), "{text}");
    assert!(lines[1].starts_with("1 turn, 0 tool calls, "), "{text}");
    assert_eq!(lines.len(), 2, "{text}");
    let limits = Limits { max_turns: Some(1), ..Limits::default() };
    let turns = [Turn::call("nothing", &json!({}))];
    let agent = Agent::builder(ScriptedModel::new(turns)).limits(limits).build().unwrap();
    let text = agent.run("?").unwrap().await.to_string();
    assert!(
        text.starts_with("error_max_turns (capacity), decided by limit `max_turns`: "),
        "{text}"
    );
}

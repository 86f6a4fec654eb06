//! Runs whose answer is a value of a Rust type.

use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::schema::OutputSchema;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, BuildError, Limits, Outcome, Termination};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
        let options = HttpOptions { model: model.into(), ..HttpOptions::default() };
        let provider =
            HttpProvider::new(&options, &|name| name.ends_with("_KEY").then(|| "k".into()))
                .unwrap();
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

thread_local! {
    static READS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A type that deserializes only once.
#[derive(Debug, JsonSchema)]
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Once, D::Error> {
        Value::deserialize(deserializer)?;
        READS.set(READS.get() + 1);
        if READS.get() == 1 { Ok(Once) } else { Err(serde::de::Error::custom("once only")) }
    }
}

#[tokio::test]
async fn inconsistent_type_is_not_success() {
    let outcome = agent(&["null"]).run_typed::<Once>("?").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorSchemaValidation);
    assert!(!outcome.is_success() && outcome.value.is_none());
    assert_eq!(outcome.error_diagnostic.as_deref(), Some("once only"));
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

//! A custom termination policy: `convergence` ends a run whose outputs no longer change.
//!
//! The example shows a policy that keeps state, a configuration with defaults and errors that name
//! the key, the registration under a name that configuration can use (also inside `any` and
//! `all`), and a run that the policy ends. Run it with `cargo run -p custom-policy`.
//!
//! The policy is the example of a custom policy in RLM Code's documentation. It stops when the last
//! `window_size` outputs are alike and at least `min_steps` steps came before this one. There,
//! alike means equal. Here it means that the outputs share `similarity_threshold` of their
//! trigrams, so that a draft that changes only a comma counts as settled. Steps without text are
//! skipped, because they have no output to compare.
#![allow(clippy::print_stdout, reason = "the example prints its results")]

use endstop::policy::{
    BoxPolicy, PolicyError, PolicyInfo, Registry, StepContext, StepResult, Stop, TerminationPolicy,
    Verdict,
};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Outcome};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{HashSet, VecDeque};

const NAME: &str = "convergence";
const DESCRIPTION: &str = "Stop when the outputs no longer change";

/// The configuration of `convergence`; absent keys have their defaults.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default)]
struct Config {
    /// Number of outputs that must be alike.
    window_size: usize,
    /// Share of the trigrams that two outputs must have in common to be alike, from 0 to 1.
    similarity_threshold: f64,
    /// Number of steps that must come before the first one that may stop.
    min_steps: i64,
}

impl Default for Config {
    fn default() -> Config {
        Config { window_size: 3, similarity_threshold: 0.9, min_steps: 3 }
    }
}

impl Config {
    const KEYS: [&'static str; 3] = ["window_size", "similarity_threshold", "min_steps"];

    fn as_value(self) -> Value {
        json!({
            "window_size": self.window_size,
            "similarity_threshold": self.similarity_threshold,
            "min_steps": self.min_steps,
        })
    }

    /// Reads a configuration: an object, or null for the defaults. Every error names its key.
    fn read(value: &Value) -> Result<Config, PolicyError> {
        // Unknown keys are checked by hand, because serde's own message would not list the policy.
        let policy = NAME.to_owned();
        if let Some(key) = value
            .as_object()
            .and_then(|map| map.keys().find(|key| !Config::KEYS.contains(&key.as_str())))
        {
            let known = Config::KEYS.map(str::to_owned).to_vec();
            return Err(PolicyError::UnknownKey { policy, key: key.clone(), known });
        }
        let config = match value {
            Value::Null => Config::default(),
            given => Config::deserialize(given).map_err(|error| PolicyError::BadSpec {
                problem: format!("the configuration of `{NAME}`: {error}"),
            })?,
        };
        let wrong = |key: &str, expected: &str| PolicyError::BadValue {
            policy: policy.clone(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            given: value[key].to_string(),
        };
        if config.window_size < 2 {
            return Err(wrong("window_size", "at least 2: one output is always like itself"));
        }
        if !(0.0..=1.0).contains(&config.similarity_threshold) {
            return Err(wrong("similarity_threshold", "a number from 0 to 1"));
        }
        Ok(config)
    }
}

/// Stops when the last outputs are alike.
// The state belongs to one run: the kernel calls `reset` before the next.
#[derive(Clone)]
struct Convergence {
    config: Config,
    /// The outputs of the window, each as the set of its trigrams; the newest is last.
    window: VecDeque<Trigrams>,
}

impl Convergence {
    fn new(config: Config) -> Convergence {
        Convergence { config, window: VecDeque::new() }
    }
}

impl TerminationPolicy for Convergence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        DESCRIPTION
    }

    fn default_config(&self) -> Value {
        Config::default().as_value()
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        let Some(output) = step.output.as_deref().filter(|output| !output.trim().is_empty()) else {
            return Verdict::Continue;
        };
        // At most `window_size` outputs are stored, so that memory does not grow with the run.
        if self.window.len() == self.config.window_size {
            self.window.pop_front();
        }
        let newest = Trigrams::of(output);
        // The newest output is compared with all others. Comparing neighbours only would accept a
        // text that drifts a little at every step.
        let least = self.window.iter().map(|older| older.similarity(&newest)).fold(1.0, f64::min);
        self.window.push_back(newest);
        if context.step < self.config.min_steps || self.window.len() < self.config.window_size {
            return Verdict::Continue;
        }
        if least < self.config.similarity_threshold {
            return Verdict::Continue;
        }
        let evidence = format!(
            "the last {} outputs are {least:.2} alike, the threshold is {}",
            self.window.len(),
            self.config.similarity_threshold
        );
        Verdict::Stop(Stop::submitted(NAME, evidence).answer(output))
    }

    fn reset(&mut self) {
        self.window.clear();
    }
}

/// The set of trigrams of a text, with normalised white space.
///
/// Building a set and comparing two of them takes time linear in the texts, because a policy runs
/// after every step and an output may be long.
#[derive(Clone)]
struct Trigrams(HashSet<[char; 3]>);

impl Trigrams {
    fn of(text: &str) -> Trigrams {
        // The text is padded with two blanks, so that a text of one character has trigrams too.
        let words = text.split_whitespace().flat_map(|word| word.chars().chain([' ']));
        let mut last = [' ', ' '];
        let mut set = HashSet::new();
        for next in words {
            set.insert([last[0], last[1], next]);
            last = [last[1], next];
        }
        Trigrams(set)
    }

    /// Returns the Jaccard similarity of two texts, from 0 to 1.
    fn similarity(&self, other: &Trigrams) -> f64 {
        let both = self.0.intersection(&other.0).count();
        let either = self.0.len() + other.0.len() - both;
        // Two empty texts are equal; the division would give NaN.
        if either == 0 { 1.0 } else { both as f64 / either as f64 }
    }
}

/// Returns a registry of the built-in policies and `convergence`.
fn registry() -> Result<Registry, PolicyError> {
    let mut registry = Registry::new();
    let info = PolicyInfo {
        name: NAME.to_owned(),
        description: DESCRIPTION.to_owned(),
        default_config: Config::default().as_value(),
    };
    // The factory runs at every `build`, so that each loop has its own state.
    registry
        .register(info, |config| Ok(BoxPolicy::new(Convergence::new(Config::read(config)?))))?;
    Ok(registry)
}

/// Returns a model that writes and saves drafts, and is finished long before it declares an answer.
fn drafting() -> ScriptedModel {
    let drafts = [
        "Rust has no garbage collector.",
        "A borrow is a loan: the borrower returns it, and the owner frees.",
        "Ownership says who frees memory, borrowing lends it, and the compiler checks both.",
        "Ownership says who frees memory; borrowing lends it, and the compiler checks both.",
        "Ownership says who frees memory; borrowing lends it, and the compiler checks both.",
        "Ownership says who frees memory; borrowing lends it; and the compiler checks both.",
        "FINAL(\"Each value has one owner.\")",
    ];
    ScriptedModel::new(drafts.map(|draft| {
        Turn::call("save_draft", &json!({"words": draft.split(' ').count()})).and_text(draft)
    }))
}

/// Runs the drafting model with the policy of this specification.
async fn draft(spec: &Value) -> Result<Outcome, Box<dyn std::error::Error>> {
    let save = tool_fn("save_draft", "Keeps a draft.", |_: Map<String, Value>, _| async {
        ToolOutput::ok("saved")
    });
    let agent = Agent::builder(drafting())
        // Boxed, because the type of the policy depends on the specification.
        .boxed_policy(registry()?.build(spec)?.into_inner())
        .tool(save)
        .build()?;
    Ok(agent.run("Explain ownership in a sentence.")?.outcome().await)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = registry()?;
    println!("registered: {}", registry.names().collect::<Vec<_>>().join(", "));
    println!("defaults:   {}", registry.get(NAME)?.default_config);
    for spec in [
        json!("convergence"),
        // Together with a built-in policy; the first one to stop decides.
        json!({"any": ["final_pattern", {"convergence": {"similarity_threshold": 1.0}}]}),
    ] {
        let outcome = draft(&spec).await?;
        println!("\n{spec}");
        println!("  ended as {} after {} turns", outcome.termination, outcome.turns);
        let by = &outcome.decided_by;
        println!("  decided by {} `{}`: {}", by.layer, by.decision, by.evidence);
        println!("  answer: {}", outcome.answer().unwrap_or_default());
    }
    if let Err(error) = registry.build(&json!({"convergence": {"window": 4}})) {
        println!("\na mistake is named: {error}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Termination;

    fn said(text: &str) -> StepResult {
        StepResult {
            action_type: "message".to_owned(),
            success: true,
            output: Some(text.to_owned()),
            ..StepResult::default()
        }
    }

    fn at(step: i64) -> StepContext {
        StepContext { step, ..StepContext::default() }
    }

    /// Returns the steps at which the policy stops for these outputs.
    fn stops(policy: &mut Convergence, outputs: &[&str]) -> Vec<usize> {
        (0..outputs.len())
            .filter(|&n| {
                policy.should_terminate(&said(outputs[n]), &at(n as i64)) != Verdict::Continue
            })
            .collect()
    }

    #[tokio::test]
    async fn run_ends_when_drafts_settle() {
        let outcome = draft(&json!("convergence")).await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.turns, 5);
        assert_eq!(outcome.decided_by.layer.as_str(), "policy");
        assert_eq!(outcome.decided_by.decision.as_str(), NAME);
        let answer = outcome.answer().unwrap();
        assert!(answer.starts_with("Ownership says who frees memory; borrowing"), "{answer}");
        assert_eq!(outcome.deliverable, Some(Value::String(answer)));
    }

    #[tokio::test]
    async fn similar_drafts_miss_threshold_of_one() {
        let spec =
            json!({"any": [{"convergence": {"similarity_threshold": 1.0}}, "final_pattern"]});
        let outcome = draft(&spec).await.unwrap();
        assert_eq!(outcome.termination, Termination::Submitted);
        assert_eq!(outcome.decided_by.decision.as_str(), "final_pattern");
        // The declaration was found while it was streamed. That call was aborted and is not a turn.
        assert_eq!((outcome.turns, outcome.model_calls), (6, 7));
        assert_eq!(outcome.answer().as_deref(), Some("Each value has one owner."));
    }

    #[test]
    fn equal_outputs_stop_after_minimum_steps() {
        let mut policy = Convergence::new(Config::default());
        assert_eq!(stops(&mut policy, &["x"; 5]), [3, 4]);
        policy.reset();
        assert_eq!(stops(&mut policy, &["x"; 4]), [3]);
        policy.reset();
        // The outputs before the reset are forgotten, so the window is not full yet.
        assert_eq!(policy.should_terminate(&said("x"), &at(9)), Verdict::Continue);
    }

    #[test]
    fn changing_or_blank_outputs_never_settle() {
        let mut policy = Convergence::new(Config::default());
        assert_eq!(stops(&mut policy, &["a", "b", "a", "b", "a", "b", "a"]), [0; 0]);
        policy.reset();
        assert_eq!(stops(&mut policy, &["", " ", "\n", "", ""]), [0; 0]);
        policy.reset();
        assert_eq!(stops(&mut policy, &["yes", "", "yes", "", "yes"]), [4]);
    }

    #[test]
    fn similarity_is_symmetric_and_bounded() {
        for (a, b, least, most) in [
            ("the same text", "the  same\ntext", 1.0, 1.0),
            ("", "", 1.0, 1.0),
            ("abc", "xyz", 0.0, 0.2),
            ("a", "b", 0.0, 0.2),
            ("the quick brown fox", "the quick brown dog", 0.6, 0.9),
            ("äöü äöü", "äöü äöü!", 0.5, 0.9),
        ] {
            let (a, b) = (Trigrams::of(a), Trigrams::of(b));
            let similarity = a.similarity(&b);
            assert!((least..=most).contains(&similarity), "{similarity}");
            assert!((similarity - b.similarity(&a)).abs() < 1e-12);
        }
    }

    #[test]
    fn long_output_is_compared_quickly() {
        let long = "word after word ".repeat(10_000);
        let mut policy = Convergence::new(Config::default());
        assert_eq!(stops(&mut policy, &[long.as_str(); 4]), [3]);
    }

    #[test]
    fn configuration_error_names_the_key() {
        let registry = registry().unwrap();
        assert_eq!(
            registry.get(NAME).unwrap().default_config,
            json!({"window_size": 3, "similarity_threshold": 0.9, "min_steps": 3})
        );
        assert!(registry.build_text("convergence={\"min_steps\": 0}").is_ok());
        for (config, says) in [
            (json!({"window": 3}), "unknown key `window`; known are window_size"),
            (json!({"window_size": 1}), "`window_size` must be at least 2"),
            (json!({"window_size": "three"}), "the configuration of `convergence`"),
            (json!({"similarity_threshold": 90}), "a number from 0 to 1, not 90"),
        ] {
            let error = registry.build(&json!({NAME: config})).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

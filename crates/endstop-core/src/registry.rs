//! The registry of policies that configuration can name. Each registry is an instance and not a
//! global, so that a policy registered for one run does not change another run.
//!
//! ```
//! use endstop_core::Registry;
//! use serde_json::json;
//! let registry = Registry::new();
//! // All forms of a specification:
//! registry.build(&json!("final_pattern"))?;
//! registry.build(&json!({"name": "confidence", "config": {"confidence_threshold": 0.9}}))?;
//! registry.build(&json!({"confidence": {"confidence_threshold": 0.9}}))?;
//! registry.build(&json!({"any": ["final_pattern", {"not": "reward_threshold"}]}))?;
//! registry.build_text("confidence={\"confidence_threshold\": 0.9}")?;
//! # Ok::<(), endstop_core::policy::PolicyError>(())
//! ```
//!
//! Configuration can also name the detectors ([`Rule`]), which are not in the registry.
//!
//! Source: the registry of RLM Code. Difference: a name that is already registered is an error,
//! unless the caller replaces it explicitly.

use crate::detector::{DetectorPolicy, Rule, short_form};
use crate::policy::{
    BoxPolicy, Composite, Confident, FinalPattern, PolicyError, RewardThreshold, StepContext,
    StepResult, Stop, TerminationPolicy, Verdict,
};
use crate::run_data::RunData;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Maximum nesting depth of a specification.
// Building, running and dropping a policy recurse once per level, so that a deeper specification
// from an untrusted file could overflow the stack.
const MAX_DEPTH: u32 = 32;

/// Builds a policy from its configuration (an object, or null for none).
type Factory = Arc<dyn Fn(&Value) -> Result<BoxPolicy, PolicyError> + Send + Sync>;

/// The description of a registered policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyInfo {
    /// Name of the policy.
    pub name: String,
    /// One-line description.
    pub description: String,
    /// Configuration that applies if nothing is configured.
    pub default_config: Value,
}

#[derive(Clone)]
enum Maker {
    /// `composite`, which needs the registry to build its members.
    Composite,
    Factory(Factory),
}

#[derive(Clone)]
struct Entry {
    info: PolicyInfo,
    maker: Maker,
}

/// A registry of the policies that configuration can name.
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    default: String,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates a registry of the built-in policies, with `final_pattern` as the default.
    pub fn new() -> Registry {
        let entry = |name: &str, description: &str, default_config, maker| Entry {
            info: PolicyInfo {
                name: name.to_owned(),
                description: description.to_owned(),
                default_config,
            },
            maker,
        };
        Registry {
            entries: vec![
                entry(
                    "final_pattern",
                    FinalPattern::DESCRIPTION,
                    FinalPattern::defaults(),
                    Maker::Factory(Arc::new(|c| FinalPattern::from_config(c).map(BoxPolicy::new))),
                ),
                entry(
                    "reward_threshold",
                    RewardThreshold::DESCRIPTION,
                    RewardThreshold::defaults(),
                    Maker::Factory(Arc::new(|c| {
                        RewardThreshold::from_config(c).map(BoxPolicy::new)
                    })),
                ),
                entry(
                    "confidence",
                    Confident::DESCRIPTION,
                    Confident::defaults(),
                    Maker::Factory(Arc::new(|c| Confident::from_config(c).map(BoxPolicy::new))),
                ),
                entry("composite", Composite::DESCRIPTION, Composite::defaults(), Maker::Composite),
            ],
            default: "final_pattern".to_owned(),
        }
    }

    /// Returns the names, in the order of registration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.info.name.as_str())
    }

    /// Returns the registered policies, in the order of registration.
    pub fn policies(&self) -> impl Iterator<Item = &PolicyInfo> {
        self.entries.iter().map(|e| &e.info)
    }

    /// Returns the description of one policy.
    pub fn get(&self, name: &str) -> Result<&PolicyInfo, PolicyError> {
        self.entry(name).map(|e| &e.info)
    }

    /// Returns the name of the default policy.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// Makes a registered policy the default.
    pub fn set_default(&mut self, name: &str) -> Result<(), PolicyError> {
        self.entry(name)?;
        name.clone_into(&mut self.default);
        Ok(())
    }

    /// Registers a policy under a new name.
    ///
    /// # Errors
    /// [`PolicyError::Duplicate`] if the name is taken, [`PolicyError::BadSpec`] if no
    /// specification could refer to it (an empty name, or a keyword of specifications such as
    /// `any`).
    pub fn register<F>(&mut self, info: PolicyInfo, factory: F) -> Result<(), PolicyError>
    where
        F: Fn(&Value) -> Result<BoxPolicy, PolicyError> + Send + Sync + 'static,
    {
        if self.names().any(|n| n == info.name) {
            return Err(PolicyError::Duplicate { name: info.name });
        }
        if ["", "any", "all", "not", "name", "config"].contains(&info.name.as_str()) {
            return Err(PolicyError::spec(format!("a policy cannot be named `{}`", info.name)));
        }
        self.entries.push(Entry { info, maker: Maker::Factory(Arc::new(factory)) });
        Ok(())
    }

    /// Replaces a registered policy, at the same position in the order.
    pub fn replace<F>(&mut self, info: PolicyInfo, factory: F) -> Result<(), PolicyError>
    where
        F: Fn(&Value) -> Result<BoxPolicy, PolicyError> + Send + Sync + 'static,
    {
        // Built first, because `iter_mut` below borrows the entries that the error lists.
        let unknown = self.unknown(&info.name);
        match self.entries.iter_mut().find(|e| e.info.name == info.name) {
            Some(entry) => {
                *entry = Entry { info, maker: Maker::Factory(Arc::new(factory)) };
                Ok(())
            }
            None => Err(unknown),
        }
    }

    /// Builds a policy from a specification: a name; `{"name", "config"}`, in which the default
    /// policy replaces a missing name; `{NAME: config}`; `{"any": […]}`, `{"all": […]}`,
    /// `{"not": …}`.
    pub fn build(&self, spec: &Value) -> Result<BoxPolicy, PolicyError> {
        // Only the outermost policy is wrapped: its specification contains those of all members.
        let inner = self.build_nested(spec, 0)?;
        Ok(BoxPolicy::new(Specified { inner, specification: spec.clone() }))
    }

    /// Builds the default policy with its default configuration.
    pub fn build_default(&self) -> Result<BoxPolicy, PolicyError> {
        self.build(&Value::String(self.default.clone()))
    }

    /// Builds a policy from a command-line argument: `name`, `name={json config}`, or a
    /// specification in JSON.
    pub fn build_text(&self, text: &str) -> Result<BoxPolicy, PolicyError> {
        self.build(&Self::parse_text(text)?)
    }

    /// Parses a command-line argument into a specification for [`build`](Self::build). The short form
    /// of rules that reports show is read as well, for example `stuck(3,4,-,7)`.
    pub fn parse_text(text: &str) -> Result<Value, PolicyError> {
        // Shells and configuration files often leave white space around the value.
        let text = text.trim();
        let json = |json: &str, what: &str| {
            serde_json::from_str::<Value>(json)
                .map_err(|e| PolicyError::spec(format!("{what} is not valid JSON: {e}")))
        };
        // Checked before the `=`, because JSON may contain one.
        if text.starts_with('{') {
            return json(text, "the specification");
        }
        if let Some(rule) = short_form::read(text)? {
            return Ok(rule.spec());
        }
        let Some((name, config)) = text.split_once('=') else {
            return Ok(Value::String(text.to_owned()));
        };
        let name = name.trim();
        let config = json(config, &format!("the configuration of `{name}`"))?;
        let mut spec = Map::new();
        spec.insert("name".to_owned(), Value::String(name.to_owned()));
        spec.insert("config".to_owned(), config);
        Ok(Value::Object(spec))
    }

    pub(super) fn build_nested(&self, spec: &Value, depth: u32) -> Result<BoxPolicy, PolicyError> {
        if depth > MAX_DEPTH {
            return Err(PolicyError::spec(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match spec {
            Value::String(name) => self.build_named(name, &Value::Null, depth),
            Value::Object(map) => self.build_object(map, depth),
            other => Err(PolicyError::spec(format!(
                "a policy is a name or an object, not {other}; known are {}",
                self.known().join(", ")
            ))),
        }
    }

    fn build_object(&self, map: &Map<String, Value>, depth: u32) -> Result<BoxPolicy, PolicyError> {
        let single = || map.iter().next().filter(|_| map.len() == 1);
        if map.keys().all(|k| k == "name" || k == "config") {
            let name = match map.get("name") {
                None => self.default.as_str(),
                Some(Value::String(name)) => name,
                Some(other) => {
                    return Err(PolicyError::spec(format!("`name` must be a string, not {other}")));
                }
            };
            return self.build_named(name, map.get("config").unwrap_or(&Value::Null), depth);
        }
        // `register` refuses these keywords as names, so that `{"any": …}` has one meaning.
        match single() {
            Some((key, Value::Array(specs))) if key == "any" || key == "all" => {
                if specs.is_empty() {
                    return Err(PolicyError::spec(format!("`{key}` needs at least one policy")));
                }
                let members = specs
                    .iter()
                    .map(|s| self.build_nested(s, depth + 1))
                    .collect::<Result<Vec<_>, _>>()?;
                Ok(BoxPolicy::new(if key == "any" {
                    Composite::any(members)
                } else {
                    Composite::all(members)
                }))
            }
            Some((key, other)) if key == "any" || key == "all" => {
                Err(PolicyError::spec(format!("`{key}` must be a list of policies, not {other}")))
            }
            Some((key, spec)) if key == "not" => Ok(!self.build_nested(spec, depth + 1)?),
            Some((name, config)) => self.build_named(name, config, depth),
            None if map.get("name").is_some_and(Value::is_string) => {
                let name = map["name"].as_str().unwrap_or_default();
                let mut config = map.clone();
                config.shift_remove("name");
                let spec = serde_json::json!({"name": name, "config": config});
                let rest: Vec<&str> = config.keys().map(String::as_str).collect();
                Err(PolicyError::spec(format!(
                    "next to `name` only `config` is allowed, not {}; write {spec}",
                    rest.join(", ")
                )))
            }
            None => Err(PolicyError::spec(format!(
                "an object of one key (any, all, not, {}), or of `name` and `config`, not of {}",
                self.known().join(", "),
                map.keys().cloned().collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    fn build_named(
        &self,
        name: &str,
        config: &Value,
        depth: u32,
    ) -> Result<BoxPolicy, PolicyError> {
        // A registered policy takes precedence, so that a program can replace a detector by name.
        if Rule::is_known(name) && !self.names().any(|own| own == name) {
            return Rule::from_config(name, config).map(DetectorPolicy::new).map(BoxPolicy::new);
        }
        match &self.entry(name)?.maker {
            Maker::Composite => {
                let names: Vec<&str> = self.names().collect();
                let member = |spec: &Value| self.build_nested(spec, depth + 1);
                Composite::from_config(config, &names, member).map(BoxPolicy::new)
            }
            Maker::Factory(factory) => factory(config),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry, PolicyError> {
        self.entries.iter().find(|e| e.info.name == name).ok_or_else(|| self.unknown(name))
    }

    fn known(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    fn unknown(&self, name: &str) -> PolicyError {
        let detectors = Rule::known().iter().map(|rule| rule.name.to_owned()).collect();
        PolicyError::UnknownPolicy { name: name.to_owned(), known: self.known(), detectors }
    }
}

/// A policy together with the specification that it was built from.
#[derive(Clone)]
struct Specified {
    inner: BoxPolicy,
    specification: Value,
}

impl TerminationPolicy for Specified {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn description(&self) -> &str {
        self.inner.description()
    }
    fn default_config(&self) -> Value {
        self.inner.default_config()
    }
    fn specification(&self) -> Option<Value> {
        Some(self.specification.clone())
    }
    fn needs(&self) -> Vec<RunData> {
        self.inner.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.inner.should_terminate(step, context)
    }
    fn begin_turn(&mut self) {
        self.inner.begin_turn();
    }
    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        self.inner.on_delta(piece, context)
    }
    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        self.inner.on_text_complete(text, context)
    }
    fn join_all(&mut self) {
        self.inner.join_all();
    }
    fn reset(&mut self) {
        self.inner.reset();
    }
}

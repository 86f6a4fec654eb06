//! Rules that watch a run; the mode of a rule decides what happens if it fires, from a record to a
//! stop.
//!
//! ```
//! use endstop_core::detector::Rule;
//! use endstop_core::{Watch, WatchMode};
//! let watch = Watch { rule: Rule::RepeatCall { times: 3 }, mode: WatchMode::Nudge };
//! let text = serde_json::to_string(&watch)?;
//! assert_eq!(text, r#"{"mode":"nudge","rule":{"repeat_call":{"times":3}}}"#);
//! assert_eq!(serde_json::from_str::<Watch>(&text)?, watch);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! A rule fires at most once per run. Heuristics are sometimes wrong, so the outcome lists every
//! rule that fired in any mode: a user can observe first, and then choose a mode from what it would
//! have done.

use super::effect::{Effect, RunEvent};
use super::{Flow, Inner};
use crate::detector::{Panel, Rule, Stuck};
use crate::message::{ToolCall, ToolResult};
use crate::policy::{PolicyEnd, Registry, Stop};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The action of a rule that fires.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WatchMode {
    /// Only record it in the outcome.
    #[default]
    Observe,
    /// Warn the observers.
    Warn,
    /// Tell the model.
    Nudge,
    /// End the run.
    Stop,
}

impl WatchMode {
    /// All modes, from the mildest to the strictest.
    pub const ALL: [WatchMode; 4] =
        [WatchMode::Observe, WatchMode::Warn, WatchMode::Nudge, WatchMode::Stop];

    /// The mode's name as configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            WatchMode::Observe => "observe",
            WatchMode::Warn => "warn",
            WatchMode::Nudge => "nudge",
            WatchMode::Stop => "stop",
        }
    }
}

impl fmt::Display for WatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule with its mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// The action if the rule fires.
    #[serde(default)]
    pub mode: WatchMode,
    /// The condition.
    pub rule: Rule,
}

impl Watch {
    /// The watches of a run without configuration: `stuck`, observing only.
    pub fn usual() -> Vec<Watch> {
        vec![Watch { mode: WatchMode::Observe, rule: Rule::Stuck(Stuck::default()) }]
    }

    /// Reads watches as configuration spells them: `"off"` or `false` for none; a list of `{mode,
    /// rule}`; or a table of rule names, each with a mode, or with a mode and the rule's numbers. A
    /// table adds to the default watches; it changes one of them only by naming it.
    ///
    /// ```
    /// use endstop_core::Watch;
    /// use serde_json::json;
    /// let watches = Watch::read(&json!({"stuck": "stop", "repeat_call": {"mode": "warn", "times": 4}}))?;
    /// let short: Vec<String> = watches.iter().map(Watch::to_string).collect();
    /// assert_eq!(short, ["stop:stuck(2,4,3,7)", "warn:repeat_call(4)"]);
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// A description of the invalid part, with the expected form.
    pub fn read(spec: &Value) -> Result<Vec<Watch>, String> {
        match spec {
            Value::Bool(false) => Ok(Vec::new()),
            Value::String(word) if word == "off" => Ok(Vec::new()),
            Value::Array(list) => list.iter().map(Watch::one).collect(),
            Value::Object(table) => {
                let mut watches = Vec::new();
                for (name, said) in table {
                    if let Some(hint) = swapped(name, said) {
                        return Err(hint);
                    }
                    let (mode, config) = match said {
                        Value::String(_) => (said.clone(), Value::Null),
                        Value::Object(fields) => {
                            // All fields but `mode` are the configuration of the rule itself.
                            let mut config = fields.clone();
                            let mode = config.shift_remove("mode").ok_or_else(|| {
                                format!("`{name}` has no `mode`: set one of {}", modes())
                            })?;
                            (mode, Value::Object(config))
                        }
                        other => {
                            let modes = modes();
                            return Err(format!(
                                "invalid watch `{name}`: expected one of {modes}, or a table with `mode`, found {other}"
                            ));
                        }
                    };
                    let rule = Rule::from_config(name, &config).map_err(|e| e.to_string())?;
                    watches.push(Watch { mode: mode_of(&mode)?, rule });
                }
                // First in the list, because the order of the watches decides which evidence is
                // reported first.
                for usual in Watch::usual() {
                    if !table.contains_key(usual.rule.name()) {
                        watches.insert(0, usual);
                    }
                }
                Ok(watches)
            }
            other => Err(format!(
                "expected a table such as {{ cycle = \"stop\" }}, a list or \"off\", found {other}"
            )),
        }
    }

    /// Parses a watch as a command line spells it: `stop:stuck`, `warn:repeat_call={"times":4}`.
    ///
    /// # Errors
    /// A description of the invalid part, with the expected form.
    pub fn parse(text: &str) -> Result<Watch, String> {
        let (mode, rule) = text
            .split_once(':')
            .ok_or_else(|| format!("expected MODE:RULE, with a mode of {}", modes()))?;
        if mode_of(&Value::String(rule.trim().to_owned())).is_ok() && Rule::is_known(mode.trim()) {
            return Err(format!("the mode comes first: {}:{}", rule.trim(), mode.trim()));
        }
        let spec = Registry::parse_text(rule).map_err(|error| error.to_string())?;
        let rule = Rule::from_spec(&spec).map_err(|error| error.to_string())?;
        Ok(Watch { mode: mode_of(&Value::String(mode.trim().to_owned()))?, rule })
    }

    fn one(spec: &Value) -> Result<Watch, String> {
        let fields = spec.as_object().ok_or(
            "expected a table with `mode` and `rule`, for example { mode = \"stop\", rule = \"cycle\" }",
        )?;
        if let Some(key) = fields.keys().find(|key| *key != "mode" && *key != "rule") {
            return Err(format!("unknown key `{key}`: expected `mode` or `rule`"));
        }
        let rule = fields.get("rule").ok_or("missing `rule`: name the rule to watch for")?;
        let rule = Rule::from_spec(rule).map_err(|error| error.to_string())?;
        let mode = fields.get("mode").map_or(Ok(WatchMode::Observe), mode_of)?;
        Ok(Watch { mode, rule })
    }
}

/// The short form, for example `stop:stuck(2,4,3,7)`.
impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.mode, self.rule)
    }
}

fn mode_of(word: &Value) -> Result<WatchMode, String> {
    let known = WatchMode::ALL.into_iter().find(|mode| word.as_str() == Some(mode.as_str()));
    known.ok_or_else(|| format!("invalid mode {word}: expected one of {}", modes()))
}

/// Returns a hint if an entry of a table names the mode first, or anything else that is not a rule,
/// and then rules: `stop = ["cycle"]`.
fn swapped(name: &str, said: &Value) -> Option<String> {
    let is_mode = WatchMode::ALL.iter().any(|mode| mode.as_str() == name);
    let rule = said.as_array().and_then(|rules| rules.first()).unwrap_or(said).as_str();
    let rule = rule.filter(|rule| Rule::is_known(rule));
    if Rule::is_known(name) || !(is_mode || rule.is_some()) {
        return None;
    }
    let mode = if is_mode { name } else { "stop" };
    let rule = rule.unwrap_or("cycle");
    Some(format!("invalid watch `{name}`: write the rule first: {rule} = \"{mode}\""))
}

fn modes() -> String {
    WatchMode::ALL.map(WatchMode::as_str).join(", ")
}

/// A rule that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The rule in short form, for example `repeat_call(3)`.
    pub rule: String,
    /// The mode of the rule.
    pub mode: WatchMode,
    /// The turn in which it fired, from 1.
    pub turn: u32,
    /// The reason why it fired.
    pub evidence: String,
}

/// The rules of one run, and their state.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    panel: Panel,
    watches: Vec<Watch>,
    fired: Vec<Fired>,
    /// A rule that fired mid-stream but must wait for the complete turn.
    held: Option<usize>,
    /// Messages for the model from rules that fired mid-stream; sent after the turn.
    nudges: Vec<String>,
}

/// The actions that the rules request after a step.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Ends the run.
    pub(super) stop: Option<Stop>,
    /// Messages for the model.
    pub(super) nudges: Vec<String>,
    /// The rule that stops the run objects to the text itself, so the text is not an answer.
    pub(super) of_text: bool,
}

impl Watchers {
    pub(super) fn new(watches: Vec<Watch>) -> Watchers {
        let panel = Panel::new(watches.iter().map(|watch| watch.rule.clone()));
        Watchers { panel, watches, ..Watchers::default() }
    }

    pub(super) fn fired(&self) -> &[Fired] {
        &self.fired
    }

    pub(super) fn into_fired(self) -> Vec<Fired> {
        self.fired
    }

    /// Resets the text state for a new response, or for another attempt at it.
    pub(super) fn begin_text(&mut self) {
        self.nudges.clear();
        self.panel.begin_text();
    }
}

impl Inner {
    /// Shows the rules the next part of a response. Returns the ending of a rule that ends the run
    /// now.
    pub(super) fn watch_piece(
        &mut self,
        piece: &str,
        may_stop: bool,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        // Skip the rest early, because this runs for every delta.
        if self.watchers.watches.is_empty() {
            return Ok(());
        }
        for (nth, evidence) in self.watchers.panel.look(piece) {
            let turn = self.turns + 1;
            let Some(watch) = self.watchers.watches.get(nth) else { continue };
            let (mode, name) = (watch.mode, watch.rule.name());
            let ends_as = watch.rule.ends_as();
            let fired = Fired { rule: watch.rule.to_string(), mode, turn, evidence };
            let shown = fired.evidence.clone();
            fx.push(Effect::Emit(RunEvent::Fired(fired.clone())));
            self.watchers.fired.push(fired);
            match mode {
                WatchMode::Observe | WatchMode::Warn => {}
                // A response is not interrupted to tell the model something.
                WatchMode::Nudge => self.watchers.nudges.push(shown),
                WatchMode::Stop if may_stop => {
                    let stop = Stop { ends_as, ..Stop::submitted(name, shown) };
                    return Err(self.mid_stream_ending(stop));
                }
                // The text may still be rejected (schema, stop hook), so the stop waits; the first
                // one counts.
                WatchMode::Stop => drop(self.watchers.held.get_or_insert(nth)),
            }
        }
        Ok(())
    }

    /// Shows the rules a complete step.
    pub(super) fn watch(
        &mut self,
        text: &str,
        calls: &[(&ToolCall, &ToolResult)],
        fx: &mut Vec<Effect>,
    ) -> Watched {
        if self.watchers.watches.is_empty() {
            return Watched::default();
        }
        let cost = self.cost_so_far();
        let Watchers { panel, watches, fired, held, nudges } = &mut self.watchers;
        panel.text(text);
        for (call, result) in calls {
            panel.call(&call.name, &call.arguments);
            panel.result(&result.content, result.status.is_error());
        }
        // The reward is an observation of the caller under this name; policies read the same one.
        if let Some(reward) = self.context.metrics.get("last_reward").and_then(Value::as_f64) {
            panel.reward(reward);
        }
        if let Some(cost) = cost {
            panel.cost_usd(cost);
        }
        if self.context.somebody_spoke {
            panel.somebody_spoke();
        }
        let now: Vec<usize> = panel.end().to_vec();
        let step = panel.facts().step;
        // A stop that was deferred mid-stream comes before the rules that fire now.
        let mut stop = held.take();
        let mut of_text = stop.is_some();
        let mut nudges = std::mem::take(nudges);
        for nth in now {
            let Some(watch) = watches.get(nth) else { continue };
            let evidence = evidence(&watch.rule, calls);
            let one = Fired {
                rule: watch.rule.to_string(),
                mode: watch.mode,
                turn: self.turns,
                evidence,
            };
            fx.push(Effect::Emit(RunEvent::Fired(one.clone())));
            match watch.mode {
                WatchMode::Observe | WatchMode::Warn => {}
                WatchMode::Nudge => nudges.push(one.evidence.clone()),
                WatchMode::Stop => {
                    of_text |= watch.rule.reads_stream();
                    stop.get_or_insert(nth);
                }
            }
            fired.push(one);
        }
        let stop = stop.and_then(|nth| watches.get(nth)).map(|watch| {
            let rule = &watch.rule;
            let found = fired.iter().find(|one| one.rule == rule.to_string());
            let evidence =
                found.map_or_else(|| format!("at step {step}"), |one| one.evidence.clone());
            let stop = Stop { ends_as: rule.ends_as(), ..Stop::submitted(rule.name(), evidence) };
            let called = calls
                .iter()
                // A rule that waits for a tool delivers that tool's last successful result as the
                // answer.
                .rfind(|(call, result)| !result.status.is_error() && rule.waits_for(&call.name));
            let stop = stop.or_else(called.map(|(_, result)| result.content.clone()));
            if stop.ends_as == PolicyEnd::Submitted { stop.answer(text) } else { stop }
        });
        // The run ends, so the model would never read the nudges.
        if stop.is_some() {
            nudges.clear();
        }
        Watched { stop, nudges, of_text }
    }

    /// Sends the observations of the rules to the model.
    pub(super) fn nudge(&mut self, nudges: Vec<String>, fx: &mut Vec<Effect>) {
        for evidence in nudges {
            let text = format!(
                "You seem to be stuck ({evidence}). Try a different approach, or say what is blocking you."
            );
            self.tell("watch", text, fx);
        }
    }

    /// The cost of the run so far, if every part of it has a known price.
    pub(super) fn cost_so_far(&self) -> Option<f64> {
        self.ledger.known_cost().map(crate::NanoUsd::to_usd)
    }
}

/// Describes why a rule fired: the rule, and the last call if the rule is about calls.
fn evidence(rule: &Rule, calls: &[(&ToolCall, &ToolResult)]) -> String {
    let about_text = matches!(
        rule,
        Rule::SameText { .. }
            | Rule::Monologue { .. }
            | Rule::TextMention(_)
            | Rule::Chanting { .. }
    );
    match calls.first() {
        Some((call, _)) if !about_text => {
            let arguments = super::progress::excerpt(&call.arguments);
            format!("{rule}, last {}({arguments})", call.name)
        }
        _ => rule.to_string(),
    }
}

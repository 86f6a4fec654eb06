//! `endstop explain NAME`: the meaning of an ending, a limit, a rule or a policy, from the tables that define them.

use crate::commands::policies::defaults_of;
use crate::config::limits::default_of;
use crate::config::settings::flag_of;
use crate::failure::Failure;
use crate::output;
use crate::visible::visible;
use endstop::core::detector::Rule;
use endstop::core::limits::{LimitRow, TABLE, unknown_key};
use endstop::core::{Category, Termination};
use endstop::policy::Registry;
use endstop_report::advice::{advice, meaning};
use serde_json::{Map, Value};

/// The meaning of a name.
pub(in crate::commands) struct Meaning {
    name: String,
    kind: &'static str,
    text: String,
    /// Further facts, by name.
    facts: Vec<(&'static str, String)>,
}

impl Meaning {
    pub(in crate::commands) fn of(name: &str) -> Option<Meaning> {
        let ending = name.parse().ok().map(of_ending);
        let limit = || LimitRow::of(name).map(of_limit);
        ending.or_else(limit).or_else(|| of_rule(name)).or_else(|| of_policy(name))
    }

    /// Returns the error for a name that looks like that of an ending.
    pub(in crate::commands) fn problem_of(name: &str) -> Option<Failure> {
        let names: Vec<&str> = Termination::all().iter().map(|ending| ending.as_str()).collect();
        let is_meant = name.starts_with("error_") && !names.contains(&name);
        is_meant
            .then(|| Failure::usage(format!("`{}`: {}", visible(name), unknown_key(name, &names))))
    }

    /// Prints the meaning, and returns the exit status.
    pub(in crate::commands) fn show(self, as_json: bool) -> u8 {
        if as_json {
            let mut all = Map::new();
            let facts = self.facts.into_iter().map(|(name, fact)| (name.to_owned(), fact.into()));
            all.insert("type".to_owned(), self.kind.into());
            all.insert("name".to_owned(), self.name.into());
            all.insert("meaning".to_owned(), self.text.into());
            all.extend(facts);
            output::json(&Value::Object(all));
            return 0;
        }
        output::line(&format!("{} ({})\n  {}\n", self.name, self.kind, self.text));
        for (name, fact) in self.facts {
            output::line(&format!("  {name:<9} {fact}"));
        }
        0
    }
}

fn of_ending(termination: Termination) -> Meaning {
    let category = termination.category();
    let reaction = match category {
        Category::Success => "the work is done",
        Category::Retryable => "running again may help",
        Category::Capacity => "raise a limit, or ask for less",
        Category::Fatal => "fix the cause: running again does not help",
    };
    // The table of limits quotes the endings in Markdown.
    let quoted = format!("`{termination}`");
    let limits = TABLE.iter().filter(|row| row.reached.contains(&quoted));
    let limits: Vec<&str> = limits.map(|row| row.name).collect();
    let mut facts = vec![
        ("category", format!("{category}: {reaction}")),
        ("status", format!("{} is the exit status of `endstop run`", termination.exit_status())),
        ("next", advice(termination)),
    ];
    if !limits.is_empty() {
        facts.push(("limits", format!("{} (endstop explain NAME)", limits.join(", "))));
    }
    let evidence = "the line `decided` of the card, which `endstop explain RUN` prints again";
    facts.push(("evidence", evidence.to_owned()));
    Meaning {
        name: termination.to_string(),
        kind: "ending",
        text: meaning(termination).to_owned(),
        facts,
    }
}

fn of_limit(row: &'static LimitRow) -> Meaning {
    let mut facts = vec![("reached", row.reached.replace('`', ""))];
    facts.push(("default", default_of(row).unwrap_or_else(|| "off".to_owned())));
    facts.extend(flag_of(&format!("limits.{}", row.name)).map(|flag| ("flag", flag)));
    facts.push(("file", format!("[limits] {} = …", row.name)));
    let text = row.paragraphs().collect::<Vec<_>>().join(" ");
    Meaning { name: row.name.to_owned(), kind: "limit", text, facts }
}

fn of_rule(name: &str) -> Option<Meaning> {
    let rule = Rule::known().iter().find(|rule| rule.name == name)?;
    let keys = defaults_of(name).into_iter().map(|(key, value)| format!("{key} = {value}"));
    let facts = vec![
        ("keys", keys.collect::<Vec<_>>().join(", ")),
        ("flag", format!("--watch MODE:{name}, and MODE is observe, warn, nudge or stop")),
        ("file", format!("[watch] {name} = \"stop\"")),
    ];
    Some(Meaning { name: name.to_owned(), kind: "rule", text: rule.description.to_owned(), facts })
}

fn of_policy(name: &str) -> Option<Meaning> {
    let registry = Registry::default();
    let policy = registry.policies().find(|policy| policy.name == name)?;
    let facts = vec![
        ("keys", policy.default_config.to_string()),
        ("flag", format!("--policy {name}")),
        ("file", format!("policy = \"{name}\"")),
    ];
    Some(Meaning { name: name.to_owned(), kind: "policy", text: policy.description.clone(), facts })
}

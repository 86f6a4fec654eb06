//! `endstop explain NAME`: the meaning of an ending, a limit, a rule or a policy, from the tables that define them.

use crate::args::STATUSES;
use crate::commands::policies::defaults_of;
use crate::config::limits::default_of;
use crate::config::settings::flag_of;
use crate::failure::Failure;
use crate::output;
use crate::visible::visible;
use endstop::Limits;
use endstop::core::detector::Rule;
use endstop::core::limits::{LimitRow, TABLE, did_you_mean, unknown_key};
use endstop::core::{Category, Decision, Termination};
use endstop::policy::Registry;
use endstop::provider::ErrorClass;
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
        let known = ending.or_else(limit).or_else(|| of_rule(name)).or_else(|| of_policy(name));
        let decided = known.or_else(|| of_decision(name)).or_else(|| of_class(name));
        decided.or_else(|| of_category(name)).or_else(|| of_status(name))
    }

    /// Returns the error for a name that looks like that of an ending.
    pub(in crate::commands) fn problem_of(name: &str) -> Option<Failure> {
        let names: Vec<&str> = Termination::all().iter().map(|ending| ending.as_str()).collect();
        let is_meant = name.starts_with("error_") && !names.contains(&name);
        is_meant
            .then(|| Failure::usage(format!("`{}`: {}", visible(name), unknown_key(name, &names))))
    }

    /// Returns the hint at the name that was probably meant, or an empty text.
    pub(in crate::commands) fn nearest(name: &str) -> String {
        let registry = Registry::default();
        let endings = Termination::all().iter().map(|ending| ending.as_str());
        let names = endings.chain(Limits::NAMES.iter().copied());
        let names = names.chain(Rule::known().iter().map(|rule| rule.name));
        let policies: Vec<&str> = registry.policies().map(|policy| policy.name.as_str()).collect();
        let names = names.chain(policies);
        let names = names.chain(Decision::named().map(|(_, name, _)| name));
        let names = names.chain(ErrorClass::ALL.iter().map(|class| class.as_str()));
        did_you_mean(name, names.chain(CATEGORIES.map(Category::as_str)))
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

const CATEGORIES: [Category; 4] =
    [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal];

fn reaction(category: Category) -> &'static str {
    match category {
        Category::Success => "the work is done",
        Category::Retryable => "running again may help",
        Category::Capacity => "raise a limit, or ask for less",
        Category::Fatal => "fix the cause: running again does not help",
    }
}

/// Lists the endings to which a condition applies.
fn endings(of: impl Fn(Termination) -> bool) -> String {
    let names = Termination::all().iter().filter(|one| of(**one)).map(|one| one.as_str());
    names.collect::<Vec<_>>().join(", ")
}

/// Explains a decision that the row `decided` of a card names.
fn of_decision(name: &str) -> Option<Meaning> {
    let (layer, _, text) = Decision::named().find(|(_, known, _)| *known == name)?;
    let place = "the row `decided` of the card, before its evidence".to_owned();
    let facts = vec![("layer", layer.to_string()), ("shown", place)];
    let text = text.trim_end_matches('.').to_owned();
    Some(Meaning { name: name.to_owned(), kind: "decision", text, facts })
}

/// Explains a class of errors of a provider.
fn of_class(name: &str) -> Option<Meaning> {
    let class = ErrorClass::ALL.into_iter().find(|class| class.as_str() == name)?;
    let ending = class.termination();
    let repeated = if class.is_retryable() { "yes, within retry_for" } else { "no" };
    let facts = vec![
        ("repeated", repeated.to_owned()),
        ("ending", format!("{ending} (endstop explain {ending})")),
        ("next", advice(ending)),
    ];
    let text = format!("a model call failed: {}", meaning(ending));
    Some(Meaning { name: name.to_owned(), kind: "error of a provider", text, facts })
}

fn of_category(name: &str) -> Option<Meaning> {
    let category = CATEGORIES.into_iter().find(|category| category.as_str() == name)?;
    let facts = vec![("endings", endings(|ending| ending.category() == category))];
    let text = reaction(category).to_owned();
    Some(Meaning { name: name.to_owned(), kind: "category", text, facts })
}

fn of_status(name: &str) -> Option<Meaning> {
    let status: u8 = name.parse().ok()?;
    let (_, text) = STATUSES.iter().find(|(known, _)| *known == status)?;
    let endings = endings(|ending| ending.exit_status() == status);
    let facts = if endings.is_empty() { Vec::new() } else { vec![("endings", endings)] };
    Some(Meaning { name: name.to_owned(), kind: "exit status", text: (*text).to_owned(), facts })
}

fn of_ending(termination: Termination) -> Meaning {
    let category = termination.category();
    // It was stopped on purpose, so nothing has to be fixed.
    let reaction = match termination {
        Termination::Cancelled | Termination::Terminated => "it was stopped on purpose",
        _ => reaction(category),
    };
    let next = match termination {
        Termination::Cancelled | Termination::Terminated => {
            format!("{}; endstop run --resume RUN continues it", advice(termination))
        }
        _ => advice(termination),
    };
    // The table of limits quotes the endings in Markdown.
    let quoted = format!("`{termination}`");
    let limits = TABLE.iter().filter(|row| row.reached.contains(&quoted));
    let limits: Vec<&str> = limits.map(|row| row.name).collect();
    let mut facts = vec![
        ("category", format!("{category}: {reaction}")),
        ("status", format!("{} is the exit status of `endstop run`", termination.exit_status())),
        ("next", next),
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

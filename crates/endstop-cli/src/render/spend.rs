//! The table of `endstop spend`, and the ceilings below it.

use super::amounts::{count, thousands};
use super::date::date;
use crate::visible::shorten;
use endstop::NanoUsd;
use endstop::journal::{Period, RunSpending, SpendBooks};
use serde_json::{Value, json};

/// The spending of the runs that have a value in common.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The value; `None`: the runs have none.
    name: Option<String>,
    runs: u64,
    cost: NanoUsd,
    tokens: u64,
    /// Number of ended runs without a known price.
    without_price: u64,
    /// Number of ended runs whose cost is known in part, so that `cost` is a lower bound.
    in_part: u64,
    /// Number of runs that have not ended. Their spending is not known yet.
    not_ended: u64,
}

impl Group {
    /// Creates an empty group.
    pub(crate) fn named(name: Option<String>) -> Group {
        Group { name, ..Group::default() }
    }

    /// Adds the spending of a run.
    pub(crate) fn add(&mut self, run: &RunSpending) {
        self.runs += 1;
        self.tokens = self.tokens.saturating_add(run.tokens.unwrap_or_default());
        self.cost += run.cost.unwrap_or_default();
        match (&run.termination, run.cost) {
            (None, _) => self.not_ended += 1,
            (Some(_), None) => self.without_price += 1,
            (Some(_), Some(_)) => self.in_part += u64::from(run.cost_unknown),
        }
    }

    /// `true` if the price of any run is known; otherwise 0 would be a claim.
    fn is_priced(&self) -> bool {
        self.runs > self.without_price + self.not_ended
    }

    /// Returns the group as JSON, with amounts in dollars.
    pub(crate) fn json(&self, by: &str) -> Value {
        json!({
            "type": "spend",
            "by": by,
            "name": self.name,
            "runs": self.runs,
            "cost_usd": self.is_priced().then(|| self.cost.to_usd()),
            "tokens": self.tokens,
            "runs_without_price": self.without_price,
            "runs_known_in_part": self.in_part,
            "runs_not_ended": self.not_ended,
        })
    }

    fn line(&self, width: usize) -> String {
        let name = self.name.as_deref().unwrap_or("(none)");
        let cost = match (self.is_priced(), self.in_part > 0) {
            (false, _) => "–".to_owned(),
            (true, false) => dollars(self.cost),
            (true, true) => format!("≥ {}", dollars(self.cost)),
        };
        let notes: Vec<String> = [
            (self.without_price, "without a known price"),
            (self.in_part, "known in part"),
            (self.not_ended, "not ended"),
        ]
        .into_iter()
        .filter(|(runs, _)| *runs > 0)
        .map(|(runs, what)| format!("{} {what}", count(runs, "run")))
        .collect();
        let name = shorten(name, width).replace(['\n', '\t'], " ");
        let line = format!(
            "{name:<width$}  {:>6}  {cost:>12}  {:>15}  {}",
            self.runs,
            thousands(self.tokens),
            notes.join(", ")
        );
        line.trim_end().to_owned()
    }
}

/// A ceiling of a period.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) period: Period,
    /// The project; `None`: the ceiling of all runs.
    pub(crate) project: Option<String>,
    pub(crate) max_usd: Option<f64>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) books: SpendBooks,
    /// The Unix time in milliseconds at which the ceiling begins anew.
    pub(crate) resets_ms: u64,
}

impl Account {
    /// Returns the ceiling as JSON, with amounts in dollars.
    pub(crate) fn json(&self) -> Value {
        let SpendBooks {
            spent, reserved, lost, spent_tokens, reserved_tokens, lost_tokens, ..
        } = self.books;
        json!({
            "type": "ceiling",
            "period": self.period.name(),
            "project": self.project,
            "max_usd": self.max_usd,
            "max_tokens": self.max_tokens,
            "spent_usd": spent.to_usd(),
            "spent_tokens": spent_tokens,
            "reserved_usd": reserved.to_usd(),
            "reserved_tokens": reserved_tokens,
            "lost_usd": lost.to_usd(),
            "lost_tokens": lost_tokens,
            "resets_ms": self.resets_ms,
        })
    }

    fn lines(&self) -> Vec<String> {
        let SpendBooks {
            spent, reserved, lost, spent_tokens, reserved_tokens, lost_tokens, ..
        } = &self.books;
        let whose = match &self.project {
            Some(project) => format!("project {project}"),
            None => "all runs".to_owned(),
        };
        let resets = date(self.resets_ms);
        let when = match self.period {
            Period::Hour => "this hour",
            Period::Day => "today",
            Period::Week => "this week",
            Period::Month => "this month",
        };
        let line = |[all, spent, reserved, lost]: [String; 4]| {
            format!(
                "{when}, {whose}: {spent} of {all} spent, {reserved} reserved, {lost} may have been billed by processes that died; resets at {resets}"
            )
        };
        let usd = self.max_usd.map(NanoUsd::from_usd);
        let usd = usd.map(|all| line([all, *spent, *reserved, *lost].map(dollars)));
        let tokens = self.max_tokens.map(|all| {
            let amounts = [all, *spent_tokens, *reserved_tokens, *lost_tokens];
            line(amounts.map(|tokens| format!("{} tokens", thousands(tokens))))
        });
        usd.into_iter().chain(tokens).collect()
    }
}

/// Formats the table.
pub(crate) fn lines(by: &str, groups: &[Group], accounts: &[Account]) -> Vec<String> {
    let longest = groups.iter().filter_map(|group| group.name.as_ref());
    let width = longest.map(|name| name.chars().count()).max().unwrap_or(0).clamp(10, 60);
    let mut lines = Vec::new();
    if !groups.is_empty() {
        lines.push(format!("{by:<width$}  {:>6}  {:>12}  {:>15}", "runs", "cost", "tokens"));
    }
    lines.extend(groups.iter().map(|group| group.line(width)));
    lines.extend(accounts.iter().flat_map(Account::lines));
    lines
}

fn dollars(amount: NanoUsd) -> String {
    format!("${:.4}", amount.to_usd())
}

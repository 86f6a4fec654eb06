//! The models of a run: its own, the fallbacks, the one in use, and what each of them and nested runs
//! have used.

use crate::error_class::ErrorClass;
use crate::media::ImageTokens;
use crate::price::Price;
use crate::usage::{NanoUsd, Unreported, Usage, usd};
use serde::{Deserialize, Serialize};

/// The models of a run.
#[derive(Debug, Default)]
pub(crate) struct Models {
    /// The model in use: 0 is the run's own, and n its n-th fallback.
    pub(crate) current: u32,
    /// The run's own model while a fallback is in use.
    pub(crate) own: Option<Box<FallbackModel>>,
    /// The next call goes to the run's own model again.
    pub(crate) restarts: bool,
    /// `true` once the model has changed.
    pub(crate) changed: bool,
    /// The models that were called, in the order of their first calls.
    pub(crate) used: Vec<ModelUse>,
    /// The position of the model of the last call.
    last: usize,
}

impl Models {
    /// Counts a call of this model.
    pub(crate) fn called(&mut self, provider: Option<&String>, model: Option<&String>) {
        let fallback = self.current;
        let is_same = |one: &ModelUse| {
            one.fallback == fallback
                && one.provider.as_ref() == provider
                && one.model.as_ref() == model
        };
        self.last = self.used.iter().position(is_same).unwrap_or(self.used.len());
        if self.last == self.used.len() {
            let (provider, model) = (provider.cloned(), model.cloned());
            // Most runs have one model, and a list grows by four.
            self.used.reserve_exact(1);
            self.used.push(ModelUse { fallback, provider, model, ..ModelUse::default() });
        }
        if let Some(one) = self.used.get_mut(self.last) {
            one.calls = one.calls.saturating_add(1);
        }
    }

    /// Books what the last call used.
    pub(crate) fn settled(&mut self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        if let Some(one) = self.used.get_mut(self.last) {
            one.usage.add(usage);
            one.cost += cost;
            one.cost_unknown |= cost_unknown;
        }
    }
}

/// A model that a run calls after the models before it have failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FallbackModel {
    /// The provider.
    pub provider: Option<String>,
    /// The model, as it is requested.
    pub model: Option<String>,
    /// The price, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// The context window in tokens, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// The maximum output in tokens, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The rule for the tokens of images.
    pub image_tokens: ImageTokens,
}

impl FallbackModel {
    /// `true` if both name the same model of the same provider.
    pub fn is_same_model(&self, other: &FallbackModel) -> bool {
        self.provider == other.provider && self.model == other.model
    }
}

/// The use of one model by a run: its own calls, without those of tools and compactions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelUse {
    /// The number of the model: 0 is the run's own, and n its n-th fallback.
    pub fallback: u32,
    /// The provider.
    pub provider: Option<String>,
    /// The model, as it is requested.
    pub model: Option<String>,
    /// Number of attempts at model calls.
    pub calls: u32,
    /// Usage of these attempts.
    pub usage: Usage,
    /// Known cost of these attempts.
    #[serde(rename = "cost_usd", with = "usd")]
    pub cost: NanoUsd,
    /// `true` if the cost is not exactly known, as [`cost_unknown`](crate::Outcome::cost_unknown) of
    /// the outcome.
    pub cost_unknown: bool,
}

/// A switch of a run to another of its models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSwitch {
    /// The number of the model: 0 is the run's own, and n its n-th fallback.
    pub fallback: u32,
    /// The provider of the model before.
    pub from_provider: Option<String>,
    /// The model before, as it is requested.
    pub from_model: Option<String>,
    /// The provider of the model from now on.
    pub provider: Option<String>,
    /// The model from now on, as it is requested.
    pub model: Option<String>,
    /// The error of the last attempt; `None` after a resumption.
    pub because: Option<ErrorClass>,
    /// Number of parts that were removed from the conversation because only the earlier model can
    /// read them, for example signed or encrypted reasoning.
    pub removed_parts: u32,
}

/// The spending of a nested run, such as a sub-agent, since its last report; or that of a guest so
/// far ([`Guest::spending`](crate::guest::Guest::spending)).
///
/// ```
/// use endstop_core::guest::Spending;
/// let before = Spending { turns: 1, calls: 1, ..Spending::default() };
/// let mut now = before.clone();
/// now.add(&Spending { calls: 2, ..Spending::default() });
/// assert_eq!(now.since(&before), Spending { calls: 2, unreported: now.unreported, ..Spending::default() });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// Usage.
    pub usage: Usage,
    /// Known cost of that usage.
    pub cost: NanoUsd,
    /// `true` if part of the cost is unknown.
    pub cost_unknown: bool,
    /// Upper bound on the unreported usage. `None`: nothing is unreported or, if `cost_unknown` is
    /// set, the cost has no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<Unreported>,
    /// Number of turns that count towards `max_turns`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u32,
    /// Number of model calls, for the outcome.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u32,
    /// Number of tool calls that count towards `max_tool_calls`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tool_calls: u32,
}

impl Spending {
    /// Upper bound on what was not reported.
    pub fn unreported(&self) -> Unreported {
        self.unreported.unwrap_or(Unreported::of_unknown(self.cost_unknown))
    }

    /// The known cost; `None` if no part of the cost is known.
    pub fn known_cost(&self) -> Option<NanoUsd> {
        (!self.cost_unknown || self.cost > NanoUsd::ZERO).then_some(self.cost)
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Spending) {
        let mut total = self.unreported();
        total += more.unreported();
        self.usage.add(&more.usage);
        self.cost += more.cost;
        self.cost_unknown |= more.cost_unknown;
        self.turns = self.turns.saturating_add(more.turns);
        self.calls = self.calls.saturating_add(more.calls);
        self.tool_calls = self.tool_calls.saturating_add(more.tool_calls);
        self.unreported = Some(total);
    }

    /// The part of this sum that is not in `before`, an earlier state of it.
    #[must_use]
    pub fn since(&self, before: &Spending) -> Spending {
        let unreported = increase(self.unreported(), before.unreported());
        Spending {
            usage: self.usage.since(&before.usage),
            cost: self.cost.saturating_sub(before.cost),
            // A bill that the tokens do not determine stays in doubt with each part of it.
            cost_unknown: self.cost_unknown && !before.cost_unknown
                || unreported.cost != Some(NanoUsd::ZERO)
                || !self.usage.billing.is_by_tokens(),
            unreported: Some(unreported),
            turns: self.turns.saturating_sub(before.turns),
            calls: self.calls.saturating_sub(before.calls),
            tool_calls: self.tool_calls.saturating_sub(before.tool_calls),
        }
    }

    /// `true` if there is nothing to report.
    pub fn is_nothing(&self) -> bool {
        self.turns == 0
            && self.calls == 0
            && self.tool_calls == 0
            && self.cost == NanoUsd::ZERO
            && !self.cost_unknown
            && self.unreported() == Unreported::NOTHING
            && self.usage.total_tokens() == 0
    }
}

/// The increase of a total. A total that had no bound before has nothing to add to that.
fn increase(now: Unreported, before: Unreported) -> Unreported {
    let since = now.since(before);
    Unreported {
        cost: before.cost.map_or(Some(NanoUsd::ZERO), |_| since.cost),
        tokens: before.tokens.map_or(Some(0), |_| since.tokens),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

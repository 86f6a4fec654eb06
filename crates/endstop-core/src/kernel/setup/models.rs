//! The models of a run: the one in use, and what each was used for.

use super::fallback_model::{FallbackModel, ModelUse};
use crate::usage::{NanoUsd, Usage};

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

//! The models that a run may call after its own, and what each model was used for.

use crate::error_class::ErrorClass;
use crate::media::ImageTokens;
use crate::price::Price;
use crate::usage::{NanoUsd, Usage};
use crate::usd_json::usd;
use serde::{Deserialize, Serialize};

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

//! The flags for parameters of the model's requests.

use endstop::{Caching, Effort, Thinking};

// The flags that set parameters. As a doc comment, this would be the description of each command that has them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ParamArgs {
    /// The sampling temperature.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// The share of the probability mass from which tokens are sampled.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f64>,
    /// A string at which the model stops. May be repeated.
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// The seed of the sampling.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<i64>,
    /// The amount of reasoning: none, minimal, low, medium, high, xhigh, max; APIs take some.
    #[arg(long, value_name = "LEVEL", value_parser = effort)]
    pub(crate) effort: Option<Effort>,
    /// Reasoning before the answer: off, adaptive, or a number of tokens.
    #[arg(long, value_name = "HOW", value_parser = Thinking::parse)]
    pub(crate) thinking: Option<Thinking>,
    /// The tools that the model may or must call: auto, none, required, or the name of a tool.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) tool_choice: Option<String>,
    /// Allow (true) or forbid (false) several tool calls in one turn.
    #[arg(long, value_name = "BOOL")]
    pub(crate) parallel_tool_calls: Option<bool>,
    /// The provider's service tier, for example flex.
    #[arg(long, value_name = "TIER")]
    pub(crate) service_tier: Option<String>,
    /// Allow (true) or forbid (false) the provider to store the response.
    #[arg(long, value_name = "BOOL")]
    pub(crate) store: Option<bool>,
    /// The use of prompt caches: off, auto (the default), or 1h for entries that live for an hour.
    #[arg(long, value_name = "HOW", value_parser = caching)]
    pub(crate) cache: Option<Caching>,
    /// A further field of the request, in the API's own spelling: KEY=JSON. May be repeated.
    #[arg(long = "param", value_name = "KEY=JSON")]
    pub(crate) extra: Vec<String>,
    /// An additional header of the requests: NAME: VALUE; write a secret as $VARIABLE. May be
    /// repeated.
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
}

fn effort(name: &str) -> Result<Effort, String> {
    Effort::named(name).ok_or_else(|| {
        let levels: Vec<&str> = Effort::ALL.iter().map(|level| level.as_str()).collect();
        format!("expected one of {}", levels.join(", "))
    })
}

fn caching(name: &str) -> Result<Caching, String> {
    let names = || Caching::ALL.iter().map(|setting| setting.as_str()).collect::<Vec<_>>();
    Caching::named(name).ok_or_else(|| format!("expected one of {}", names().join(", ")))
}

impl ParamArgs {
    /// Returns the parameters that the flags set, each with its flag.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let given = [
            ("temperature", self.temperature.is_some()),
            ("top_p", self.top_p.is_some()),
            ("stop", !self.stop.is_empty()),
            ("seed", self.seed.is_some()),
            ("effort", self.effort.is_some()),
            ("thinking", self.thinking.is_some()),
            ("tool_choice", self.tool_choice.is_some()),
            ("parallel_tool_calls", self.parallel_tool_calls.is_some()),
            ("service_tier", self.service_tier.is_some()),
            ("store", self.store.is_some()),
            ("cache", self.cache.is_some()),
            ("extra", !self.extra.is_empty()),
            ("headers", !self.headers.is_empty()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| (name, flag(name))).collect()
    }
}

/// Returns the flag of a parameter.
pub(crate) fn flag(name: &str) -> String {
    match name {
        "extra" => "--param".to_owned(),
        "headers" => "--header".to_owned(),
        name => format!("--{}", name.replace('_', "-")),
    }
}

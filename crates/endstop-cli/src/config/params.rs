//! Parameters of the model's requests: the table `[params]`, the flags over it, and the values to send.

use crate::config::flag::Table;
use crate::config::kind::{Kind, Members, Problem, plain, restored, unless_empty};
use crate::config::servers::expanded;
use crate::failure::{Failure, Result};
use endstop::wire::endpoint::Secret;
use endstop::{Caching, Effort, ModelParams, Thinking};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

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

/// The table `[params]`.
pub(crate) struct ParamTable;

impl Kind for ParamTable {
    type Own = ParamSettings;
    type Flag = Table<ParamArgs>;

    fn take(own: &mut ParamSettings, member: &str, value: &Value) -> Result<(), Problem> {
        own.take(member, value).map_err(Problem::Table)
    }

    fn above(own: &mut ParamSettings, given: &Table<ParamArgs>, _: &str) -> Result<(), String> {
        own.above(given).map_err(|failure| failure.message)
    }

    /// Without headers, whose values are not stored.
    fn json(own: &ParamSettings) -> Value {
        plain(&own.params)
    }

    fn save(own: &ParamSettings) -> Value {
        unless_empty(ParamTable::json(own))
    }

    fn restore(own: &mut ParamSettings, stored: &Value) -> Result<(), String> {
        restored(&mut own.params, stored)
    }
}

/// The parameters of a run. Header values are as written: `$NAME` stands for a variable.
#[derive(Clone, Default)]
pub(crate) struct ParamSettings {
    /// The parameters except the headers.
    params: ModelParams,
    headers: BTreeMap<String, String>,
}

impl fmt::Debug for ParamSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ParamSettings").field(&self.shown()).finish()
    }
}

impl ParamSettings {
    /// Merges a member of the table `[params]`.
    ///
    /// # Errors
    /// Describes the invalid value, without a header's value.
    pub(crate) fn take(&mut self, member: &str, value: &Value) -> Result<(), String> {
        if member != "headers" {
            let read: ModelParams = serde_json::from_value(json!({member: value}))
                .map_err(|problem| format!("`{member}`: {problem}"))?;
            self.params = read.over(&self.params);
            return Ok(());
        }
        let table = value.as_object().ok_or("`headers`: expected a table of strings")?;
        for (name, value) in table {
            let value =
                value.as_str().ok_or_else(|| format!("`headers.{name}`: expected a string"))?;
            self.set_header(name, value);
        }
        Ok(())
    }

    /// Sets a header. A later value replaces an earlier one of the same name.
    fn set_header(&mut self, name: &str, value: &str) {
        self.headers.retain(|other, _| !other.eq_ignore_ascii_case(name));
        self.headers.insert(name.to_owned(), value.to_owned());
    }

    /// Merges the flags.
    ///
    /// # Errors
    /// A malformed `--param` or `--header`, or a header that is given twice.
    fn above(&mut self, args: &ParamArgs) -> Result<()> {
        let mut extra = Map::new();
        for text in &args.extra {
            // The value may be a secret, so no error repeats it.
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Failure::usage("--param: expected KEY=JSON, for example top_k=20")
            })?;
            let wrong = |problem: &str| {
                let key = endstop::wire::redact::secrets_out(key.trim());
                Failure::usage(format!("--param {key}: {problem}"))
            };
            let value = serde_json::from_str(value).map_err(|error| {
                // The parser's own message is not used, because it may quote the text.
                wrong(&format!("the value is not JSON (column {})", error.column()))
            })?;
            if extra.insert(key.trim().to_owned(), value).is_some() {
                return Err(wrong("the field is given twice"));
            }
        }
        let own = ModelParams {
            temperature: args.temperature,
            top_p: args.top_p,
            stop: args.stop.clone(),
            seed: args.seed,
            effort: args.effort,
            thinking: args.thinking,
            tool_choice: args.tool_choice.clone().map(Into::into),
            parallel_tool_calls: args.parallel_tool_calls,
            service_tier: args.service_tier.clone(),
            store: args.store,
            cache: args.cache,
            extra,
            headers: Vec::new(),
        };
        self.params = own.over(&self.params);
        let mut names: Vec<String> = Vec::new();
        for text in &args.headers {
            // The text may be a secret, so no error repeats it.
            let (name, value) = text.split_once(':').ok_or_else(|| {
                Failure::usage("--header: expected NAME: VALUE, for example \"X-Team: $TEAM\"")
            })?;
            let name = name.trim();
            if names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(Failure::usage(format!(
                    "--header: the header `{}` is given twice",
                    endstop::wire::redact::secrets_out(name)
                )));
            }
            names.push(name.to_owned());
            self.set_header(name, value.trim());
        }
        Ok(())
    }

    /// Returns the parameters to send, with variables expanded.
    ///
    /// # Errors
    /// A variable is not set.
    pub(crate) fn built(&self) -> Result<ModelParams> {
        let mut params = self.params.clone();
        for (name, value) in &self.headers {
            let value = expanded(value).map_err(|problem| {
                let name = endstop::wire::redact::secrets_out(name);
                Failure::usage(format!("the header `{name}`: {problem}"))
            })?;
            params.headers.push((name.clone(), Secret::new(value)));
        }
        Ok(params)
    }

    /// Returns the parameters as JSON, with the names of the headers only.
    pub(crate) fn shown(&self) -> Map<String, Value> {
        let headers = self.headers.keys().map(|name| (name.clone(), Secret::new("")));
        let shown = ModelParams { headers: headers.collect(), ..self.params.clone() }.shown();
        shown.as_object().cloned().unwrap_or_default()
    }

    /// Returns the parameters as members of the table, for display.
    pub(crate) fn members(&self) -> Members {
        self.shown().into_iter().map(|(name, value)| (format!(".{name}"), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_replace_the_table() {
        let mut settings = ParamSettings::default();
        settings.take("temperature", &json!(0.1)).unwrap();
        settings.take("extra", &json!({"top_k": 1, "a": 1})).unwrap();
        settings.take("headers", &json!({"X-Team": "one"})).unwrap();
        let args = ParamArgs {
            temperature: Some(0.9),
            extra: vec!["top_k=20".to_owned()],
            headers: vec!["x-team: two".to_owned()],
            ..ParamArgs::default()
        };
        settings.above(&args).unwrap();
        let shown = json!(settings.shown());
        assert_eq!(
            shown,
            json!({"temperature": 0.9, "extra": {"top_k": 20, "a": 1}, "headers": ["x-team"]})
        );
        let built = settings.built().unwrap();
        assert_eq!(built.headers.len(), 1);
        assert_eq!(built.headers[0].1.expose(), "two");
        assert!(!format!("{settings:?}").contains("two"));
    }

    #[test]
    fn malformed_values_are_refused() {
        let mut settings = ParamSettings::default();
        assert!(settings.take("temprature", &json!(1)).unwrap_err().contains("temprature"));
        assert!(settings.take("headers", &json!({"a": 1})).unwrap_err().contains("headers.a"));
        let refused = |args: ParamArgs| ParamSettings::default().above(&args).unwrap_err().message;
        let header = |texts: &[&str]| ParamArgs {
            headers: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..ParamArgs::default()
        };
        assert!(!refused(header(&["hush-hush"])).contains("hush"));
        assert!(refused(header(&["a: 1", "A: 2"])).contains("given twice"));
        let extra = ParamArgs { extra: vec!["k={".to_owned()], ..ParamArgs::default() };
        assert!(refused(extra).contains("--param k: the value is not JSON"));
        for text in ["hush-hush", "k=hush-hush", "k=\"hush-hush", "k=[hush-hush]"] {
            let extra = ParamArgs { extra: vec![text.to_owned()], ..ParamArgs::default() };
            let problem = refused(extra);
            assert!(problem.starts_with("--param") && !problem.contains("hush"), "{problem}");
        }
        settings.take("headers", &json!({"x-key": "$ENDSTOP_NO_SUCH_VARIABLE"})).unwrap();
        assert!(settings.built().unwrap_err().message.contains("is not set"));
    }
}

//! `endstop prices`: the prices that apply, with their dates and origins, and their update from a published list.

use crate::args::{PricesArgs, PricesCommand};
use crate::config::price_file::PriceFile;
use crate::config::settings::SettingArgs;
use crate::config::trust::{Layers, shown};
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::date::{date, now_ms};
use endstop::core::{NanoUsd, Price};
use endstop::wire::catalog::prices::{catalogue_date, lookup, parse_price};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

pub(crate) fn run(args: &PricesArgs, json: bool) -> Result {
    match &args.command {
        Some(PricesCommand::Update { from }) => update(from, json),
        None => list(args.model.as_deref(), json),
    }
}

/// A price with its origin.
struct Known {
    model: String,
    price: Price,
    date: Option<String>,
    origin: String,
}

/// Lists the user's own prices, or all that are known of a model; the first one applies.
fn list(model: Option<&str>, as_json: bool) -> Result {
    let layers = Layers::find(None, Path::new("."))?;
    let settings = layers.settings(&SettingArgs::default())?;
    let is_asked = |name: &str| model.is_none_or(|model| model.eq_ignore_ascii_case(name));
    let mut known = Vec::new();
    for (name, price) in settings.prices.iter().filter(|(name, _)| is_asked(name)) {
        let origin = settings.origins.get(&format!("prices.{name}"));
        let origin = origin.map_or("the settings", |origin| origin.place());
        let origin = format!("[prices] of {}", shown(origin));
        known.push(Known { model: name.clone(), price: *price, date: None, origin });
    }
    let file = PriceFile::read()?.unwrap_or_default();
    for (name, price) in file.prices.iter().filter(|(name, _)| is_asked(name)) {
        // Checked when it was read.
        let Ok(price) = parse_price(price) else { continue };
        let (date, origin) = (Some(file.date.clone()), file.from.clone());
        known.push(Known { model: name.clone(), price, date, origin });
    }
    if let Some((provider, id)) = model.and_then(|model| model.split_once('/'))
        && let Some(info) = lookup(provider, id)
    {
        let (date, origin) = (Some(catalogue_date().to_owned()), info.source.to_string());
        known.push(Known { model: format!("{provider}/{id}"), price: info.price, date, origin });
    }
    if as_json {
        let line = |one: &Known| json!({"model": one.model, "price": one.price, "date": one.date, "origin": one.origin});
        output::json(&known.iter().map(line).collect::<Vec<_>>());
        return Ok(0);
    }
    for one in &known {
        let date = one.date.as_ref().map_or_else(String::new, |date| format!("{date}, "));
        output::line(&format!("{}  {}  ({date}{})", one.model, spelled(&one.price), one.origin));
    }
    match model {
        Some(model) if known.is_empty() => {
            return Err(Failure::usage(format!(
                "no price is known for `{}`; expected PROVIDER/MODEL, or add it to [prices]",
                shown(model)
            )));
        }
        Some(_) => {}
        None => output::line(&format!(
            "The catalogue in this program is of {}: `endstop prices PROVIDER/MODEL` shows a price of it.",
            catalogue_date()
        )),
    }
    Ok(0)
}

/// Spells a price as `--price` takes it.
fn spelled(price: &Price) -> String {
    let dollars = |amount: NanoUsd| {
        let text = format!("{}.{:09}", amount.0 / 1_000_000_000, amount.0 % 1_000_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let mut text = format!("in={},out={}", dollars(price.input), dollars(price.output));
    let more = [
        ("cached", price.cached_input),
        ("cache_write", price.cache_write),
        ("cache_write_1h", price.cache_write_1h),
    ];
    for (name, amount) in more {
        if let Some(amount) = amount {
            // Writing to a string cannot fail.
            let _ = write!(text, ",{name}={}", dollars(amount));
        }
    }
    text
}

/// Reads a published list into the file of prices.
fn update(from: &Path, as_json: bool) -> Result {
    let name = shown(&from.display().to_string());
    let wrong = |problem: String| Failure::usage(format!("--from {name}: {}", shown(&problem)));
    let text = std::fs::read_to_string(from).map_err(|error| wrong(error.to_string()))?;
    let (origin, prices) = published(&text).map_err(wrong)?;
    let file = PriceFile { from: origin.to_owned(), date: date(now_ms()), prices };
    let path = PriceFile::path()
        .ok_or_else(|| Failure::usage("no folder for settings; set HOME or XDG_CONFIG_HOME"))?;
    let count = file.prices.len();
    write(&path, &file).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    if as_json {
        output::json(&json!({"type": "prices", "from": origin, "models": count, "file": path}));
    } else {
        output::note(&format!("{count} prices of {origin} are in {}", path.display()));
    }
    Ok(0)
}

/// Replaces the file at once, so that no run reads a part of it.
fn write(path: &Path, file: &PriceFile) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(serde_json::to_string_pretty(file)?.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    Ok(())
}

/// A JSON object in the order of its members, in which none may be there twice.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let (mut members, mut names) = (Vec::new(), std::collections::HashSet::new());
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if !names.insert(name.clone()) {
                        return Err(serde::de::Error::custom(format!("`{name}` is there twice")));
                    }
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// Fields of a published list: in, out, cached, cache_write, cache_write_1h.
type Fields = [&'static str; 5];

const MODELS_DEV: Fields = ["input", "output", "cache_read", "cache_write", ""];
const LITELLM: Fields = [
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
];

/// Reads a list of models.dev (`api.json`) or of LiteLLM. Returns its name and the prices.
fn published(text: &str) -> Result<(&'static str, BTreeMap<String, String>), String> {
    let Members(members) = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let is_models_dev = members.iter().any(|(_, one)| one["models"].is_object());
    let mut prices = Found::default();
    for (name, one) in &members {
        if is_models_dev {
            for (model, info) in one["models"].as_object().into_iter().flatten() {
                prices.add(&format!("{name}/{model}"), &info["cost"], MODELS_DEV, 1.0)?;
            }
        } else if let Some(provider) = one["litellm_provider"].as_str() {
            // An example with texts instead of numbers.
            if name == "sample_spec" {
                continue;
            }
            let model = name.strip_prefix(&format!("{provider}/")).unwrap_or(name);
            prices.add(&format!("{provider}/{model}"), one, LITELLM, 1e6)?;
        }
    }
    if prices.0.is_empty() {
        return Err("it has no prices; expected api.json of models.dev, or model_prices_and_context_window.json of LiteLLM".to_owned());
    }
    let spelled = prices.0.into_iter().map(|(name, (_, price))| (name, price)).collect();
    Ok((if is_models_dev { "models.dev" } else { "LiteLLM" }, spelled))
}

/// Prices by their names in lower case, each with its name in the list.
#[derive(Default)]
struct Found(BTreeMap<String, (String, String)>);

impl Found {
    /// Adds a row, if it has a price for text. `factor` makes its amounts dollars for a million tokens.
    fn add(&mut self, name: &str, cost: &Value, fields: Fields, factor: f64) -> Result<(), String> {
        let wrong = |problem: String| format!("`{name}`: {problem}");
        let mut parts = Vec::new();
        for (field, own) in
            fields.iter().zip(["in", "out", "cached", "cache_write", "cache_write_1h"])
        {
            if let Some(amount) = highest(cost, field).map_err(wrong)? {
                // A billionth of a dollar is the unit of a price.
                parts.push(format!("{own}={:.9}", amount * factor));
            }
        }
        let is_priced =
            ["in=", "out="].iter().all(|own| parts.iter().any(|part| part.starts_with(own)));
        if !is_priced {
            return Ok(());
        }
        let price = parse_price(&parts.join(",")).map_err(|error| wrong(error.to_string()))?;
        let price = spelled(&price);
        match self.0.entry(name.to_lowercase()) {
            Entry::Vacant(row) => {
                row.insert((name.to_owned(), price));
            }
            // Spellings of one model.
            Entry::Occupied(row) if row.get().1 == price => {}
            Entry::Occupied(row) => {
                return Err(wrong(format!(
                    "`{}` is the same model with another price",
                    row.get().0
                )));
            }
        }
        Ok(())
    }
}

/// Returns the highest amount of a field, also of those for long prompts, because a price is an upper bound.
fn highest(cost: &Value, field: &str) -> Result<Option<f64>, String> {
    let Some(members) = cost.as_object().filter(|_| !field.is_empty()) else { return Ok(None) };
    let long = format!("{field}_above_");
    let mut highest: Option<f64> = None;
    let mut take = |name: &str, value: &Value| {
        if value.is_null() {
            return Ok(());
        }
        let amount = value.as_f64().filter(|amount| amount.is_finite() && *amount >= 0.0);
        let amount =
            amount.ok_or_else(|| format!("`{name}`: `{value}` is not an amount of dollars"))?;
        highest = Some(highest.map_or(amount, |known| known.max(amount)));
        Ok::<(), String>(())
    };
    for (name, value) in members {
        // LiteLLM has `…_above_200k_tokens`; the price of an hour's cache is a field of its own.
        let is_long = name.starts_with(&long) && name.ends_with("_tokens");
        if name == field || is_long && name.contains("1hr") == field.contains("1hr") {
            take(name, value)?;
        }
    }
    // models.dev has objects with the same fields for long prompts.
    for (name, value) in members.iter().filter(|(name, _)| name.starts_with("context_over_")) {
        if let Some(amount) = value.get(field) {
            take(name, amount)?;
        }
    }
    Ok(highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_are_read() {
        let models_dev = r#"{"openai": {"id": "openai", "models": {
            "gpt-x": {"id": "gpt-x", "cost": {"input": 1.25, "output": 10, "cache_read": 0.125,
                "context_over_200k": {"input": 2.5, "output": 15}}},
            "free": {"id": "free"}}}}"#;
        let (from, prices) = published(models_dev).unwrap();
        assert_eq!(from, "models.dev");
        let expected =
            BTreeMap::from([("openai/gpt-x".to_owned(), "in=2.5,out=15,cached=0.125".to_owned())]);
        assert_eq!(prices, expected);
        let litellm = r#"{"sample_spec": {"litellm_provider": "one of", "input_cost_per_token": "x"},
            "gemini/g-1": {"litellm_provider": "gemini", "input_cost_per_token": 1.25e-06,
                "output_cost_per_token": 1e-05, "output_cost_per_token_above_200k_tokens": 1.5e-05},
            "g-image": {"litellm_provider": "gemini", "output_cost_per_image": 0.04}}"#;
        let (from, prices) = published(litellm).unwrap();
        assert_eq!(from, "LiteLLM");
        assert_eq!(
            prices,
            BTreeMap::from([("gemini/g-1".to_owned(), "in=1.25,out=15".to_owned())])
        );
    }

    #[test]
    fn wrong_rows_are_named() {
        for (list, says) in [
            (
                r#"{"a": {"models": {"m": {"cost": {"input": -1, "output": 2}}}}}"#,
                "`a/m`: `input`: `-1` is not an amount",
            ),
            (
                r#"{"a": {"models": {"m": {"cost": {"input": "1", "output": 2}}}}}"#,
                "`a/m`: `input`",
            ),
            (r#"{"m": {"litellm_provider": "p", "input_cost_per_token": NaN}}"#, "line 1"),
            (r#"{"p/m": {"litellm_provider": "p"}, "p/m": {}}"#, "`p/m` is there twice"),
            (
                r#"{"p/m": {"litellm_provider": "p", "input_cost_per_token": 1, "output_cost_per_token": 1},
                    "p/M": {"litellm_provider": "p", "input_cost_per_token": 2, "output_cost_per_token": 1}}"#,
                "`p/m` is the same model with another price",
            ),
            ("[]", "expected an object"),
            ("{}", "it has no prices"),
        ] {
            let error = published(list).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}

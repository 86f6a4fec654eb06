//! Checks that the price table of `endstop-wire` matches the catalogue from which it was written.
//!
//! After an update of `genai-prices`, set [`AS_OF`] to the current date, run this test once with
//! `ENDSTOP_BLESS=1`, and review the difference.

#![allow(clippy::unwrap_used)] // an unreadable table should fail its test

use endstop_core::{LongPrompts, NanoUsd, Usage};
use endstop_wire::catalog::prices::{PriceSource, lookup};
use genai_prices::{Calculator, PriceRequest, UsageKey};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Prices that begin after this date are announcements and count together with the current ones.
const AS_OF: &str = "2026-11-21";
const AS_OF_SECONDS: u64 = 1_795_219_200;
const DAY: u64 = 86_400;

#[test]
fn table_matches_catalogue() {
    let (version, json) = catalogue();
    let providers: Value = serde_json::from_str(&json).unwrap();
    let written = write_table(&version, providers.as_array().unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/prices.tsv");
    if std::env::var_os("ENDSTOP_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let ours = std::fs::read_to_string(&path).unwrap();
    let differs = ours.lines().zip(written.lines()).find(|(a, b)| a != b);
    assert!(
        ours == written,
        "data/prices.tsv is not that of genai-prices {version}: set AS_OF, run with ENDSTOP_BLESS=1\n{differs:?}"
    );
}

/// The catalogue's own calculator never charges more than our price, whatever the call's size or
/// hour is, on the table's date and later. If `exact` is set, it charges the same amount.
#[test]
fn quote_is_an_upper_bound() {
    let calculator = Calculator::bundled();
    let mut priced = 0;
    for provider in calculator.providers() {
        for model in provider.models() {
            let Some(info) = lookup(provider.id(), model.id()) else {
                continue;
            };
            let PriceSource::Catalogue { model: ours, .. } = info.source else {
                panic!("{:?}", info.source);
            };
            if ours == model.id() {
                assert_eq!(info.context_window, model.context_window());
            }
            priced += 1;
            for (input, cached, written, output) in [
                (1_000, 0, 0, 1_000),
                (1_000, 500, 200, 1_000),
                (900_000, 100_000, 0, 10_000),
                (900_000, 0, 500_000, 10_000),
                (200_000, 0, 0, 1_000),
                (200_001, 200_000, 0, 1_000),
                (272_001, 0, 200_000, 1_000),
            ] {
                let usage = Usage {
                    input_tokens: Some(input),
                    output_tokens: Some(output),
                    cached_input_tokens: Some(cached),
                    cache_write_tokens: Some(written),
                    ..Usage::default()
                };
                let quote = info.price.cost(&usage);
                let theirs = genai_prices::Usage::from([
                    (UsageKey::INPUT_TOKENS, input as f64),
                    (UsageKey::OUTPUT_TOKENS, output as f64),
                    (UsageKey::CACHE_READ_TOKENS, cached as f64),
                    (UsageKey::CACHE_WRITE_TOKENS, written as f64),
                ]);
                for after in [0, 3 * 3_600, 8 * 3_600, 20 * 3_600, 30 * DAY, 400 * DAY] {
                    let request = PriceRequest::new(model.id(), &theirs)
                        .with_provider_id(provider.id())
                        .with_timestamp(UNIX_EPOCH + Duration::from_secs(AS_OF_SECONDS + after));
                    let cost = calculator.calculate(&request).unwrap();
                    assert_eq!(cost.model_id, ours);
                    let cost = NanoUsd::from_usd(cost.total_price);
                    assert!(
                        cost.0 <= quote.0 + 1,
                        "{}/{ours}: {cost} > {quote} for {usage:?} after {after} s",
                        provider.id()
                    );
                    if info.exact {
                        assert!(cost.0.abs_diff(quote.0) <= 1, "{}/{ours}: {cost}", provider.id());
                    }
                }
            }
        }
    }
    assert!(priced > 1_500, "{priced}");
}

/// Returns the catalogue's version and data, from the sources that this test was built with.
fn catalogue() -> (String, String) {
    // The platform is named because the crates of other platforms are not downloaded.
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .args(["--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let package = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["name"] == "genai-prices")
        .unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    let json = std::fs::read_to_string(manifest.with_file_name("data").join("prices.json"));
    (package["version"].as_str().unwrap().to_owned(), json.unwrap())
}

fn write_table(version: &str, providers: &[Value]) -> String {
    let mut table = format!(
        "# From genai-prices {version} (MIT, see LICENSE-genai-prices) as of {AS_OF}. Written by a test: do not edit.\n"
    );
    for provider in providers {
        let fallbacks: Vec<&str> = provider["fallback_model_providers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|id| id.as_str().unwrap())
            .collect();
        let id = provider["id"].as_str().unwrap();
        writeln!(table, "@{id}\t{}", fallbacks.join(" ")).unwrap();
        for model in provider["models"].as_array().unwrap() {
            let id = model["id"].as_str().unwrap();
            assert!(!id.contains(['\t', '\n']), "{id}");
            let mut rules = Vec::new();
            write_rules(&mut rules, id, model["match"].as_object().unwrap());
            let (price, variants) = columns(model);
            let price = price.join("\t");
            let varies = if varies(&model["prices"]) { "~" } else { "" };
            let window = model["context_window"].as_u64().map_or(String::new(), |w| w.to_string());
            let rules = rules.join(" ");
            writeln!(table, "{id}\t{price}\t{window}\t{varies}\t{variants}\t{rules}").unwrap();
        }
    }
    table
}

fn write_rules(rules: &mut Vec<String>, id: &str, rule: &Map<String, Value>) {
    const NO_SPEECH: &str = "^(?!.*-[tT][tT][sS](?:$|-))";
    assert_eq!(rule.len(), 1, "{id}");
    let (kind, value) = rule.iter().next().unwrap();
    let text = value.as_str().unwrap_or("").to_lowercase();
    match (kind.as_str(), value) {
        ("or", Value::Array(any)) => {
            for rule in any {
                write_rules(rules, id, rule.as_object().unwrap());
            }
        }
        ("and", Value::Array(all)) => {
            assert_eq!(
                (all.len(), &all[1]["regex"]),
                (2, &Value::from(NO_SPEECH)),
                "{id}: {all:?}"
            );
            rules.push(format!("&{}", all[0]["starts_with"].as_str().unwrap().to_lowercase()));
        }
        ("equals", _) if text == id.to_lowercase() => rules.push("=".to_owned()),
        ("equals", _) => rules.push(format!("={text}")),
        ("starts_with", _) => rules.push(format!("^{text}")),
        ("ends_with", _) => rules.push(format!("${text}")),
        ("contains", _) => rules.push(format!("~{text}")),
        ("regex", _) => rules.extend(
            digits(value.as_str().unwrap())
                .unwrap_or_else(|| panic!("{id}: teach the table this pattern: {value}")),
        ),
        _ => panic!("{id}: teach the table this rule: {kind}"),
    }
    assert!(!rules.iter().any(|rule| rule.contains([' ', '\t', '\n'])), "{id}");
}

/// Converts `^literal-\d{8}$` to `%literal-########`, and a character class to one rule per
/// character.
fn digits(regex: &str) -> Option<Vec<String>> {
    let body = regex.strip_prefix('^')?;
    let (body, open) = body.strip_suffix('$').map_or((body, true), |body| (body, false));
    let mut patterns = vec![String::from("%")];
    let mut rest = body;
    while let Some(next) = rest.chars().next() {
        let mut choices = vec![next.to_ascii_lowercase().to_string()];
        let mut taken = next.len_utf8();
        if let Some(after) = rest.strip_prefix("\\d") {
            let count = after.strip_prefix('{').and_then(|count| count.split_once('}'));
            taken = 2 + count.map_or(0, |(count, _)| count.len() + 2);
            choices = vec!["#".repeat(count.map_or(Ok(1), |(count, _)| count.parse()).ok()?)];
        } else if let Some(escaped) = rest.strip_prefix('\\') {
            let escaped = escaped.chars().next().filter(char::is_ascii_punctuation)?;
            (choices, taken) = (vec![escaped.to_string()], 2);
        } else if let Some(class) = rest.strip_prefix('[') {
            let (class, _) = class.split_once(']')?;
            // A range or a negation would be read as its literal characters.
            (class == "-@").then_some(())?;
            (choices, taken) = (class.chars().map(String::from).collect(), class.len() + 2);
        } else if !(next.is_ascii_alphanumeric() || "-/=".contains(next)) {
            return None;
        }
        patterns = patterns
            .iter()
            .flat_map(|start| choices.iter().map(move |choice| format!("{start}{choice}")))
            .collect();
        rest = &rest[taken..];
    }
    let end = if open { "*" } else { "" };
    Some(patterns.into_iter().map(|pattern| pattern + end).collect())
}

/// Returns the price tables that may apply on [`AS_OF`] or later.
fn candidates(prices: &Value) -> Vec<&Map<String, Value>> {
    let Some(conditional) = prices.as_array() else {
        return vec![prices.as_object().unwrap()];
    };
    let start = |entry: &Value| entry["constraint"]["start_date"].as_str().map(str::to_owned);
    let by_hour = |entry: &Value| entry["constraint"]["start_time"].is_string();
    let in_force = conditional.iter().rposition(|entry| {
        !by_hour(entry) && start(entry).is_none_or(|date| date.as_str() <= AS_OF)
    });
    conditional
        .iter()
        .enumerate()
        .filter(|(at, entry)| {
            by_hour(entry)
                || Some(*at) == in_force
                || start(entry).is_some_and(|date| date.as_str() > AS_OF)
        })
        .map(|(_, entry)| entry["prices"].as_object().unwrap())
        .collect()
}

/// Prices in dollars for input, output, cached and cache write.
type Columns = [Option<f64>; 4];

const KEYS: [&str; 4] = ["input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"];

/// Returns the numbers of prompt tokens beyond which another price applies.
fn thresholds(tables: &[&Map<String, Value>]) -> Vec<u64> {
    let tiers = tables.iter().flat_map(|table| table.values());
    let tiers = tiers.filter_map(|price| price["tiers"].as_array()).flatten();
    let mut starts: Vec<u64> = tiers.map(|tier| tier["start"].as_u64().unwrap()).collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// Returns the highest prices of prompts that have more than `above` tokens, and do not reach the
/// next threshold.
fn ceiling(tables: &[&Map<String, Value>], above: u64) -> Option<Columns> {
    let highest = |table: &Map<String, Value>, keys: &[&str]| -> Option<f64> {
        keys.iter().filter_map(|key| price_above(table.get(*key)?, above)).reduce(f64::max)
    };
    let mut found: Columns = [None; 4];
    let has = |key: &str| tables.iter().any(|table| table.contains_key(key));
    for table in tables {
        if table.contains_key("requests_kcount") {
            return None;
        }
        let input = highest(table, &["input_mtok", "input_image_mtok"])?;
        let output = highest(table, &["output_mtok", "output_reasoning_mtok"])?;
        let cached = highest(table, &["cache_read_mtok"]).unwrap_or(input);
        let write = highest(table, &["cache_write_mtok"]).unwrap_or(input);
        // Such writes have the price of `Price::hour_write`, so the table needs no column for them.
        if let Some(hour) = highest(table, &["cache_write_1h_mtok"]) {
            assert!((hour - write.max(2.0 * input)).abs() < 1e-9, "{table:?}");
        }
        let said = [true, true, has("cache_read_mtok"), has("cache_write_mtok")];
        for (at, price) in [input, output, cached, write].into_iter().enumerate() {
            if said[at] {
                found[at] = Some(found[at].unwrap_or(0.0).max(price));
            }
        }
    }
    Some(found)
}

fn price_above(price: &Value, above: u64) -> Option<f64> {
    let mut tiers = price["tiers"].as_array().into_iter().flatten();
    let reached = tiers.rfind(|tier| tier["start"].as_u64().unwrap() <= above);
    let base = || price.as_f64().or_else(|| price["base"].as_f64());
    reached.map_or_else(base, |tier| tier["price"].as_f64())
}

/// Returns the columns of prices, and that of variants.
fn columns(model: &Value) -> ([String; 4], String) {
    let tables = candidates(&model["prices"]);
    let Some(base) = ceiling(&tables, 0) else {
        return Default::default();
    };
    let mut variants = Vec::new();
    long(&mut variants, "", &tables);
    for (tier, prices) in service_tiers(model) {
        // A variant replaces the prices that it has, and leaves the others as they are.
        let replaced: Vec<Map<String, Value>> = tables
            .iter()
            .map(|table| {
                let mut table = (*table).clone();
                table.extend(prices.clone());
                table
            })
            .collect();
        let replaced: Vec<&Map<String, Value>> = replaced.iter().collect();
        variants.push(format!("{tier}={}", texts(ceiling(&replaced, 0).unwrap()).join("|")));
        long(&mut variants, tier, &replaced);
    }
    (texts(base), variants.join(" "))
}

fn long(variants: &mut Vec<String>, tier: &str, tables: &[&Map<String, Value>]) {
    let starts = thresholds(tables);
    assert!(starts.len() <= LongPrompts::MAX, "{starts:?}: raise `LongPrompts::MAX`");
    for above in starts {
        let prices = texts(ceiling(tables, above).unwrap());
        variants.push(format!("{tier}>{above}={}", prices.join("|")));
    }
}

/// Returns the service tiers whose prices are in force on [`AS_OF`], and do not change later.
fn service_tiers(model: &Value) -> Vec<(&str, &Map<String, Value>)> {
    let all = model["price_variants"].as_array().into_iter().flatten();
    let tiers: Vec<(&str, &Map<String, Value>, &Value)> = all
        .filter_map(|variant| {
            let tier = variant["when"]["service_tier"].as_str()?;
            assert_eq!(variant["when"].as_object().unwrap().len(), 1, "{variant}");
            assert!(tier.bytes().all(|byte| byte.is_ascii_lowercase()), "{tier}");
            let prices = variant["prices"].as_object().unwrap();
            (tier != "default").then_some((tier, prices, &variant["constraint"]))
        })
        .collect();
    let once = |tier: &str| tiers.iter().filter(|(name, ..)| *name == tier).count() == 1;
    let in_force = |constraint: &Value| {
        constraint.is_null() || constraint["start_date"].as_str().is_some_and(|date| date <= AS_OF)
    };
    let known = tiers.iter().filter(|(tier, _, constraint)| once(tier) && in_force(constraint));
    known.map(|(tier, prices, _)| (*tier, *prices)).collect()
}

fn texts(prices: Columns) -> [String; 4] {
    prices.map(|price| price.map_or(String::new(), dollars))
}

/// Returns `true` if a call's price depends on its date or hour, or on a kind of token that a quote
/// does not distinguish.
fn varies(prices: &Value) -> bool {
    let tables = candidates(prices);
    tables.iter().any(|table| {
        KEYS.iter().any(|key| table.get(*key) != tables[0].get(*key))
            || ["output_reasoning_mtok", "output_citation_mtok", "input_image_mtok"]
                .iter()
                .any(|key| table.contains_key(*key))
    })
}

/// Formats dollars with nano-dollar precision, rounded up unless the excess is only a
/// floating-point error.
fn dollars(price: f64) -> String {
    let nanos = (price * 1e9 - 1e-3).ceil().max(0.0) as u64;
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

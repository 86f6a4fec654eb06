//! `cargo xtask models FILE`: generates `crates/endstop-wire/data/models.tsv` from LiteLLM's table
//! of models (`litellm/model_prices_and_context_window_backup.json` of its Python package, MIT).

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/endstop-wire/data/models.tsv");

/// LiteLLM's name of a provider, Endstop's id of it, and LiteLLM's prefix of its model ids.
const PROVIDERS: &[(&str, &str, &str)] = &[
    ("anthropic", "anthropic", ""),
    ("azure", "azure", "azure/"),
    ("bedrock", "bedrock", "bedrock/"),
    ("bedrock_converse", "bedrock", "bedrock/"),
    ("cerebras", "cerebras", "cerebras/"),
    ("cohere_chat", "cohere", ""),
    ("crusoe", "crusoe", "crusoe/"),
    ("dashscope", "dashscope", "dashscope/"),
    ("deepseek", "deepseek", "deepseek/"),
    ("fireworks_ai", "fireworks", "fireworks_ai/"),
    ("gemini", "gemini", "gemini/"),
    ("github_copilot", "copilot", "github_copilot/"),
    ("groq", "groq", "groq/"),
    ("mistral", "mistral", "mistral/"),
    ("moonshot", "moonshot", "moonshot/"),
    ("openai", "openai", ""),
    ("perplexity", "perplexity", "perplexity/"),
    ("sambanova", "sambanova", "sambanova/"),
    ("snowflake", "snowflake", "snowflake/"),
    ("together_ai", "together", "together_ai/"),
    ("vercel_ai_gateway", "vercel-gateway", "vercel_ai_gateway/"),
    ("vertex_ai-anthropic_models", "vertex", "vertex_ai/"),
    ("vertex_ai-language-models", "vertex", ""),
    ("xai", "xai", "xai/"),
    ("zai", "zai", "zai/"),
];

/// The context window and the output limit, in tokens.
type Limits = (Option<u64>, Option<u64>);

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let [path] = args else {
        return Err("usage: cargo xtask models model_prices_and_context_window_backup.json".into());
    };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let all: BTreeMap<String, Value> =
        serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
    // Ordered maps, so that an update of the source gives a small diff.
    let mut ours: BTreeMap<&str, BTreeMap<String, Limits>> = BTreeMap::new();
    for (key, model) in &all {
        let named = |(theirs, ..): &&(&str, &str, &str)| model["litellm_provider"] == *theirs;
        let Some((_, provider, prefix)) = PROVIDERS.iter().find(named) else { continue };
        if !matches!(model["mode"].as_str(), Some("chat" | "responses")) {
            continue;
        }
        let id = key.strip_prefix(prefix).unwrap_or(key).to_lowercase();
        // Skips regional and fine-tuned variants, which have the limits of their base model.
        let regional = *provider != "fireworks" && id.starts_with("ft:")
            || matches!(*provider, "bedrock" | "azure") && id.contains('/');
        // The table has 0 for limits that are not known.
        let tokens = |field: &str| model[field].as_u64().filter(|n| *n > 0);
        let window = tokens("max_input_tokens");
        let mut output = tokens("max_output_tokens");
        // If the table gives the window for both, the output limit is not known.
        if output >= window {
            output = None;
        }
        // Tabs and spaces cannot be in an id, because the table separates its fields by tabs.
        if regional || id.contains(['\t', ' ']) || window.is_none() && output.is_none() {
            continue;
        }
        let limits = ours.entry(provider).or_default().entry(id).or_insert((window, output));
        // If a model is listed twice, the smaller limits apply, because they hold for both entries.
        *limits = (least(limits.0, window), least(limits.1, output));
    }
    let mut table = String::from(
        "# From LiteLLM's table of models (MIT, see LICENSE-litellm). Written by `cargo xtask models`: do not edit.\n",
    );
    let mut count = 0;
    let field = |n: &Option<u64>| n.map_or_else(String::new, |n| n.to_string());
    for (provider, models) in &ours {
        let _ = writeln!(table, "@{provider}");
        for (id, (window, output)) in models {
            let _ = writeln!(table, "{id}\t{}\t{}", field(window), field(output));
        }
        count += models.len();
    }
    std::fs::write(Path::new(TABLE), table).map_err(|e| format!("{TABLE}: {e}"))?;
    println!("{count} models of {} providers", ours.len());
    Ok(())
}

/// Returns the smaller of two limits; an unknown limit does not count.
fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

//! Settings: `endstop.toml`, then flags above it. Every error names the file and the key.

use crate::args::RunArgs;
use crate::input::Source;
use crate::{Failure, Result};
use endstop::{Limits, Policy, Registry};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The keys of `endstop.toml` beside `[limits]`, `[policy]` and `[price]`.
const KEYS: [&str; 11] = [
    "model",
    "api",
    "base_url",
    "system",
    "tools",
    "ask",
    "dir",
    "max_output_tokens",
    "verify",
    "context_window",
    "stream",
];

/// What a run is configured with.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    pub(crate) api: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) system: Option<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) ask: bool,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) verify: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) no_stream: bool,
    pub(crate) price: Option<String>,
    pub(crate) limits: Limits,
    pub(crate) policy: Option<Policy>,
    pub(crate) output_schema: Option<Value>,
}

impl Settings {
    /// The settings of a run: the file, and the flags above it.
    pub(crate) fn of(args: &RunArgs) -> Result<Settings> {
        let mut settings = Settings::default();
        let default = Path::new("endstop.toml");
        match &args.config {
            Some(path) => settings.read(path)?,
            None if default.is_file() => settings.read(default)?,
            None => {}
        }
        let take = |own: &mut Option<String>, flag: &Option<String>| {
            if flag.is_some() {
                own.clone_from(flag);
            }
        };
        take(&mut settings.model, &args.model);
        take(&mut settings.api, &args.api);
        take(&mut settings.base_url, &args.base_url);
        take(&mut settings.system, &args.system);
        take(&mut settings.verify, &args.verify);
        take(&mut settings.price, &args.price);
        if !args.tools.is_empty() {
            settings.tools.clone_from(&args.tools);
        }
        settings.ask |= args.ask;
        settings.no_stream |= args.no_stream;
        settings.dir = args.dir.clone().or(settings.dir);
        settings.max_output_tokens = args.max_output_tokens.or(settings.max_output_tokens);
        settings.context_window = args.context_window.or(settings.context_window);
        for (name, text) in args.limits.given() {
            // Numbers and switches are read as such, the rest (10m, off) as text.
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            settings.limits.set(name, &value).map_err(|error| {
                Failure::usage(format!("--{}: {}", name.replace('_', "-"), error.problem))
            })?;
        }
        if let Some(spec) = &args.policy {
            settings.policy = Some(policy(spec)?);
        }
        if let Some(path) = &args.output_schema {
            let source = Source::of(Some(path));
            let schema = serde_json::from_str(&source.text()?).map_err(|error| {
                Failure::usage(format!("{}: not valid JSON: {error}", source.name()))
            })?;
            settings.output_schema = Some(schema);
        }
        Ok(settings)
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let name = path.display();
        let table = toml_file(path)?;
        let wrong = |key: &str, what: &str| Failure::usage(format!("{name}: `{key}` {what}"));
        for (key, value) in table {
            let text = || {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| wrong(&key, "wants a text in quotes"))
            };
            let number =
                || value.as_u64().ok_or_else(|| wrong(&key, "wants a whole number, 0 or more"));
            let switch = || value.as_bool().ok_or_else(|| wrong(&key, "wants true or false"));
            match key.as_str() {
                "model" => self.model = Some(text()?),
                "api" => self.api = Some(text()?),
                "base_url" => self.base_url = Some(text()?),
                "system" => self.system = Some(text()?),
                "verify" => self.verify = Some(text()?),
                "price" => self.price = Some(text()?),
                "dir" => self.dir = Some(text()?.into()),
                "ask" => self.ask = switch()?,
                "stream" => self.no_stream = !switch()?,
                "max_output_tokens" => self.max_output_tokens = Some(number()?),
                "context_window" => self.context_window = Some(number()?),
                "tools" => {
                    let names = value.as_array().and_then(|names| {
                        names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
                    });
                    self.tools = names.ok_or_else(|| wrong(&key, "wants a list of names"))?;
                }
                "limits" => {
                    let limits = value.as_object().ok_or_else(|| wrong(&key, "wants a table"))?;
                    for (limit, value) in limits {
                        self.limits
                            .set(limit, value)
                            .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                    }
                }
                "policy" => {
                    let policy = Registry::default()
                        .build(&value)
                        .map_err(|error| Failure::usage(format!("{name}: [policy]: {error}")))?;
                    self.policy = Some(policy);
                }
                _ => {
                    let mut known: Vec<&str> = KEYS.to_vec();
                    known.extend(["price", "limits", "policy"]);
                    let problem = endstop::core::limits::unknown_key(&key, &known);
                    return Err(wrong(&key, &format!("is an {problem}")));
                }
            }
        }
        Ok(())
    }
}

/// A TOML file as JSON values.
fn toml_file(path: &Path) -> Result<serde_json::Map<String, Value>> {
    let source = Source::of(Some(path));
    let text = source.text()?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Failure::usage(format!("{}: {error}", source.name())))?;
    match serde_json::to_value(table) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) | Err(_) => Err(Failure::usage(format!("{}: not a table", source.name()))),
    }
}

/// A policy from `--policy`: a TOML file, or what the registry reads.
pub(crate) fn policy(spec: &str) -> Result<Policy> {
    let registry = Registry::default();
    let path = Path::new(spec);
    let is_toml = path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("toml"));
    if is_toml {
        let mut table = toml_file(path)?;
        let spec = table.remove("policy").unwrap_or(Value::Object(table));
        return registry
            .build(&spec)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())));
    }
    registry.build_text(spec).map_err(|error| Failure::usage(format!("--policy: {error}")))
}

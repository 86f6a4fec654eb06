//! Settings: `endstop.toml`, then flags above it. Every error names the file and the key.

use crate::args::RunArgs;
use crate::input::Source;
use crate::servers::ServerSettings;
use crate::{Failure, Result};
use endstop::compaction::CompactionConfig;
use endstop::journal::RecordedRun;
use endstop::schema::OutputSchema;
use endstop::wire::prices::parse_price;
use endstop::{Limits, Policy, Price, Registry, Watch};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The keys of `endstop.toml` beside `[limits]`, `[policy]`, `[watch]`, `[compaction]`, `[price]`
/// and `[mcp.NAME]`.
const KEYS: [&str; 12] = [
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
    "journal",
];

/// What a run is configured with.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    pub(crate) api: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) system: Option<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) mcp: Vec<ServerSettings>,
    pub(crate) ask: bool,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) verify: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) no_stream: bool,
    pub(crate) price: Option<Price>,
    pub(crate) limits: Limits,
    pub(crate) policy: Option<Policy>,
    /// `None`: the usual ones.
    pub(crate) watches: Option<Vec<Watch>>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) journal: Option<PathBuf>,
    pub(crate) compaction: CompactionConfig,
}

/// What a journal keeps of the settings.
#[derive(Serialize, Deserialize)]
struct Saved {
    model: Option<String>,
    api: Option<String>,
    base_url: Option<String>,
    tools: Vec<String>,
    #[serde(default)]
    mcp: Vec<ServerSettings>,
    ask: bool,
    dir: Option<PathBuf>,
    max_output_tokens: Option<u64>,
    verify: Option<String>,
    context_window: Option<u64>,
    no_stream: bool,
    price: Option<Price>,
    /// As configuration spells it; `None`: as is usual.
    #[serde(default)]
    compaction: Option<Value>,
}

impl Settings {
    /// The settings of a run: the file, and the flags above it.
    pub(crate) fn of(args: &RunArgs) -> Result<Settings> {
        let mut settings = Settings::default();
        let default = Path::new("endstop.toml");
        match &args.config {
            Some(path) => settings.read(path)?,
            None if default.exists() => settings.read(default)?,
            None => {}
        }
        settings.above(args)?;
        Ok(settings)
    }

    /// The settings of a run that was kept, and the flags above them.
    pub(crate) fn of_kept(run: &RecordedRun, args: &RunArgs) -> Result<Settings> {
        let header = &run.header;
        let wrong = |problem: String| Failure::usage(format!("run {}: {problem}", header.id));
        let saved: Saved = serde_json::from_value(header.settings.clone()).map_err(|_| {
            wrong("it was not begun by `endstop run`, and goes on only where it was".to_owned())
        })?;
        let mut settings = Settings {
            model: saved.model,
            api: saved.api,
            base_url: saved.base_url,
            system: header.system.clone(),
            tools: saved.tools,
            mcp: saved.mcp,
            ask: saved.ask,
            dir: saved.dir,
            max_output_tokens: saved.max_output_tokens,
            verify: saved.verify,
            context_window: saved.context_window,
            no_stream: saved.no_stream,
            price: saved.price,
            limits: run.limits().clone(),
            policy: None,
            watches: Some(header.spec.watches.clone()),
            output_schema: header.output_schema.clone(),
            journal: None,
            compaction: CompactionConfig::default(),
        };
        if let Some(said) = &saved.compaction {
            let config = CompactionConfig::read(said);
            settings.compaction =
                config.map_err(|problem| wrong(format!("its compaction: {problem}")))?;
        }
        if let Some(spec) = &header.policy {
            let policy = Registry::default().build(spec);
            settings.policy = Some(policy.map_err(|error| wrong(format!("its policy: {error}")))?);
        }
        settings.above(args)?;
        Ok(settings)
    }

    /// What a journal keeps of them, to go on with the run. The rest it knows by itself.
    pub(crate) fn saved(&self) -> Value {
        let saved = Saved {
            model: self.model.clone(),
            api: self.api.clone(),
            base_url: self.base_url.clone(),
            tools: self.tools.clone(),
            mcp: self.mcp.iter().map(ServerSettings::saved).collect(),
            ask: self.ask,
            // Where it was: it may be gone on with from another folder.
            dir: std::env::current_dir().ok().map(|here| match &self.dir {
                Some(dir) => here.join(dir),
                None => here,
            }),
            max_output_tokens: self.max_output_tokens,
            verify: self.verify.clone(),
            context_window: self.context_window,
            no_stream: self.no_stream,
            price: self.price,
            compaction: serde_json::to_value(&self.compaction).ok(),
        };
        serde_json::to_value(saved).unwrap_or_default()
    }

    /// Takes the flags.
    fn above(&mut self, args: &RunArgs) -> Result<()> {
        let settings = self;
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
        if let Some(text) = &args.price {
            // The error begins with `price:`, which here is the flag.
            let price = parse_price(text).map_err(|error| Failure::usage(format!("--{error}")))?;
            settings.price = Some(price);
        }
        if !args.tools.is_empty() {
            known_tools("--tool", &args.tools)?;
            settings.tools.clone_from(&args.tools);
        }
        for flag in &args.mcp {
            let server = ServerSettings::of_flag(flag)?;
            settings.mcp.retain(|other| other.name != server.name);
            settings.mcp.push(server);
        }
        settings.ask |= args.ask;
        settings.no_stream |= args.no_stream;
        settings.dir = args.dir.clone().or_else(|| settings.dir.take());
        settings.max_output_tokens = args.max_output_tokens.or(settings.max_output_tokens);
        settings.context_window = args.context_window.or(settings.context_window);
        for (name, text) in args.limits.given() {
            // Numbers and switches are read as such, the rest (10m, off) as text.
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            settings.limits.set(name, &value).map_err(|error| {
                Failure::usage(format!("--{}: {}", name.replace('_', "-"), error.problem))
            })?;
        }
        if let Some(text) = &args.compact {
            // The strategies are the flag's; the rest of it is the file's.
            let said = CompactionConfig::read(&Value::String(text.clone()))
                .map_err(|problem| Failure::usage(format!("--compact: {problem}")))?;
            settings.compaction.strategies = said.strategies;
        }
        if let Some(spec) = &args.policy {
            settings.policy = Some(policy(spec)?);
        }
        if args.watches.iter().any(|word| word == "off") {
            settings.watches = Some(Vec::new());
        }
        for word in args.watches.iter().filter(|word| *word != "off") {
            let watch = Watch::parse(word)
                .map_err(|problem| Failure::usage(format!("--watch {word}: {problem}")))?;
            let watches = settings.watches.get_or_insert_with(Watch::usual);
            // The flag stands above what is said of the same rule elsewhere.
            watches.retain(|other| other.rule.name() != watch.rule.name());
            watches.push(watch);
        }
        if let Some(path) = &args.output_schema {
            let source = Source::of(Some(path));
            let wrong = |problem: String| {
                Failure::usage(format!("--output-schema {}: {problem}", source.name()))
            };
            let schema: Value = serde_json::from_str(&source.text()?)
                .map_err(|error| wrong(format!("not valid JSON: {error}")))?;
            OutputSchema::new(schema.clone()).map_err(wrong)?;
            settings.output_schema = Some(schema);
        }
        Ok(())
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
            let tokens = || {
                let tokens = value.as_u64().filter(|tokens| *tokens > 0);
                tokens.ok_or_else(|| wrong(&key, "wants a whole number of tokens, 1 or more"))
            };
            let switch = || value.as_bool().ok_or_else(|| wrong(&key, "wants true or false"));
            match key.as_str() {
                "model" => self.model = Some(text()?),
                "api" => self.api = Some(text()?),
                "base_url" => self.base_url = Some(text()?),
                "system" => self.system = Some(text()?),
                "verify" => self.verify = Some(text()?),
                "price" => {
                    let text = price_text(&value).ok_or_else(|| {
                        wrong(&key, "wants \"in=3,out=15\", or a table of such dollars")
                    })?;
                    let price = parse_price(&text)
                        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
                    self.price = Some(price);
                }
                "journal" => self.journal = Some(text()?.into()),
                "dir" => self.dir = Some(text()?.into()),
                "ask" => self.ask = switch()?,
                "stream" => self.no_stream = !switch()?,
                "max_output_tokens" => self.max_output_tokens = Some(tokens()?),
                "context_window" => self.context_window = Some(tokens()?),
                "tools" => {
                    let names = value.as_array().and_then(|names| {
                        names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
                    });
                    self.tools = names.ok_or_else(|| wrong(&key, "wants a list of names"))?;
                    known_tools(&format!("{name}: `tools`"), &self.tools)?;
                }
                "mcp" => {
                    let servers = value.as_object().ok_or_else(|| wrong(&key, "wants tables"))?;
                    for (server, value) in servers {
                        let read = ServerSettings::of_table(server, value).map_err(|problem| {
                            Failure::usage(format!("{name}: [mcp.{server}]: {problem}"))
                        })?;
                        self.mcp.push(read);
                    }
                }
                "limits" => {
                    let limits = value.as_object().ok_or_else(|| wrong(&key, "wants a table"))?;
                    for (limit, value) in limits {
                        self.limits.set(limit, value).map_err(|error| {
                            Failure::usage(format!("{name}: [limits]: {error}"))
                        })?;
                    }
                }
                "compaction" => {
                    self.compaction = CompactionConfig::read(&value).map_err(|problem| {
                        Failure::usage(format!("{name}: [compaction]: {problem}"))
                    })?;
                }
                "policy" => {
                    let policy = Registry::default()
                        .build(&value)
                        .map_err(|error| Failure::usage(format!("{name}: [policy]: {error}")))?;
                    self.policy = Some(policy);
                }
                "watch" => {
                    let watches = Watch::read(&value)
                        .map_err(|problem| Failure::usage(format!("{name}: [watch]: {problem}")))?;
                    self.watches = Some(watches);
                }
                _ => {
                    let mut known: Vec<&str> = KEYS.to_vec();
                    known.extend(["price", "limits", "policy", "watch", "compaction", "mcp"]);
                    let problem = endstop::core::limits::unknown_key(&key, &known);
                    return Err(wrong(&key, &format!("is an {problem}")));
                }
            }
        }
        Ok(())
    }
}

/// A TOML file as JSON values.
pub(crate) fn toml_file(path: &Path) -> Result<serde_json::Map<String, Value>> {
    let source = Source::of(Some(path));
    let text = source.text()?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Not its own words, which quote the line: a key may stand there.
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        Failure::usage(format!(
            "{}: line {line}: not valid TOML: {}",
            source.name(),
            error.message()
        ))
    })?;
    as_json(&table).map_err(|problem| Failure::usage(format!("{}: {problem}", source.name())))
}

/// A table as JSON; what has no such form is named by its key.
fn as_json(table: &toml::Table) -> std::result::Result<serde_json::Map<String, Value>, String> {
    let member = |(key, value)| match plain(value) {
        Ok(value) => Ok((String::clone(key), value)),
        Err(problem) => Err(format!("`{key}`: {problem}")),
    };
    table.iter().map(member).collect()
}

/// A value as JSON. `nan` and `inf` have no such form, and must not become `null`, which switches a
/// limit off.
fn plain(value: &toml::Value) -> std::result::Result<Value, String> {
    use toml::Value as Toml;
    Ok(match value {
        Toml::String(text) => text.as_str().into(),
        Toml::Integer(number) => (*number).into(),
        Toml::Boolean(switch) => (*switch).into(),
        Toml::Datetime(time) => time.to_string().into(),
        Toml::Table(table) => Value::Object(as_json(table)?),
        Toml::Array(items) => {
            Value::Array(items.iter().map(plain).collect::<std::result::Result<_, _>>()?)
        }
        Toml::Float(number) => serde_json::Number::from_f64(*number)
            .ok_or_else(|| format!("wants a finite number, not {number}"))?
            .into(),
    })
}

/// A price as `--price` takes it: such a text, or a table of its fields.
fn price_text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    // Dollars are written out: the shortest form of a small number has an exponent.
    let field = |(name, dollars): (&String, &Value)| {
        let dollars =
            dollars.as_i64().map(|n| n.to_string()).or(dollars.as_f64().map(|n| n.to_string()));
        Some(format!("{name}={}", dollars?))
    };
    Some(value.as_object()?.iter().map(field).collect::<Option<Vec<_>>>()?.join(","))
}

/// Refuses a name that no tool has; `place` is where the names stand.
fn known_tools(place: &str, names: &[String]) -> Result<()> {
    // `finish` comes with any tool, and may be named.
    for name in names.iter().filter(|name| *name != "finish") {
        endstop::tool::built_in(name)
            .map_err(|problem| Failure::usage(format!("{place}: {problem}")))?;
    }
    Ok(())
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

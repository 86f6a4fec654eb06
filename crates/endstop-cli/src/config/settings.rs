//! Merges the settings of a run from settings files and flags. Every error names the file and the
//! key. Which files are read, and what each file may set, is decided in `config::trust`.

use crate::args::RunArgs;
use crate::config::calibrated::Calibrated;
use crate::config::http::HttpSettings;
use crate::config::params::ParamSettings;
use crate::config::park::{ParkSettings, park_above};
use crate::config::servers::ServerSettings;
use crate::config::spend::SpendSettings;
use crate::config::trust::file::{Entry, toml_file};
use crate::config::trust::keys::KEYS;
use crate::config::trust::{Origin, flags, seal, shown};
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::spend_args::project;
use endstop::compaction::CompactionConfig;
use endstop::journal::RunHeader;
use endstop::mcp::McpServer;
use endstop::schema::OutputSchema;
use endstop::verifier::CommandVerifier;
use endstop::wire::catalog::prices::parse_price;
use endstop::{
    Limits, ModelParams, Price, Watch,
    policy::{BoxPolicy, Registry},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The merged settings of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    /// The models to call after that one has failed.
    pub(crate) fallback: Vec<String>,
    pub(crate) api: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) system: Option<String>,
    pub(crate) tools: Vec<String>,
    pub(crate) mcp: Vec<ServerSettings>,
    /// Names of the tools whose calls run in the background.
    pub(crate) background: Vec<String>,
    pub(crate) ask: bool,
    /// If set, a call that needs approval parks the run.
    pub(crate) park: Option<ParkSettings>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) verify: Option<String>,
    pub(crate) context_window: Option<u64>,
    pub(crate) no_stream: bool,
    pub(crate) params: ParamSettings,
    pub(crate) price: Option<Price>,
    pub(crate) limits: Limits,
    pub(crate) policy: Option<BoxPolicy>,
    /// The runs for which the promise of a calibrated rule was made.
    pub(crate) calibrated: Option<Calibrated>,
    /// The watch rules; `None` means the default rules.
    pub(crate) watches: Option<Vec<Watch>>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) journal: Option<PathBuf>,
    /// The project whose ceilings apply.
    pub(crate) project: Option<String>,
    /// The ceilings per day.
    pub(crate) spend: SpendSettings,
    pub(crate) compaction: CompactionConfig,
    /// `true` if a recording is replayed (`--replay`).
    pub(crate) replay: bool,
    pub(crate) allow_http: bool,
    pub(crate) http: HttpSettings,
    /// The agents of `endstop serve`, by name, each with the settings that differ from these.
    pub(crate) agents: BTreeMap<String, Value>,
    /// The journal that stores the run. Settings stored there carry a seal that marks them as the
    /// user's own.
    pub(crate) stored_in: Option<PathBuf>,
    /// The origin of each value, by name: `model`, `limits.max_turns`, `mcp.files`. A name that is
    /// missing has its default value.
    pub(crate) origins: BTreeMap<String, Origin>,
}

/// The settings that a journal stores, so that the run can be resumed.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fallback: Vec<String>,
    pub(super) api: Option<String>,
    pub(super) base_url: Option<String>,
    pub(super) tools: Vec<String>,
    #[serde(default)]
    pub(super) mcp: Vec<ServerSettings>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) background: Vec<String>,
    pub(super) ask: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) park: Option<ParkSettings>,
    pub(super) dir: Option<PathBuf>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) verify: Option<String>,
    pub(super) context_window: Option<u64>,
    pub(super) no_stream: bool,
    pub(super) price: Option<Price>,
    /// Spelled as in configuration; `None` means the default.
    #[serde(default)]
    pub(super) compaction: Option<Value>,
    /// `true` if the run was replayed from a recording, without a server.
    #[serde(default)]
    pub(super) replay: bool,
    #[serde(default)]
    pub(super) allow_http: bool,
    #[serde(default, skip_serializing_if = "HttpSettings::is_empty")]
    pub(super) http: HttpSettings,
    /// Without headers, whose values are not stored.
    #[serde(default, skip_serializing_if = "ModelParams::is_empty")]
    pub(super) params: ModelParams,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) calibrated: Option<Calibrated>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<String>,
    #[serde(default, skip_serializing_if = "SpendSettings::is_empty")]
    pub(super) spend: SpendSettings,
}

impl Settings {
    /// Returns the settings to store in the journal. The journal stores the others (limits, policy,
    /// schema) in the run's header.
    pub(crate) fn saved(&self) -> Value {
        let saved = Saved {
            model: self.model.clone(),
            fallback: self.fallback.clone(),
            api: self.api.clone(),
            base_url: self.base_url.clone(),
            tools: self.tools.clone(),
            mcp: self.mcp.iter().map(ServerSettings::saved).collect(),
            background: self.background.clone(),
            ask: self.ask,
            park: self.park,
            // Stored as an absolute path, because the run may be resumed from another folder.
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
            replay: self.replay,
            allow_http: self.allow_http,
            http: self.http.saved(),
            params: self.params.params.clone(),
            calibrated: self.calibrated.clone(),
            project: self.project.clone(),
            spend: self.spend.clone(),
        };
        let mut saved = serde_json::to_value(saved).unwrap_or_default();
        // The seal covers everything that a resume would execute or contact, so it is computed
        // last.
        let seal = self.stored_in.as_deref().and_then(|journal| seal::of(&saved, journal));
        if let (Some(seal), Some(members)) = (seal, saved.as_object_mut()) {
            members.insert(seal::MEMBER.to_owned(), seal.into());
        }
        saved
    }

    /// Builds the MCP servers, with variables expanded.
    ///
    /// # Errors
    /// Names the server whose variable is not set.
    pub(crate) fn servers(&self) -> Result<Vec<McpServer>> {
        let build = |one: &ServerSettings| {
            one.server(self.dir.as_deref(), self.allow_http)
                .map_err(|problem| Failure::usage(format!("MCP server `{}`: {problem}", one.name)))
        };
        self.mcp.iter().map(build).collect()
    }

    /// Returns the verifier that runs after the run. With rounds it runs before, as part of the run.
    pub(crate) fn verify_after(&self) -> Option<String> {
        self.verify.clone().filter(|_| self.limits.verify_rounds.is_none())
    }

    /// Returns the journal that the folder's file or the `--config` file names. It overrides the
    /// environment, unlike the journal in the user's own file.
    pub(crate) fn folder_journal(&self) -> Option<&Path> {
        let own = matches!(self.origins.get("journal"), Some(Origin::User(_)));
        self.journal.as_deref().filter(|_| !own)
    }

    /// Merges the flags into the settings.
    pub(crate) fn above(&mut self, args: &RunArgs) -> Result<()> {
        let settings = self;
        for (name, flag) in flags::given(args) {
            settings.origins.insert(name, Origin::Flag(flag));
        }
        let take = |own: &mut Option<String>, flag: &Option<String>| {
            if flag.is_some() {
                own.clone_from(flag);
            }
        };
        take(&mut settings.model, &args.model);
        if !args.fallback.is_empty() {
            settings.fallback = fallbacks(&args.fallback)
                .map_err(|problem| Failure::usage(format!("--fallback: {problem}")))?;
        }
        take(&mut settings.api, &args.api);
        take(&mut settings.base_url, &args.base_url);
        take(&mut settings.system, &args.system);
        if let Some(command) = &args.verify {
            let command = verifier(command.clone());
            settings.verify =
                Some(command.map_err(|problem| Failure::usage(format!("--verify: {problem}")))?);
        }
        take(&mut settings.project, &args.project);
        if let Some(text) = &args.price {
            // The error already begins with `price:`, so that `--` in front makes it the flag's
            // name.
            let price = parse_price(text).map_err(|error| Failure::usage(format!("--{error}")))?;
            settings.price = Some(price);
        }
        if !args.tools.is_empty() {
            // Checked here, so that the error names the flag and not the file.
            known_tools("--tool", &args.tools)?;
            settings.tools.clone_from(&args.tools);
        }
        if !args.background.is_empty() {
            settings.background.clone_from(&args.background);
        }
        for flag in &args.mcp {
            let server = ServerSettings::of_flag(flag)?;
            // A flag replaces the server of the same name instead of adding to it, so that a file's
            // command is never combined with a flag's address.
            settings.mcp.retain(|other| other.name != server.name);
            settings.mcp.push(server);
        }
        settings.replay = args.replay.is_some();
        park_above(&mut settings.ask, &mut settings.park, args)?;
        // Combined with `or`, because these flags can only switch something on.
        settings.allow_http |= args.allow_http;
        settings.no_stream |= args.no_stream;
        settings.params.above(&args.params)?;
        settings.http.above(&args.http)?;
        settings.dir = args.dir.clone().or_else(|| settings.dir.take());
        settings.max_output_tokens = args.max_output_tokens.or(settings.max_output_tokens);
        settings.context_window = args.context_window.or(settings.context_window);
        settings.limits_above(args)?;
        if let Some(text) = &args.compact {
            // The flag sets only the strategies; the other compaction settings stay those of the
            // file.
            let said = CompactionConfig::read(&Value::String(text.clone()))
                .map_err(|problem| Failure::usage(format!("--compact: {problem}")))?;
            settings.compaction.strategies = said.strategies;
        }
        if let Some(spec) = &args.policy {
            settings.policy = Some(policy(spec)?);
        }
        settings.watches_above(args)?;
        if let Some(path) = &args.output_schema {
            settings.output_schema = Some(schema_in(path)?);
        }
        Ok(())
    }

    fn limits_above(&mut self, args: &RunArgs) -> Result<()> {
        for (name, text) in args.limits.given() {
            // Numbers and switches parse as JSON; other values (10m, off) do not and stay strings.
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            self.limits.set(name, &value).map_err(|error| {
                Failure::usage(format!("--{}: {}", name.replace('_', "-"), error.problem))
            })?;
        }
        Ok(())
    }

    fn watches_above(&mut self, args: &RunArgs) -> Result<()> {
        if args.watches.iter().any(|word| word == "off") {
            self.watches = Some(Vec::new());
        }
        for word in args.watches.iter().filter(|word| *word != "off") {
            let watch = Watch::parse(word)
                .map_err(|problem| Failure::usage(format!("--watch {word}: {problem}")))?;
            let watches = self.watches.get_or_insert_with(Watch::defaults);
            // The flag overrides an entry of the same rule from the defaults or a file.
            watches.retain(|other| other.rule.name() != watch.rule.name());
            watches.push(watch);
        }
        Ok(())
    }

    /// Merges one entry of a settings file; `name` is the file's name for errors.
    pub(crate) fn take(&mut self, entry: &Entry, name: &str) -> Result<()> {
        let value = &entry.value;
        let (key, member) = entry.parts();
        let member = member.unwrap_or_default();
        let wrong = |what: &str| Failure::usage(format!("{name}: `{}`: {what}", shown(key)));
        // Quoted text comes from the file and may hold control characters.
        let in_table = |problem: String| {
            let table = if key == "mcp" { format!("mcp.{member}") } else { key.to_owned() };
            Failure::usage(format!("{name}: {}", shown(&format!("[{table}]: {problem}"))))
        };
        let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong("expected a string"));
        let tokens = || {
            let tokens = value.as_u64().filter(|tokens| *tokens > 0);
            tokens.ok_or_else(|| wrong("expected a whole number of tokens, 1 or more"))
        };
        let switch = || value.as_bool().ok_or_else(|| wrong("expected true or false"));
        match key {
            "model" => self.model = Some(text()?),
            "fallback" => {
                let names = match value.as_str() {
                    Some(name) => Some(vec![name.to_owned()]),
                    None => names_in(value),
                };
                let names = names.ok_or_else(|| wrong("expected a list of models"))?;
                self.fallback = fallbacks(&names).map_err(|problem| wrong(&problem))?;
            }
            "api" => self.api = Some(text()?),
            "base_url" => self.base_url = Some(text()?),
            "allow_http" => self.allow_http = switch()?,
            "system" => self.system = Some(text()?),
            "verify" => self.verify = Some(verifier(text()?).map_err(wrong)?),
            "price" => {
                let text = price_text(value).ok_or_else(|| wrong(PRICE_EXPECTED))?;
                let price = parse_price(&text).map_err(|error| {
                    Failure::usage(format!("{name}: {}", shown(&error.to_string())))
                })?;
                self.price = Some(price);
            }
            "journal" => self.journal = Some(text()?.into()),
            "project" => {
                self.project = Some(project(&text()?).map_err(|problem| wrong(&problem))?);
            }
            "spend" => self.spend.take(member, value).map_err(in_table)?,
            "dir" => self.dir = Some(text()?.into()),
            "ask" => self.ask = switch()?,
            "stream" => self.no_stream = !switch()?,
            "max_output_tokens" => self.max_output_tokens = Some(tokens()?),
            "context_window" => self.context_window = Some(tokens()?),
            "tools" => {
                self.tools =
                    names_in(value).ok_or_else(|| wrong("expected a list of tool names"))?;
                known_tools(&format!("{name}: `tools`"), &self.tools)?;
            }
            "background" => {
                self.background =
                    names_in(value).ok_or_else(|| wrong("expected a list of tool names"))?;
            }
            "mcp" => {
                let read = ServerSettings::of_table(member, value).map_err(in_table)?;
                self.mcp.retain(|other| other.name != read.name);
                self.mcp.push(read);
            }
            "http" => self.http.take(member, value).map_err(in_table)?,
            "agents" => self.take_agent(member, value, name)?,
            "params" => self.params.take(member, value).map_err(in_table)?,
            "limits" => {
                let set = self.limits.set(member, value);
                set.map_err(|error| in_table(error.to_string()))?;
            }
            "compaction" => {
                self.compaction = compaction_over(&self.compaction, value).map_err(in_table)?;
            }
            "policy" => {
                let policy = Registry::default().build(value);
                self.policy = Some(policy.map_err(|error| in_table(error.to_string()))?);
            }
            "watch" => {
                self.watches =
                    Some(Watch::read(value).map_err(|error| in_table(error.to_string()))?);
            }
            "calibrated" => {
                self.calibrated = Some(Calibrated::read(value).map_err(in_table)?);
            }
            limit if Limits::NAMES.contains(&limit) => {
                return Err(wrong(&format!(
                    "a limit belongs to the table [limits]; write `{limit} = …` below it"
                )));
            }
            _ => return Err(wrong(&shown(&unknown(key)))),
        }
        Ok(())
    }
}

impl Settings {
    /// Merges the table of an agent, `[agents.NAME]`. A later file replaces the whole agent, so that
    /// a file's command is never combined with the tools of another.
    fn take_agent(&mut self, agent: &str, value: &Value, file: &str) -> Result<()> {
        let wrong = |problem: String| {
            Failure::usage(format!("{file}: {}", shown(&format!("[agents.{agent}]: {problem}"))))
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if agent.is_empty() || agent.len() > 64 || !agent.bytes().all(plain) {
            let expected = "expected a name of 1 to 64 ASCII letters, digits, `-` or `_`";
            return Err(wrong(expected.to_owned()));
        }
        // Read once without effect, so that an error is reported when the file is read.
        Settings::default().take_all_of(agent, value, file)?;
        self.agents.insert(agent.to_owned(), value.clone());
        Ok(())
    }

    /// Returns these settings with those of an agent over them; `file` is the file's name for
    /// errors.
    pub(crate) fn of_agent(&self, agent: &str, file: &str) -> Result<Settings> {
        let mut settings = self.clone();
        if let Some(value) = self.agents.get(agent) {
            settings.take_all_of(agent, value, file)?;
        }
        Ok(settings)
    }

    fn take_all_of(&mut self, agent: &str, value: &Value, file: &str) -> Result<()> {
        let wrong = |problem: &str| {
            Failure::usage(format!("{file}: {}", shown(&format!("[agents.{agent}]: {problem}"))))
        };
        let table = value.as_object().cloned().ok_or_else(|| wrong("expected a table"))?;
        let entries = Entry::all_of(table).map_err(|problem| wrong(&problem))?;
        for entry in &entries {
            if matches!(entry.parts().0, "agents" | "journal" | "calibrated" | "spend") {
                let problem = format!("`{}` does not belong to an agent", entry.name);
                return Err(wrong(&problem));
            }
            self.take(entry, &format!("{file}: [agents.{agent}]"))?;
        }
        Ok(())
    }
}

/// The forms that `price` can have, for errors.
const PRICE_EXPECTED: &str =
    "expected a string such as \"in=3,out=15\" or a table of prices in dollars";

/// Returns the strings of a list; `None` if the value is anything else.
fn names_in(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Describes a key that no setting has.
fn unknown(key: &str) -> String {
    let known: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
    endstop::core::limits::unknown_key(key, &known)
}

/// `true` if `--resume` can continue the run: its settings name a model or a server, and it was not
/// replayed from a recording.
pub(crate) fn is_resumable(header: &RunHeader) -> bool {
    serde_json::from_value::<Saved>(header.settings.clone())
        .is_ok_and(|saved| !saved.replay && (saved.model.is_some() || saved.base_url.is_some()))
}

/// Merges the compaction settings of a file over the known ones: a table changes only the keys that
/// it names.
///
/// # Errors
/// Describes the invalid value.
pub(crate) fn compaction_over(
    own: &CompactionConfig,
    value: &Value,
) -> std::result::Result<CompactionConfig, String> {
    // The file's value is parsed alone first, so that an error names what the file wrote and not a
    // merged value.
    let read = |value: &Value| CompactionConfig::read(value).map_err(|error| error.to_string());
    read(value)?;
    let Ok(Value::Object(mut all)) = serde_json::to_value(own) else {
        return read(value);
    };
    match value {
        Value::Object(table) => all.extend(table.clone()),
        strategies => drop(all.insert("strategies".to_owned(), strategies.clone())),
    }
    read(&Value::Object(all))
}

/// Checks a list of fallback models; a single `off` is the empty list.
fn fallbacks(models: &[String]) -> std::result::Result<Vec<String>, String> {
    if models == ["off"] {
        return Ok(Vec::new());
    }
    match models.iter().find(|model| !model.contains('/') || model.trim() != model.as_str()) {
        Some(wrong) => Err(format!(
            "invalid model `{}`: expected PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5, or only `off`",
            shown(wrong)
        )),
        None => Ok(models.to_vec()),
    }
}

/// Converts a price to the form of `--price`: a string is taken as it is, a table is joined.
fn price_text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    // Formatted by `Display`, because JSON writes small numbers with an exponent, which `--price`
    // does not accept.
    let field = |(name, dollars): (&String, &Value)| {
        let dollars =
            dollars.as_i64().map(|n| n.to_string()).or(dollars.as_f64().map(|n| n.to_string()));
        Some(format!("{name}={}", dollars?))
    };
    Some(value.as_object()?.iter().map(field).collect::<Option<Vec<_>>>()?.join(","))
}

/// Refuses unknown tool names; `place` is the key or flag that the error names.
fn known_tools(place: &str, names: &[String]) -> Result<()> {
    // `finish` is added with any tool and has no built-in entry, but naming it is allowed.
    for name in names.iter().filter(|name| *name != "finish") {
        endstop::tool::built_in(name).map_err(|problem| {
            Failure::usage(format!("{place}: {}", shown(&problem.to_string())))
        })?;
    }
    Ok(())
}

/// Reads the schema of `--output-schema`.
fn schema_in(path: &Path) -> Result<Value> {
    let source = Source::of(Some(path));
    let wrong =
        |problem: String| Failure::usage(format!("--output-schema {}: {problem}", source.name()));
    let schema = source
        .json()
        .map_err(|error| Failure::usage(format!("--output-schema {}", error.message)))?;
    OutputSchema::new(schema.clone()).map_err(|error| wrong(error.to_string()))?;
    Ok(schema)
}

/// Reads the policy of `--policy`: a TOML file, or text that the registry parses.
pub(crate) fn policy(spec: &str) -> Result<BoxPolicy> {
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

/// Checks the command of a verifier.
fn verifier(command: String) -> std::result::Result<String, &'static str> {
    if CommandVerifier::new(&command).is_blank() {
        return Err("the command is blank, so it would accept every answer; set a command");
    }
    Ok(command)
}

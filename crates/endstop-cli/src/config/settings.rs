//! The settings of a run: one table, from which the struct, the flags, the keys of settings files, the rules for files
//! without consent, the settings in a journal, and the list of `endstop config show` come.
//!
//! A new setting is a row, and a test. Every error names the file and the key. Which files are read is decided in
//! `config::trust`.

use crate::config::http::{HttpSettings, HttpTable};
use crate::config::kinds::{
    Agents, BuiltInTool, Calibration, Compaction, Fallback, Folder, Journal, NoStream, Policy,
    PriceText, Project, Replayed, Schema, Verifier, Watches, not_shown, without_credential,
    without_secrets,
};
use crate::config::limits::LimitTable;
use crate::config::params::{ParamSettings, ParamTable};
use crate::config::park::{Ask, Park, merge};
use crate::config::servers::{ServerSettings, Servers};
use crate::config::setting::{
    ACP, AGENT, AnyTool, Apply, BRANCH, Consent, FILE, Flag, FlagValue, GUARD, Heading, Kind, List,
    Members, One, Problem, RUN, Row, Stored, Switch, Text, Tokens, Trust, as_json, brief, flag,
    given, one, read,
};
use crate::config::spend::{SpendSettings, SpendTable};
use crate::config::trust::file::Entry;
use crate::config::trust::tighten;
use crate::config::trust::{Origin, seal, shown};
use crate::failure::{Failure, Result};
use clap::ArgMatches;
use endstop::Limits;
use endstop::agent::AgentBuilder;
use endstop::core::limits::unknown_key;
use endstop::journal::RunHeader;
use endstop::mcp::McpServer;
use endstop::verifier::CommandVerifier;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Generates [`Settings`], [`SettingArgs`] and [`ROWS`] from the rows.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $kind:ty, {
            key: $key:expr,
            flag: $flag:expr,
            commands: $commands:expr,
            trust: $trust:expr,
            stored: $stored:expr,
            show: $show:expr,
            apply: $apply:expr,
        }
    )+) => {
        /// The merged settings of a run.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Settings {
            $(
                $(#[doc = $doc])+
                pub(crate) $name: <$kind as Kind>::Own,
            )+
            /// The journal that stores the run. Settings stored there carry a seal that marks them as the
            /// user's own.
            pub(crate) stored_in: Option<PathBuf>,
            /// The origin of each value, by name: `model`, `limits.max_turns`, `mcp.files`. A name that is
            /// missing has its default value.
            pub(crate) origins: BTreeMap<String, Origin>,
        }

        /// The values of the flags.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct SettingArgs {
            $(
                $(#[doc = $doc])+
                pub(crate) $name: <$kind as Kind>::Flag,
            )+
        }

        impl SettingArgs {
            /// Reads the flags that a command has.
            pub(crate) fn read(matches: &ArgMatches, command: u8) -> SettingArgs {
                SettingArgs { $($name: read::<$kind>(matches, stringify!($name), command)),+ }
            }
        }

        /// All settings, in the order in which they are shown.
        pub(crate) static ROWS: [Row; [$(stringify!($name)),+].len()] = [$(Row {
            name: stringify!($name),
            key: $key,
            help: concat!($($doc, "\n"),+),
            flag: $flag,
            commands: $commands,
            trust: $trust,
            stored: $stored,
            apply: $apply,
            take: |settings, member, value| <$kind>::take(&mut settings.$name, member, value),
            above: |settings, args, flag| <$kind>::above(&mut settings.$name, &args.$name, flag),
            args: |row, command| {
                <<$kind as Kind>::Flag as FlagValue>::args(row, command, <$kind>::arg)
            },
            given: |args, row| args.$name.given(row),
            json: |settings| <$kind>::json(&settings.$name),
            shown: |settings| {
                let show: fn(&<$kind as Kind>::Own) -> Members = $show;
                show(&settings.$name)
            },
            save: |settings| <$kind>::save(&settings.$name),
            restore: |settings, stored| <$kind>::restore(&mut settings.$name, stored),
        }),+];
    };
}

settings! {
    /// The model, as PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5, gemini/gemini-2.5-flash or
    /// ollama/qwen3.
    model: One<Text>, {
        key: Some("model"),
        flag: Some(Flag { short: Some('m'), ..brief("model", "MODEL", Heading::Model) }),
        commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::Never), show: as_json,
        // The builder of the provider begins with it.
        apply: Apply::Command,
    }
    /// A model, as PROVIDER/MODEL, that the run calls after the one before has failed: after all retries on a
    /// rate limit, an overloaded server or a server error, or if the model is not found. May be repeated; `off`
    /// removes those of the settings.
    fallback: List<Fallback>, {
        key: Some("fallback"), flag: Some(flag("fallback", "MODEL", Heading::Model)), commands: RUN | BRANCH | AGENT,
        // Another host that receives the conversation, with its own price.
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::IfOther), show: as_json, apply: Apply::Command,
    }
    /// The wire format, if it is not the provider's default: openai-chat, openai-responses, anthropic-messages,
    /// gemini, bedrock-converse, bedrock-invoke, cohere-v2 or ollama.
    api: One<Text>, {
        key: Some("api"), flag: Some(flag("api", "API", Heading::Model)), commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::Never), show: as_json,
        apply: Apply::Server(|builder, settings| match &settings.api {
            Some(value) => builder.api(value),
            None => builder,
        }),
    }
    /// The address of an OpenAI-compatible server or, with --api, of a server that speaks that format. It
    /// receives the key of the model's provider, or else the key of the format (for example OPENAI_API_KEY).
    base_url: One<Text>, {
        key: Some("base_url"),
        flag: Some(flag("base-url", "BASE_URL", Heading::Model)),
        commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::IfSet), show: without_credential,
        apply: Apply::Server(|builder, settings| match &settings.base_url {
            Some(value) => builder.base_url(value),
            None => builder,
        }),
    }
    /// Send keys and headers over http:// to another machine, even though the connection is not encrypted.
    allow_http: Switch, {
        key: Some("allow_http"),
        flag: Some(flag("allow-http", "", Heading::Model)),
        commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Only(false), stored: Stored::Always(Consent::AsFile), show: as_json,
        apply: Apply::Server(|builder, settings| builder.allow_http(settings.allow_http)),
    }
    /// The connection to the model's server.
    http: HttpTable, {
        key: Some("http"), flag: Some(flag("", "", Heading::Model)), commands: RUN | BRANCH | ACP | AGENT,
        // A proxy and an authority see the conversation and the key, or can.
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::IfOther), show: HttpSettings::shown,
        apply: Apply::Command,
    }
    /// Instructions for the model.
    system: One<Text>, {
        key: Some("system"),
        flag: Some(Flag {
            elsewhere: &[(BRANCH, "Other instructions for the model; they need --accept-changes")],
            ..flag("system", "SYSTEM", Heading::Model)
        }),
        commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Nothing,
        stored: Stored::Header(
            |settings, run| {
                settings.system.clone_from(&run.header.system);
                Ok(())
            },
            Consent::Never,
        ),
        show: without_secrets,
        apply: Apply::Agent(|agent, settings| match &settings.system {
            Some(system) => agent.system(system),
            None => agent,
        }),
    }
    /// A tool that the model may use: shell, read_file, write_file. May be repeated.
    tools: List<BuiltInTool>, {
        key: Some("tools"),
        flag: Some(Flag {
            elsewhere: &[
                (
                    BRANCH,
                    "A tool that the model may use, instead of those of the run; needs --accept-changes. May be \
                     repeated",
                ),
                (
                    ACP,
                    "A tool that the model may use: shell, read_file, write_file. May be repeated. [default: \
                     the tools of the settings, or all three]",
                ),
            ],
            ..brief("tool", "NAME", Heading::Tools)
        }),
        commands: RUN | BRANCH | ACP | AGENT,
        // Also for an empty list, because only the user knows which tools the run needs.
        trust: Trust::Nothing, stored: Stored::Always(Consent::IfSet), show: as_json, apply: Apply::Command,
    }
    /// A tool whose calls run in the background: the model gets a handle at once, and the result in a message
    /// when the call has ended. May be repeated.
    background: List<AnyTool>, {
        key: Some("background"), flag: Some(flag("background", "TOOL", Heading::Tools)), commands: RUN | AGENT,
        // A background call runs longer than a call that the run waits for.
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::Never), show: as_json,
        apply: Apply::Agent(|agent, settings| {
            settings.background.iter().fold(agent, AgentBuilder::background)
        }),
    }
    /// An MCP server whose tools the model may use: NAME=COMMAND, for the shell, or NAME=https://… May be
    /// repeated; set keys and headers in endstop.toml.
    mcp: Servers, {
        key: Some("mcp"),
        flag: Some(Flag {
            elsewhere: &[(
                ACP,
                "An MCP server whose tools the model may use, in addition to those of the editor: NAME=COMMAND, \
                 for the shell, or NAME=https://… May be repeated",
            )],
            ..flag("mcp", "SERVER", Heading::Tools)
        }),
        commands: RUN | ACP | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::EachServer), show: Servers::shown,
        apply: Apply::Command,
    }
    /// Ask before each tool call: on the terminal, or with `park`: store the request in the journal, and exit
    /// with status 75. `endstop answer` decides, and --resume continues [default: terminal].
    ask: Ask, {
        key: Some("ask"),
        flag: Some(Flag {
            elsewhere: &[(
                BRANCH,
                "Ask before each tool call: on the terminal, or with `park`: store the request in the journal, \
                 and exit with status 75",
            )],
            ..brief("ask", "HOW", Heading::Tools)
        }),
        commands: RUN | BRANCH | AGENT,
        trust: Trust::Only(true), stored: Stored::Always(Consent::AsFile), show: as_json, apply: Apply::Command,
    }
    /// With --ask park: the time after which a request counts as denied by timeout; for example 1h
    /// [default: never].
    park: Park, {
        key: None, flag: Some(flag("park-expiry", "TIME", Heading::Tools)), commands: RUN,
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::Never), show: not_shown, apply: Apply::Command,
    }
    /// The folder that tools work in; it is not a sandbox.
    dir: Folder, {
        key: Some("dir"), flag: Some(brief("dir", "DIR", Heading::Tools)), commands: RUN | BRANCH | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::Judged(Folder::consent)), show: |dir| one(Folder::json(dir)),
        apply: Apply::Agent(|agent, settings| match &settings.dir {
            Some(dir) => agent.working_dir(dir),
            None => agent,
        }),
    }
    /// The output cap of each model call, in tokens.
    max_output_tokens: Tokens, {
        key: Some("max_output_tokens"),
        flag: Some(brief("max-output-tokens", "N", Heading::Params)),
        commands: RUN | BRANCH | ACP | AGENT,
        trust: Trust::Lower, stored: Stored::Always(Consent::AsFile), show: as_json,
        apply: Apply::Agent(|agent, settings| match settings.max_output_tokens {
            Some(tokens) => agent.max_output_tokens(tokens),
            None => agent,
        }),
    }
    /// A command that checks the work after the run has succeeded. With --verify-rounds, its output goes back to
    /// the model if it fails.
    verify: One<Verifier>, {
        key: Some("verify"),
        flag: Some(Flag {
            elsewhere: &[
                (ACP, "A command that checks the work before a run may end with success; needs --verify-rounds"),
                (GUARD, "A command that checks the work after the run has succeeded"),
            ],
            ..brief("verify", "CMD", Heading::Judging)
        }),
        commands: RUN | BRANCH | ACP | GUARD | AGENT,
        trust: Trust::Nothing, stored: Stored::Always(Consent::IfSet), show: without_secrets,
        // Without rounds the verifier runs after the run, and only its exit status matters.
        apply: Apply::Agent(|agent, settings| match settings.limits.verify_rounds {
            Some(_) => settings.verified_by(agent),
            None => agent,
        }),
    }
    /// The model's context window, in tokens; it is also sent to Ollama.
    context_window: Tokens, {
        key: Some("context_window"),
        flag: Some(flag("context-window", "N", Heading::Model)),
        commands: RUN | BRANCH | ACP | AGENT,
        // A larger window postpones compaction; a smaller one changes the model that a local server loads.
        trust: Trust::Nothing, stored: Stored::Always(Consent::Never), show: as_json,
        apply: Apply::Server(|builder, settings| match settings.context_window {
            Some(value) => builder.context_window(value),
            None => builder,
        }),
    }
    /// Request whole responses instead of streams.
    no_stream: NoStream, {
        key: Some("stream"), flag: Some(flag("no-stream", "", Heading::Params)), commands: RUN | ACP | AGENT,
        // Without a stream no policy can stop a turn before it is complete.
        trust: Trust::Only(true), stored: Stored::Always(Consent::Never), show: |own| one(NoStream::json(own)),
        apply: Apply::Command,
    }
    /// The journal file that stores runs, or `off` [default: journal.db in the user's state folder].
    journal: Journal, {
        key: Some("journal"),
        flag: Some(Flag {
            elsewhere: &[(
                BRANCH,
                "The journal file, which also stores the branch [default: journal.db in the user's state folder]",
            )],
            ..flag("journal", "FILE", Heading::Journal)
        }),
        commands: RUN | BRANCH | ACP | GUARD,
        trust: Trust::Nothing, stored: Stored::No, show: Journal::shown, apply: Apply::Command,
    }
    /// The model's price in US dollars per million tokens: in=3,out=15, optionally with cached=0.3,
    /// cache_write=3.75 and cache_write_1h=6 (cache entries that live for an hour).
    price: One<PriceText>, {
        key: Some("price"),
        flag: Some(Flag {
            elsewhere: &[(GUARD, "The price of all models, in US dollars per million tokens: in=3,out=15")],
            ..flag("price", "PRICE", Heading::Journal)
        }),
        commands: RUN | BRANCH | ACP | GUARD | AGENT,
        // The price determines when a budget is spent.
        trust: Trust::Nothing, stored: Stored::Always(Consent::IfOther), show: as_json,
        apply: Apply::Server(|builder, settings| match settings.price {
            Some(value) => builder.price(value),
            None => builder,
        }),
    }
    /// The project of the run: its ceilings per day apply ([spend.projects.NAME] in a settings file), and
    /// `endstop spend` lists it.
    project: One<Project>, {
        key: Some("project"), flag: Some(flag("project", "NAME", Heading::Journal)), commands: RUN | BRANCH | AGENT,
        // It adds the ceilings of a project to those of all runs, unless the user chose a project.
        trust: Trust::IfNoOther, stored: Stored::IfSet(Consent::Never), show: as_json, apply: Apply::Command,
    }
    /// The ceilings per day.
    spend: SpendTable, {
        key: Some("spend"), flag: None, commands: FILE,
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::Never), show: SpendSettings::shown,
        apply: Apply::Command,
    }
    /// Parameters of the model's requests.
    params: ParamTable, {
        key: Some("params"), flag: Some(flag("", "", Heading::Params)), commands: RUN | BRANCH | ACP | AGENT,
        // A parameter changes the model's work and its cost, and a header may be a credential.
        trust: Trust::Nothing, stored: Stored::IfSet(Consent::IfOther), show: ParamSettings::members,
        apply: Apply::Command,
    }
    /// The limits.
    limits: LimitTable, {
        key: Some("limits"), flag: Some(brief("", "", Heading::Limits)), commands: RUN | BRANCH | ACP | GUARD | AGENT,
        trust: Trust::Judged(tighten::loosens_limits),
        stored: Stored::Header(
            |settings, run| {
                settings.limits = run.limits();
                Ok(())
            },
            Consent::Judged(LimitTable::consent),
        ),
        show: LimitTable::shown,
        apply: Apply::Agent(|agent, settings| agent.limits(settings.limits.clone())),
    }
    /// A termination policy: a name, NAME={json config}, a JSON object, or a TOML file.
    policy: Policy, {
        key: Some("policy"),
        flag: Some(flag("policy", "SPEC", Heading::Judging)),
        commands: RUN | BRANCH | ACP | GUARD | AGENT,
        trust: Trust::IfNone,
        stored: Stored::Header(
            |settings, run| match &run.header.policy {
                Some(spec) => Policy::restore(&mut settings.policy, spec),
                None => Ok(()),
            },
            Consent::Never,
        ),
        show: |policy| one(Policy::json(policy)),
        apply: Apply::Agent(|agent, settings| match &settings.policy {
            Some(policy) => agent.policy(policy.clone()),
            None => agent,
        }),
    }
    /// A rule that watches the run, and what it does when it fires (observe, warn, nudge, stop), for example
    /// stop:stuck or warn:repeat_call={"times":4}; or `off`. May be repeated; `endstop policies` lists the rules.
    /// [default: observe:stuck]
    watches: Watches, {
        key: Some("watch"),
        flag: Some(Flag {
            elsewhere: &[(
                GUARD,
                "A rule that watches each conversation, for example stop:stuck; or `off`. May be repeated. \
                 [default: observe:stuck]",
            )],
            ..flag("watch", "MODE:RULE", Heading::Judging)
        }),
        commands: RUN | BRANCH | ACP | GUARD | AGENT,
        trust: Trust::Judged(tighten::weakens_watches),
        stored: Stored::Header(
            |settings, run| {
                // Always set, because the default rules of this version may differ from those of the run.
                settings.watches = Some(run.header.spec.watches.clone());
                Ok(())
            },
            Consent::Never,
        ),
        show: Watches::shown,
        apply: Apply::Agent(|agent, settings| match &settings.watches {
            Some(watches) => agent.watches(watches.clone()),
            None => agent,
        }),
    }
    /// A file with the JSON Schema that the answer must satisfy.
    output_schema: Schema, {
        key: None, flag: Some(flag("output-schema", "FILE", Heading::Judging)), commands: RUN,
        trust: Trust::Nothing,
        stored: Stored::Header(
            |settings, run| {
                settings.output_schema.clone_from(&run.header.output_schema);
                Ok(())
            },
            Consent::Never,
        ),
        show: not_shown,
        apply: Apply::Agent(|agent, settings| match &settings.output_schema {
            Some(schema) => agent.output_schema(schema.clone()),
            None => agent,
        }),
    }
    /// The runs for which the promise of a calibrated rule was made.
    calibrated: Calibration, {
        key: Some("calibrated"), flag: None, commands: FILE,
        // It only describes where the file comes from.
        trust: Trust::Anything, stored: Stored::IfSet(Consent::Never), show: Calibration::shown,
        apply: Apply::Command,
    }
    /// Strategies that shorten the conversation if the context window is known and nearly full, or if the prompt
    /// was refused as too long: on, off, or strategies in order, for example elide,drop,summarise [default: on].
    compaction: Compaction, {
        key: Some("compaction"), flag: Some(flag("compact", "HOW", Heading::Params)), commands: RUN | ACP | AGENT,
        trust: Trust::Judged(tighten::compacts_less), stored: Stored::Always(Consent::AsFile), show: as_json,
        apply: Apply::Agent(|agent, settings| agent.compaction(&settings.compaction)),
    }
    /// The agents that clients can start.
    agents: Agents, {
        key: Some("agents"), flag: None, commands: FILE,
        // An agent has its own tools and commands, and clients of `endstop serve` can start it.
        trust: Trust::Nothing, stored: Stored::No, show: not_shown, apply: Apply::Command,
    }
    /// Replay a file written by --record, without a network or a key. The task is the recorded one unless another
    /// is given; tools run for real and must be given again. If the run differs from the recorded one, the exit
    /// status is 2.
    replay: Replayed, {
        key: None, flag: Some(flag("replay", "FILE", Heading::Recording)), commands: RUN,
        trust: Trust::Nothing, stored: Stored::Always(Consent::Never), show: not_shown, apply: Apply::Command,
    }
}

impl Settings {
    /// Returns the settings to store in the journal. The journal stores the others (limits, policy,
    /// schema) in the run's header.
    pub(crate) fn saved(&self) -> Value {
        let mut saved = Map::new();
        for row in &ROWS {
            let value = (row.save)(self);
            match row.stored {
                Stored::Always(_) => drop(saved.insert(row.name.to_owned(), value)),
                // Not an empty table, which stands for defaults, such as those of a parked run.
                Stored::IfSet(_) if !value.is_null() && value != Value::Array(Vec::new()) => {
                    saved.insert(row.name.to_owned(), value);
                }
                Stored::IfSet(_) | Stored::Header(..) | Stored::No => {}
            }
        }
        let mut saved = Value::Object(saved);
        // The seal covers everything that a resume would execute or contact, so it is computed
        // last.
        let seal = self.stored_in.as_deref().and_then(|journal| seal::of(&saved, journal));
        if let (Some(seal), Some(members)) = (seal, saved.as_object_mut()) {
            members.insert(seal::MEMBER.to_owned(), seal.into());
        }
        saved
    }

    /// Reads the settings that a journal stored. `None` if they are not those of `endstop run`.
    ///
    /// # Errors
    /// Names the setting that cannot be read.
    pub(crate) fn restored(stored: &Value) -> Option<Result<Settings, String>> {
        let stored = stored.as_object()?;
        let mut settings = Settings::default();
        for row in &ROWS {
            let value = match (row.stored, stored.get(row.name)) {
                (Stored::Always(_) | Stored::IfSet(_), Some(value)) => value,
                (Stored::Always(_), None) => return None,
                (Stored::IfSet(_) | Stored::Header(..) | Stored::No, _) => continue,
            };
            if let Err(problem) = (row.restore)(&mut settings, value) {
                return Some(Err(format!("its {}: {problem}", row.name)));
            }
        }
        Some(Ok(settings))
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

    /// Makes the verifier a part of the run.
    pub(crate) fn verified_by(&self, agent: AgentBuilder) -> AgentBuilder {
        let Some(command) = &self.verify else { return agent };
        let verifier = CommandVerifier::new(command);
        agent.verifier(match &self.dir {
            Some(dir) => verifier.in_dir(dir),
            None => verifier,
        })
    }

    /// Returns the journal that the folder's file or the `--config` file names. It overrides the
    /// environment, unlike the journal in the user's own file.
    pub(crate) fn folder_journal(&self) -> Option<&Path> {
        let own = matches!(self.origins.get("journal"), Some(Origin::User(_)));
        self.journal.as_deref().filter(|_| !own)
    }

    /// Merges the flags into the settings.
    pub(crate) fn above(&mut self, args: &SettingArgs) -> Result<()> {
        for (name, flag) in given(args) {
            self.origins.insert(name, Origin::Flag(flag));
        }
        let rows = ROWS.iter().try_for_each(|row| (row.above)(self, args, &row.spelled()));
        rows.and_then(|()| merge(self, args)).map_err(Failure::usage)
    }

    /// Merges one entry of a settings file; `name` is the file's name for errors.
    pub(crate) fn take(&mut self, entry: &Entry, name: &str) -> Result<()> {
        let (key, member) = entry.parts();
        let taken = match Row::of_key(key) {
            Some(row) => (row.take)(self, member.unwrap_or_default(), &entry.value),
            None if Limits::NAMES.contains(&key) => Err(Problem::Key(format!(
                "a limit belongs to the table [limits]; write `{key} = …` below it"
            ))),
            None => {
                let keys: Vec<&str> = ROWS.iter().filter_map(|row| row.key).collect();
                Err(Problem::Key(shown(&unknown_key(key, &keys))))
            }
        };
        // Quoted text comes from the file and may hold control characters.
        taken.map_err(|problem| {
            Failure::usage(match problem {
                Problem::Key(problem) => format!("{name}: `{}`: {problem}", shown(key)),
                Problem::Table(problem) => {
                    format!("{name}: {}", shown(&format!("[{key}]: {problem}")))
                }
                Problem::Whole(problem) => format!("{name}: {problem}"),
            })
        })
    }

    /// Returns these settings with those of an agent over them; `file` is the file's name for
    /// errors.
    pub(crate) fn of_agent(&self, agent: &str, file: &str) -> Result<Settings> {
        let mut settings = self.clone();
        if let Some(value) = self.agents.get(agent) {
            let taken = settings.take_agent(agent, value);
            taken.map_err(|problem| Failure::usage(format!("{file}: {problem}")))?;
        }
        Ok(settings)
    }

    /// Merges the table of an agent.
    ///
    /// # Errors
    /// Names the table and the key.
    pub(crate) fn take_agent(&mut self, agent: &str, value: &Value) -> Result<(), String> {
        let wrong = |problem: &str| shown(&format!("[agents.{agent}]: {problem}"));
        let table = value.as_object().cloned().ok_or_else(|| wrong("expected a table"))?;
        let entries = Entry::all_of(table).map_err(|problem| wrong(&problem))?;
        for entry in &entries {
            let row = Row::of_key(entry.parts().0);
            if row.is_some_and(|row| row.commands & AGENT == 0) {
                return Err(wrong(&format!("`{}` does not belong to an agent", entry.name)));
            }
            self.take(entry, &format!("[agents.{agent}]")).map_err(|failure| failure.message)?;
        }
        Ok(())
    }
}

/// `true` if `--resume` can continue the run: its settings name a model or a server, and it was not
/// replayed from a recording.
pub(crate) fn is_resumable(header: &RunHeader) -> bool {
    matches!(
        Settings::restored(&header.settings),
        Some(Ok(settings)) if !settings.replay && (settings.model.is_some() || settings.base_url.is_some())
    )
}

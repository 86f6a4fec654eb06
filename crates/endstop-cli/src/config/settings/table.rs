//! The table of settings, from which the struct, the flags, the keys of settings files, the rules for files without
//! consent, the settings in a journal, and the list of `endstop config show` come.
//!
//! A new setting is a row, and a test.

use crate::config::flag::{
    ACP, AGENT, BRANCH, Commands, FILE, Flag, FlagValue, GUARD, Heading, RUN, SERVE, Spelling,
    brief, flag,
};
use crate::config::http::{HttpSettings, HttpTable};
use crate::config::kind::{
    AnyTool, Kind, List, Members, One, Problem, Switch, Text, Tokens, as_json, json_value, one,
};
use crate::config::kinds::{
    BuiltInTool, Calibration, Compaction, Fallback, Folder, Journal, MaxCalls, NoStream, Policy,
    PriceText, Project, Replayed, Schema, Verifier, Watches, not_shown, without_credential,
    without_secrets,
};
use crate::config::limits::LimitTable;
use crate::config::notify::{NotifySettings, NotifyTable};
use crate::config::params::{ParamSettings, ParamTable};
use crate::config::park::{Ask, Park};
use crate::config::prices::{self, PricesTable};
use crate::config::servers::Servers;
use crate::config::spend::{SpendSettings, SpendTable};
use crate::config::trust::{Origin, shown, tighten};
use clap::{Arg, ArgMatches};
use endstop::agent::AgentBuilder;
use endstop::journal::RecordedRun;
use endstop::provider::http::HttpProviderBuilder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;

/// The change that a file may make to a setting without consent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust {
    /// None: the setting starts a process, chooses a host or a price, or sets where files are written; or a value
    /// cannot be shown to be tighter.
    Nothing,
    /// Any.
    Anything,
    /// Set it to this value, or leave it as it is.
    Only(bool),
    /// Lower it.
    Lower,
    /// Set it if the user has not set it.
    IfNone,
    /// Set it if the user has not set it to another value.
    IfNoOther,
    /// Those that this function does not refuse, by the user's settings, the member and the value.
    Judged(fn(&Settings, &str, &Value) -> Result<bool, String>),
}

impl Trust {
    /// `true` if a value needs consent, compared with the user's own settings.
    ///
    /// # Errors
    /// A value of the wrong type or out of range.
    pub(crate) fn needs_consent(
        self,
        row: &Row,
        own: &Settings,
        member: &str,
        value: &Value,
    ) -> Result<bool, String> {
        let now = (row.json)(own);
        Ok(match self {
            Trust::Nothing => true,
            Trust::Anything => false,
            // Repeating the user's own value is not a change, so it needs no consent either.
            Trust::Only(allowed) => {
                value.as_bool().is_some_and(|value| value != allowed && now != value)
            }
            Trust::Lower => {
                let looser = |own: u64| value.as_u64().is_none_or(|value| value > own);
                now.as_u64().is_some_and(looser)
            }
            Trust::IfNone => !now.is_null(),
            Trust::IfNoOther => !now.is_null() && now != *value,
            Trust::Judged(refuses) => refuses(own, member, value)?,
        })
    }
}

/// The part of a journal that stores a setting, and the stored values that need consent because another person may
/// have written the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// None: a resumed run has it from its flags alone.
    No,
    /// The settings of the run.
    Always(Consent),
    /// The settings of the run, if the value is not empty.
    IfSet(Consent),
    /// The header of the run, from which this function reads it.
    Header(fn(&mut Settings, &RecordedRun) -> Result<(), String>, Consent),
}

/// The values of a stored run that need consent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consent {
    /// None: the setting starts no process, chooses no host, and loosens no limit.
    Never,
    /// All but the empty one.
    IfSet,
    /// Those that are set and differ from the user's own.
    IfOther,
    /// Those that a settings file may not set.
    AsFile,
    /// Each server, with its variables and headers.
    EachServer,
    /// Those that this function returns for the stored settings, the user's own, and the flags.
    Judged(fn(&Settings, &Settings, &SettingArgs) -> Members),
}

/// The place where a setting takes effect.
#[derive(Clone, Copy)]
pub(crate) enum Apply {
    Agent(fn(AgentBuilder, &Settings) -> AgentBuilder),
    /// The provider of the model.
    Server(fn(HttpProviderBuilder, &Settings) -> HttpProviderBuilder),
    /// The command, because it takes what only the command has: servers, the journal, a terminal.
    Command,
}

/// A row of the table of settings.
pub(crate) struct Row {
    pub(crate) spelling: Spelling,
    pub(crate) trust: Trust,
    pub(crate) stored: Stored,
    pub(crate) apply: Apply,
    /// Merges a value of a settings file, or a member of a table.
    pub(crate) take: fn(&mut Settings, &str, &Value) -> Result<(), Problem>,
    /// Merges the flag.
    pub(crate) above: fn(&mut Settings, &SettingArgs, &str) -> Result<(), String>,
    pub(crate) args: fn(&Row, Commands) -> Vec<Arg>,
    /// Returns the names of the settings that the flag sets, each with the flag.
    pub(crate) given: fn(&SettingArgs, &Row) -> Vec<(String, String)>,
    /// Returns the value as a settings file spells it.
    pub(crate) json: fn(&Settings) -> Value,
    /// Returns the value for display, without secrets.
    pub(crate) shown: fn(&Settings) -> Members,
    pub(crate) save: fn(&Settings) -> Value,
    pub(crate) restore: fn(&mut Settings, &Value) -> Result<(), String>,
}

impl Deref for Row {
    type Target = Spelling;

    fn deref(&self) -> &Spelling {
        &self.spelling
    }
}

impl Row {
    /// Returns the row with this key in settings files.
    pub(crate) fn of_key(key: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.key == Some(key))
    }
}

/// Reads the flag of a kind, if the command has it.
pub(crate) fn read<K: Kind>(matches: &ArgMatches, name: &str, command: Commands) -> K::Flag {
    let has = |row: &&Row| row.name == name && row.flag.is_some() && row.commands & command != 0;
    match ROWS.iter().find(has) {
        Some(row) => K::Flag::read(matches, row.name),
        None => K::Flag::default(),
    }
}

/// The agents of `endstop serve` and `endstop worker`, by name, each with the settings that differ from those of the
/// file.
pub(crate) struct Agents;

impl Kind for Agents {
    type Own = BTreeMap<String, Value>;
    type Flag = ();

    /// Merges the table of an agent, `[agents.NAME]`. A later file replaces the whole agent, so that
    /// a file's command is never combined with the tools of another.
    fn take(own: &mut BTreeMap<String, Value>, agent: &str, value: &Value) -> Result<(), Problem> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if agent.is_empty() || agent.len() > 64 || !agent.bytes().all(plain) {
            return Err(Problem::Whole(shown(&format!(
                "[agents.{agent}]: expected a name of 1 to 64 ASCII letters, digits, `-` or `_`"
            ))));
        }
        // Read once without effect, so that an error is reported when the file is read.
        Settings::default().take_agent(agent, value).map_err(Problem::Whole)?;
        own.insert(agent.to_owned(), value.clone());
        Ok(())
    }

    json_value!();
}

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
            spelling: Spelling {
                name: stringify!($name),
                key: $key,
                help: concat!($($doc, "\n"),+),
                flag: $flag,
                commands: $commands,
            },
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
    /// Maximum number of calls of a tool that run: TOOL=N. Another call ends the run. May be repeated.
    max_calls: MaxCalls, {
        key: Some("max_calls"), flag: Some(flag("max-calls", "TOOL=N", Heading::Tools)), commands: RUN | GUARD | AGENT,
        trust: Trust::Judged(|own, _, value| Ok(tighten::loosens_calls(&own.max_calls, value))),
        stored: Stored::IfSet(Consent::AsFile), show: as_json,
        apply: Apply::Agent(|agent, settings| {
            settings.max_calls.iter().fold(agent, |agent, (tool, calls)| agent.max_calls(tool, *calls))
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
        trust: Trust::Nothing, stored: Stored::Always(Consent::Judged(|stored, _, args| {
            let works = !stored.tools.is_empty()
                || !stored.mcp.is_empty()
                || stored.verify.is_some()
                || !args.tools.is_empty()
                || !args.mcp.is_empty()
                || args.verify.is_some();
            Folder::consent(stored.dir.as_ref(), works)
        })), show: |dir| one(Folder::json(dir)),
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
    /// A bound on the price of models without one, in US dollars per million tokens: in=30,out=150.
    unknown_price: One<PriceText>, {
        key: Some("unknown_price"), flag: Some(flag("unknown-price", "PRICE", Heading::Journal)),
        commands: RUN | BRANCH | ACP | GUARD | AGENT,
        trust: Trust::Nothing, stored: Stored::No, show: as_json, apply: Apply::Command,
    }
    /// The prices of models.
    prices: PricesTable, {
        key: Some("prices"), flag: None, commands: FILE,
        // A price determines when a budget is spent.
        trust: Trust::Nothing, stored: Stored::No, show: |own| prices::shown_rows(own), apply: Apply::Command,
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
    /// A command that runs when a run has used 80 and 95 % of a limit, when it is parked, and when it has ended; it
    /// reads a line of JSON from its standard input. `[notify]` in a settings file has more.
    notify: NotifyTable, {
        key: Some("notify"), flag: Some(flag("notify", "CMD", Heading::Output)),
        commands: RUN | BRANCH | GUARD | SERVE,
        // It starts a process and calls a host.
        trust: Trust::Nothing, stored: Stored::No, show: NotifySettings::shown, apply: Apply::Command,
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
        trust: Trust::Judged(|own, limit, value| tighten::loosens_limits(&own.limits, limit, value)),
        stored: Stored::Header(
            |settings, run| {
                settings.limits = run.limits();
                Ok(())
            },
            Consent::Judged(|stored, own, _| LimitTable::consent(&stored.limits, &own.limits)),
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
        trust: Trust::Judged(|own, _, value| tighten::weakens_watches(own.watches.as_deref(), value)),
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
        trust: Trust::Judged(|own, _, value| tighten::compacts_less(&own.compaction, value)), stored: Stored::Always(Consent::AsFile), show: as_json,
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

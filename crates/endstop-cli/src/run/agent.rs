//! Builds the agent of a run from its settings.

use crate::config::http;
use crate::config::journal_path;
use crate::config::price_file;
use crate::config::settings::{Apply, ROWS, Settings};
use crate::config::spend::SpendSettings;
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use crate::open_files;
use crate::run::approve::{AskOnTerminal, Questions};
use crate::run::attach::Attached;
use crate::run::cassette::Cassette;
use crate::run::servers::Servers;
use crate::telemetry;
use endstop::agent::{Agent, AgentBuilder};
use endstop::budget::SharedBudget;
use endstop::journal::SqliteJournal;
use endstop::mcp::McpServer;
use endstop::provider::Provider as _;
use endstop::provider::http::HttpProvider;
use endstop::wire::redact::KnownKeys;
use endstop::{Limits, Permission};
use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// An agent, the resources that it runs with, and the settings that count after it is built.
pub(crate) struct Built {
    pub(crate) agent: Agent,
    /// The MCP servers, which provide tools in addition to the built-in ones.
    pub(crate) servers: Servers,
    /// The values that must not appear in a file or on the screen.
    pub(crate) secrets: KnownKeys,
    /// The approval questions, if calls need approval; taken when the run starts.
    pub(crate) questions: Cell<Option<Questions>>,
    /// Notifies a person of the run.
    pub(crate) notifier: Notifier,
    /// The command that verifies a success.
    pub(crate) verify: Option<String>,
    /// The folder in which the tools and the verifier work, if it is not the current one.
    pub(crate) dir: Option<PathBuf>,
    /// The limits of the run.
    pub(crate) limits: Limits,
    /// `true` if keys may be sent to other machines without encryption.
    pub(crate) allow_http: bool,
}

impl Built {
    /// An agent without servers, questions and a person to notify.
    pub(crate) fn alone(agent: Agent, limits: Limits) -> Built {
        Built {
            agent,
            servers: Servers::default(),
            secrets: endstop::process::environment_secrets(),
            questions: Cell::default(),
            notifier: Notifier::default(),
            verify: None,
            dir: None,
            limits,
            allow_http: false,
        }
    }
}

/// The place where a person is asked about tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedOn {
    /// The terminal of this command.
    Terminal,
    /// Another program, which receives the questions as events.
    #[cfg_attr(not(feature = "acp"), expect(dead_code, reason = "only editors are asked so"))]
    Events,
}

/// Builds the agent of these settings, and connects its servers.
pub(crate) fn build(
    settings: Settings,
    attached: &Attached,
    cassette: &mut Cassette,
    journal: Option<&SqliteJournal>,
    runtime: &Runtime,
) -> Result<Built> {
    let building = built(settings, Vec::new(), attached, cassette, journal, AskedOn::Terminal);
    runtime.block_on(building)
}

/// Builds the agent of these settings with further servers, and connects all of them.
pub(crate) async fn built(
    settings: Settings,
    more_servers: Vec<McpServer>,
    attached: &Attached,
    cassette: &mut Cassette,
    journal: Option<&SqliteJournal>,
    asked_on: AskedOn,
) -> Result<Built> {
    let settings = price_file::with_own_price(settings)?;
    let saved = settings.saved();
    check(&settings, asked_on, journal.is_some(), cassette.records())?;
    let provider = cassette.provider(|| http_provider(&settings))?;
    attached.check(&provider)?;
    // Connected before the first model call, so that a server that cannot be used is an error that
    // costs nothing.
    let own = settings.servers()?;
    let servers = Servers::connect(own.into_iter().chain(more_servers)).await?;
    let params = settings.params.built()?;
    let sent = KnownKeys::new(params.headers.iter().map(|(_, value)| value.expose()));
    // A password that is a word is known to be a secret only from the address.
    let sent = sent.and(&settings.http.secrets());
    cassette.hide(&sent);
    let secrets = endstop::process::environment_secrets().and(servers.secrets()).and(&sent);
    if let Some(journal) = journal {
        // The journal opened before the servers were read, so their header values are added here.
        journal.hide(secrets.clone());
    }
    cassette.hide(servers.secrets());
    let secrets = provider.known_keys().and(&secrets);
    // By default a replay streams as the recorded run did, because a stream and a whole response
    // differ in the recorded bytes.
    let whole = settings.no_stream || cassette.recording().is_some_and(|played| !played.streamed());
    let mut builder = Agent::builder(provider).params(params).streaming(!whole);
    let (spend, project) = (&settings.spend, settings.project.as_deref());
    if let Some(budget) = budget_of_day(spend, project, settings.replay, journal)? {
        builder = builder.shared_budget(budget);
    }
    let mut fallback_keys = KnownKeys::default();
    // A replay contacts no server.
    for model in settings.fallback.iter().filter(|_| cassette.recording().is_none()) {
        let fallback = fallback_provider(&settings, model)?;
        fallback_keys = fallback_keys.and(&fallback.known_keys());
        builder = builder.fallback(fallback);
    }
    let secrets = secrets.and(&fallback_keys);
    if let Some(journal) = journal {
        builder = builder.journal(journal.clone()).journal_settings(saved);
    }
    builder = with_tools(builder, &settings, &servers)?;
    let questions = Cell::default();
    if settings.ask {
        builder = match (asked_on, settings.park) {
            (AskedOn::Events, _) => builder.approval_events(true),
            (AskedOn::Terminal, Some(park)) => builder.approver(park.approver()),
            (AskedOn::Terminal, None) => {
                let (approver, asked) = AskOnTerminal::new();
                questions.set(Some(asked));
                builder.approver(approver)
            }
        };
    }
    let notifier = match asked_on {
        AskedOn::Terminal => Notifier::begin(&settings.notify, settings.allow_http, None)?,
        AskedOn::Events => Notifier::default(),
    };
    let builder = notifier.follows(with_settings(builder, &settings), &settings.limits, false);
    let agent = builder.build();
    let agent = agent.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Built {
        agent,
        servers,
        secrets,
        questions,
        notifier,
        verify: settings.verify_after(),
        dir: settings.dir,
        limits: settings.limits,
        allow_http: settings.allow_http,
    })
}

fn has_tools(settings: &Settings) -> bool {
    !settings.tools.is_empty() || !settings.mcp.is_empty()
}

/// Refuses settings that no run can use.
fn check(settings: &Settings, asked_on: AskedOn, stored: bool, records: bool) -> Result<()> {
    if let Some(dir) = settings.dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(Failure::usage(format!("--dir {}: not a folder", dir.display())));
    }
    if records && !settings.fallback.is_empty() {
        return Err(Failure::usage(
            "--record: a recording has the responses of one model; remove the fallback models, or pass --fallback off",
        ));
    }
    if settings.park.is_some() && !stored {
        return Err(Failure::usage(
            "--ask park: the run is not stored, so it cannot be parked; set a journal with --journal FILE",
        ));
    }
    let on_terminal = settings.ask && settings.park.is_none() && asked_on == AskedOn::Terminal;
    if on_terminal && has_tools(settings) && !io::stdin().is_terminal() {
        // Refused here, because otherwise the model would be paid for calls that are all denied.
        return Err(Failure::usage(
            "--ask: standard input is not a terminal, on which the question would be asked; run in a terminal with the task as an argument, park the run with --ask park, or remove `ask`",
        ));
    }
    Ok(())
}

/// Creates the provider that contacts the model's server.
pub(super) fn http_provider(settings: &Settings) -> Result<HttpProvider> {
    // Without a name, a server's own default.
    let model = settings.model.clone().unwrap_or_else(|| "default".to_owned());
    let mut builder = HttpProvider::builder(model);
    for row in &ROWS {
        if let Apply::Server(apply) = row.apply {
            builder = apply(builder, settings);
        }
    }
    let origins = &settings.origins;
    let builder = settings.http.applied(builder, origins)?;
    builder.build().map_err(|error| http::refused(&error, origins))
}

/// Creates the provider of a fallback model. The address, the format, the price and the window in the
/// settings are those of the first model.
fn fallback_provider(settings: &Settings, model: &str) -> Result<HttpProvider> {
    let own = Settings {
        model: Some(model.to_owned()),
        api: None,
        base_url: None,
        price: None,
        context_window: None,
        ..settings.clone()
    };
    let wrong = |failure: Failure| Failure {
        message: format!("--fallback {model}: {}", failure.message),
        ..failure
    };
    http_provider(&price_file::with_own_price(own)?).map_err(wrong)
}

/// Adds the built-in tools and those of the servers.
pub(super) fn with_tools(
    mut builder: AgentBuilder,
    settings: &Settings,
    servers: &Servers,
) -> Result<AgentBuilder> {
    for (at, name) in settings.tools.iter().enumerate() {
        // `finish` is added with any tool, and a tool that is named twice must be registered once.
        if name == "finish" || settings.tools[..at].contains(name) {
            continue;
        }
        let tool =
            endstop::tool::built_in(name).map_err(|error| Failure::usage(error.to_string()))?;
        builder = builder.shared_tool(tool);
        if settings.ask {
            builder = builder.permission(name, Permission::Ask);
        }
    }
    for tool in servers.tools() {
        if settings.ask {
            builder = builder.permission(tool.name(), Permission::Ask);
        }
        builder = builder.shared_tool(tool);
    }
    // Without tools the model has no work to finish, and its text is the answer.
    let has_tools = has_tools(settings) || servers.tools().next().is_some();
    Ok(builder.finish_tool(has_tools))
}

/// Applies the settings of the agent itself.
pub(super) fn with_settings(builder: AgentBuilder, settings: &Settings) -> AgentBuilder {
    let mut builder = builder.spans(telemetry::spans(None));
    for row in &ROWS {
        if let Apply::Agent(apply) = row.apply {
            builder = apply(builder, settings);
        }
    }
    builder
}

/// Builds the async runtime of a run. A single thread suffices, because a run mostly waits for the
/// network and for child processes.
pub(crate) fn runtime() -> Result<Runtime> {
    open_files::check()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("could not start the async runtime: {error}")))
}

/// Opens the ceilings per day for a run.
///
/// # Errors
/// As [`SpendSettings::budget`], or the user's own settings cannot be read.
pub(crate) fn budget_of_day(
    spend: &SpendSettings,
    project: Option<&str>,
    replay: bool,
    journal: Option<&SqliteJournal>,
) -> Result<Option<SharedBudget>> {
    let budget = spend.budget(project, replay, journal)?;
    if let (Some(_), false, Some(journal)) = (&budget, replay, journal) {
        journal_path::note_ceilings_of(journal.path())?;
    }
    Ok(budget)
}

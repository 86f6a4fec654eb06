//! The command-line arguments: one struct for each command; the doc comments are the `--help` text.

use crate::assert_args::AssertArgs;
use crate::compare_args::CompareCommand;
use crate::config::flag::{GUARD, Heading, SERVE};
use crate::config::limits::LimitArgs;
use crate::config::settings::OfCommand;
use crate::conform_args::ConformArgs;
use crate::input::is_short_help;
use crate::park_args::{AnswerArgs, PendingArgs};
use crate::recorded_args::{AuditArgs, BacktestArgs};
#[cfg(feature = "acp")]
use crate::run_args::AcpArgs;
use crate::run_args::{BranchArgs, RunArgs};
use crate::spend_args::SpendArgs;
#[cfg(feature = "restate")]
use crate::worker_args::WorkerArgs;
use clap::{Parser, Subcommand};
use endstop::Termination;
use std::ffi::OsString;
use std::path::PathBuf;

/// The group of guard's flags for a standing proxy.
const STANDING: &str = "Standing proxy";

/// The exit statuses, each with its meaning.
pub(crate) const STATUSES: [(u8, &str); 11] = [
    (0, "success"),
    (10, "retryable"),
    (20, "capacity (a limit)"),
    (30, "fatal"),
    (75, "parked"),
    (130, "cancelled"),
    (143, "terminated"),
    (1, "the run succeeded but its verifier did not, or an expectation of `assert` does not hold"),
    (2, "usage or bad input"),
    (70, "an internal fault"),
    (74, "standard output or --events could not be written"),
];

fn exit_statuses() -> String {
    let listed: Vec<String> =
        STATUSES.iter().map(|(status, meaning)| format!("{status} {meaning}")).collect();
    format!("Exit status: {}.", listed.join(", "))
}

/// Run LLM agents and know why they ended.
#[derive(Debug, Parser)]
#[command(
    name = "endstop",
    version,
    about = "Run LLM agents and know why they ended.",
    max_term_width = 100
)]
#[command(after_help = exit_statuses())]
pub(crate) struct Args {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// With --version, list the features of this build, too.
    #[arg(long, requires = "version")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
// Build the arguments of the called command only: building all is a fifth of the time to start.
#[command(defer = true)]
pub(crate) enum Command {
    /// Run an agent and report why it ended.
    Run(Box<RunArgs>),
    /// Start a new run with the beginning of a stored one.
    Branch(Box<BranchArgs>),
    /// Run any agent program under limits, through a local proxy.
    Guard(Box<GuardArgs>),
    /// Serve an agent to an editor over the Agent Client Protocol, on standard input and output.
    #[cfg(feature = "acp")]
    Acp(Box<AcpArgs>),
    /// Serve runs of named agents over HTTP, with a live page.
    Serve(Box<ServeArgs>),
    /// Run named agents durably on Restate, on any number of machines.
    #[cfg(feature = "restate")]
    Worker(Box<WorkerArgs>),
    /// Show an ending live, without a key: fix, loop, cut, budget, cancel, filtered.
    Demo(DemoArgs),
    /// Read a provider's raw response and report why the turn ended.
    Detect(DetectArgs),
    /// Read steps and print a policy's verdicts.
    Decide(DecideArgs),
    /// Run the kernel on a script in virtual time and print the outcome.
    Simulate(SimulateArgs),
    /// List the stored runs, newest first, or the live ones.
    Runs(RunsArgs),
    /// Add up what the stored runs have spent: by day, model, project or ending.
    Spend(SpendArgs),
    /// List the requests of parked runs.
    Pending(PendingArgs),
    /// Decide the request of a parked run: approve, deny or answer it.
    Answer(AnswerArgs),
    /// Cancel a live run, also of another process, or a parked one.
    Cancel(CancelArgs),
    /// Change the limits of a live run.
    Limits(LiveLimitsArgs),
    /// Show the timeline of a run, the limits at each turn, and what ended it.
    Explain(ExplainArgs),
    /// Check a recorded run in CI: exit status 1 and what differs if an expectation does not hold.
    Assert(Box<AssertArgs>),
    /// Judge how the runs of any agent program end, against a scripted provider.
    Conform(Box<ConformArgs>),
    /// Scan sessions that coding agents left on disk: how each ended and what its loops cost.
    Audit(AuditArgs),
    /// Replay recorded runs under other limits and compare the results.
    Backtest(Box<BacktestArgs>),
    /// Compare two policies, two sets of runs, or single runs: differences in success, steps and cost.
    #[command(subcommand)]
    Compare(CompareCommand),
    /// List the prices that apply, with their dates and origins, or update them.
    Prices(PricesArgs),
    /// List the supported providers, with their keys and endpoints.
    Providers(ProvidersArgs),
    /// List the termination policies with their defaults.
    Policies,
    /// Allow what the endstop.toml of this folder asks for: commands, hosts, tools, looser limits.
    Trust(TrustArgs),
    /// Show the settings that a run in this folder would have.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completions for a shell.
    Completions(CompletionsArgs),
    /// Print the man page, or write those of all commands into a folder.
    Man(ManArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Example: endstop completions bash > ~/.local/share/bash-completion/completions/endstop"
)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// A folder for the pages of all commands.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each value with its origin: default, a file, a flag or the environment.
    Show(Box<RunArgs>),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A settings file found in the working folder may only tighten limits. What else it \
        asks for is shown here and, once allowed, stored with the file's hash: changing one byte revokes it."
)]
pub(crate) struct TrustArgs {
    /// The folder of the settings file.
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Allow without asking.
    #[arg(long, short, conflicts_with_all = ["list", "revoke"])]
    pub(crate) yes: bool,
    /// List the trusted files.
    #[arg(long, conflicts_with = "revoke")]
    pub(crate) list: bool,
    /// Revoke the trust in this folder's file.
    #[arg(long)]
    pub(crate) revoke: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "Without limits, guard observes. The exit status is the program's own, unless \
        Endstop ended the run, or --strict is given.\n\nExample: endstop guard --max-budget-usd 2 -- claude -p \"fix the test\""
)]
pub(crate) struct GuardArgs {
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) settings: OfCommand<GUARD>,
    /// The answer to calls after a limit: `final` (one text with the reason, then refusals), `refuse`,
    /// or `kill` (the program is stopped at once).
    #[arg(long, value_name = "HOW", default_value = "final", value_parser = ["final", "refuse", "kill"], conflicts_with = "listen")]
    #[arg(help_heading = Heading::Limits.title())]
    pub(crate) on_limit: String,
    /// Lower the output cap in requests to what is left of a ceiling on cost or tokens. No
    /// other option changes a request.
    #[arg(long, conflicts_with = "listen")]
    #[arg(help_heading = Heading::Limits.title())]
    pub(crate) cap_output: bool,
    /// What happens to requests that may cost and that guard cannot count, such as batches and paths that it
    /// does not know: `refuse`, or `pass` [default: refuse under a limit that counts calls].
    #[arg(long, value_name = "HOW", value_parser = ["refuse", "pass"], conflicts_with = "listen")]
    #[arg(help_heading = Heading::Limits.title(), hide_short_help = is_short_help())]
    pub(crate) other: Option<String>,
    /// Exit with the status of Endstop's ending, even if the program ended by itself.
    #[arg(long, conflicts_with = "listen")]
    #[arg(help_heading = Heading::Judging.title())]
    pub(crate) strict: bool,
    /// Accept a program that makes no model call through guard, although limits are given: they hold for no call that it
    /// makes elsewhere. Without this, such a program fails, and one that is known not to use guard is not started.
    #[arg(long, conflicts_with = "listen")]
    #[arg(help_heading = Heading::Judging.title(), hide_short_help = is_short_help())]
    pub(crate) allow_no_calls: bool,
    /// Time that the program has to end after a limit, before it is stopped.
    #[arg(long, value_name = "TIME", default_value = "10s", conflicts_with = "listen")]
    #[arg(help_heading = Heading::Limits.title(), hide_short_help = is_short_help())]
    pub(crate) grace: String,
    /// The name of the run: letters, digits, `-`, `_` and `.`.
    #[arg(long, value_name = "NAME")]
    #[arg(help_heading = Heading::Journal.title(), hide_short_help = is_short_help())]
    pub(crate) name: Option<String>,
    /// A settings file; without it, endstop.toml of the working folder. With --listen: the file with
    /// the proxy's profiles, tokens and upstreams.
    #[arg(long, value_name = "FILE")]
    #[arg(hide_short_help = is_short_help())]
    pub(crate) config: Option<PathBuf>,
    /// Serve a standing proxy for many agents on this address, for example 127.0.0.1:4000.
    #[arg(long, value_name = "ADDR")]
    #[arg(help_heading = STANDING)]
    pub(crate) listen: Option<String>,
    /// Serve Prometheus metrics of the standing proxy on this address, at /metrics.
    #[arg(long, value_name = "ADDR", requires = "listen")]
    #[arg(help_heading = STANDING, hide_short_help = is_short_help())]
    pub(crate) metrics: Option<String>,
    /// Print the lines that point the agents of a shell at the standing proxy of --listen: sh, bash,
    /// zsh, fish … [default: the shell of the variable SHELL]
    #[arg(long, value_name = "SHELL", num_args = 0..=1, default_missing_value = "")]
    #[arg(help_heading = STANDING, hide_short_help = is_short_help())]
    pub(crate) print_env: Option<String>,
    /// Write the steps of all conversations to this file, one JSON object for each line.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    #[arg(help_heading = Heading::Output.title(), hide_short_help = is_short_help())]
    pub(crate) events: Option<PathBuf>,
    /// Replace the file of --events, even if it is not empty.
    #[arg(long, conflicts_with = "listen")]
    #[arg(help_heading = Heading::Output.title(), hide_short_help = is_short_help())]
    pub(crate) overwrite: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Clients start the agents of [agents.NAME] in endstop.toml; without any, the built-in agent \
        `demo`, whose tasks are fix, approve, loop, cut, budget, cancel and filtered.\n\nExample: endstop serve\n         \
        curl -H 'content-type: application/json' -d '{\"agent\":\"demo\",\"task\":\"fix\"}' http://127.0.0.1:4180/v1/runs"
)]
pub(crate) struct ServeArgs {
    /// The address to listen on. Any other than loopback requires a token.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4180")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) settings: OfCommand<{ SERVE }>,
    /// The settings file with the agents, instead of the endstop.toml of this folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A TOML file with the tokens and the agents that each may use. The variable
    /// ENDSTOP_SERVE_TOKEN has one for all agents.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A name of this server that a request may have in its Host header. May be repeated.
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// The ingress of a Restate server: serves the runs of its workers (`endstop worker`) instead of runs
    /// of this process. The variable ENDSTOP_RESTATE_TOKEN has its bearer token, if it requires one.
    #[cfg(feature = "restate")]
    #[arg(long, value_name = "URL", requires = "store", conflicts_with_all = [
        "max_running", "grace", "park_after", "park_expiry", "journal",
    ])]
    pub(crate) restate: Option<String>,
    /// The folder that the workers share, for --restate.
    #[cfg(feature = "restate")]
    #[arg(long, value_name = "FOLDER", requires = "restate")]
    pub(crate) store: Option<PathBuf>,
    /// Number of runs at a time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) max_running: u16,
    /// Number of runs that wait, in the order in which they were accepted; further ones get 429.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_queued: u16,
    /// Time that runs have to end after SIGTERM, before they are cancelled.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) grace: String,
    /// Time for which a run that waits for approval keeps its place; then it is parked. `off`: until
    /// the server stops.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub(crate) park_after: String,
    /// Time after which the request of a parked run counts as denied [default: never].
    #[arg(long, value_name = "TIME")]
    pub(crate) park_expiry: Option<String>,
    /// The journal that stores the runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// The ending: fix, loop, cut, budget, cancel, filtered.
    #[arg(default_value = "fix")]
    pub(crate) name: String,
    /// For fix: plant a bug that the scripted agent cannot fix.
    #[arg(long)]
    pub(crate) unfixable: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DetectArgs {
    /// The wire format or provider: openai-chat, anthropic-messages, gemini … [default: detected
    /// from the body]
    #[arg(long)]
    pub(crate) api: Option<String>,
    /// The response body; standard input if omitted or `-`. With --jsonl, a file of such lines.
    pub(crate) file: Option<PathBuf>,
    /// The response's HTTP status.
    #[arg(long, default_value_t = 200, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(100..=999))]
    pub(crate) status: u16,
    /// A response header, as 'name: value'. May be repeated.
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Read one recorded response per line, and print one line for each.
    #[arg(long, conflicts_with = "api")]
    pub(crate) jsonl: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DecideArgs {
    /// The policy: a name, NAME={json config}, a JSON object, or a TOML file.
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: String,
    /// The steps, as JSON Lines; standard input if omitted or `-`.
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The scenario; `-` for standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Read one {"id", "scenario"} object per line, and print one line for each.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// Maximum number of runs to list.
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub(crate) number: u32,
    /// Only runs that did not end in a success, or whose work a verifier rejected.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only runs with this ending.
    #[arg(long, value_name = "ENDING")]
    pub(crate) ended: Option<Termination>,
    /// Only runs that started at most this long ago (7d, 12h), or on this day (UTC) or later (2026-11-01).
    #[arg(long, value_name = "TIME", value_parser = crate::quantity::since)]
    pub(crate) since: Option<crate::quantity::Since>,
    /// List the live runs of this user instead: what each does, and what it has cost.
    #[arg(long, conflicts_with_all = ["number", "failed", "ended", "since", "journal"])]
    pub(crate) live: bool,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// The run: its id, a prefix of the id, or `last` (`endstop runs --live` and `endstop pending` list
    /// them).
    pub(crate) run: String,
    /// The journal file of a parked run [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "What the run has spent so far counts against the new limits; limits that \
        are not given stay.\n\nExample: endstop limits nightly-7 --max-turns 80 --max-budget-usd 4")]
pub(crate) struct LiveLimitsArgs {
    /// The run: its id, a prefix of the id, or `last` (`endstop runs --live` lists them).
    pub(crate) run: String,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Remove old runs and free their disk space.
    Prune(PruneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("bound").required(true).multiple(true),
    after_help = "All given bounds apply together. A run that a process is driving is never \
        removed. A run that has not ended can be resumed, and stays unless --unfinished is given."
)]
pub(crate) struct PruneArgs {
    /// Remove runs that ended longer ago than this: 12h, 30d.
    #[arg(long, value_name = "AGE", group = "bound", value_parser = crate::quantity::age)]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Keep only this many runs, the newest.
    #[arg(long, value_name = "N", group = "bound")]
    pub(crate) keep: Option<u64>,
    /// Remove the oldest runs until the file is at most this large: 500MB, 1GB, 2GiB.
    #[arg(long, value_name = "SIZE", group = "bound", value_parser = crate::quantity::size)]
    pub(crate) max_size: Option<u64>,
    /// Also remove runs that have not ended, if no process is driving them.
    #[arg(long)]
    pub(crate) unfinished: bool,
    /// Only print what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The run: its id, a prefix of the id, `last`, a file written by `--events`, or a journal file,
    /// whose newest run is meant. Or the name of an ending, a limit, a rule or a policy: its meaning.
    #[arg(default_value = "last")]
    pub(crate) run: PathBuf,
    /// Write a self-contained HTML page with a chart of the run.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace the file of --html if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PricesArgs {
    /// Show all prices of this model, PROVIDER/MODEL; the first one applies.
    pub(crate) model: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Option<PricesCommand>,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum PricesCommand {
    /// Read a published list of prices into your configuration folder.
    Update {
        /// The list: api.json of models.dev, or model_prices_and_context_window.json of LiteLLM.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProvidersArgs {
    /// Show one provider: its endpoint, its keys, and the ending that each finish value leads to.
    pub(crate) name: Option<String>,
    /// Also list its known models, with their context windows and output caps.
    #[arg(long, requires = "name")]
    pub(crate) models: bool,
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::CommandFactory as _;

    // A doc comment of a flattened group of flags would replace them.
    #[test]
    fn descriptions_of_commands_stay_when_their_arguments_are_built() {
        let described = Args::command();
        let mut built = Args::command();
        built.build();
        for command in described.get_subcommands() {
            let same = built.find_subcommand(command.get_name()).unwrap();
            let about = command.get_about().map(ToString::to_string);
            assert_eq!(about, same.get_about().map(ToString::to_string), "{}", command.get_name());
            assert!(about.is_some(), "{}", command.get_name());
        }
    }
}

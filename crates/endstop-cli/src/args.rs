//! The arguments of every command: one struct each, with the words of `--help`.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Run LLM agents and know why they ended.
#[derive(Debug, Parser)]
#[command(name = "endstop", version, about, max_term_width = 100)]
#[command(after_help = "Exit status: 0 success, 10 retryable, 20 capacity (a limit), 30 fatal, \
    130 cancelled, 143 terminated, 1 the run succeeded but its verifier did not, 2 usage or bad \
    input, 70 a fault of ours.")]
pub(crate) struct Args {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an agent and say why it ended.
    Run(Box<RunArgs>),
    /// Show an ending live, without a key: fix, loop, cut, budget, cancel, filtered.
    Demo(DemoArgs),
    /// Read a provider's raw response and say why the turn ended.
    Detect(DetectArgs),
    /// Read steps and print a policy's verdicts.
    Decide(DecideArgs),
    /// Run the kernel on a script in virtual time and print the outcome it would have.
    Simulate(SimulateArgs),
    /// List the runs that were kept, the newest first.
    Runs(RunsArgs),
    /// Show the timeline of a run, the limits at each turn, and what ended it.
    Explain(ExplainArgs),
    /// Look through the sessions that coding agents have left on disk: how each ended, what its loops cost.
    Audit(AuditArgs),
    /// Would other limits have been better? Replay recorded runs under them.
    Backtest(Box<BacktestArgs>),
    /// List the providers that are understood, with their keys and endpoints.
    Providers(ProvidersArgs),
    /// List the termination policies with their defaults.
    Policies,
    /// Allow what the endstop.toml of this folder asks for: commands, hosts, tools, looser limits.
    Trust(TrustArgs),
    /// Show the settings that a run in this folder would have.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print each value with its origin: default, a file, a flag or the environment.
    Show(Box<RunArgs>),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A settings file found in the working folder may only tighten limits. What else it \
    asks for is shown here and stored with the file's hash: one changed byte revokes it."
)]
pub(crate) struct TrustArgs {
    /// The folder of the settings file.
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Do not ask.
    #[arg(long, short, conflicts_with_all = ["list", "revoke"])]
    pub(crate) yes: bool,
    /// List the files that are trusted.
    #[arg(long, conflicts_with = "revoke")]
    pub(crate) list: bool,
    /// Trust the file of this folder no longer.
    #[arg(long)]
    pub(crate) revoke: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RunArgs {
    /// The task; also from standard input.
    pub(crate) task: Option<String>,
    /// The model, as PROVIDER/MODEL: anthropic/claude-sonnet-4-5, gemini/gemini-2.5-flash,
    /// ollama/qwen3.
    #[arg(long, short)]
    pub(crate) model: Option<String>,
    /// The wire format, where the provider's own is not wanted: openai-chat, openai-responses,
    /// anthropic-messages, gemini, bedrock-converse, bedrock-invoke, cohere-v2 or ollama.
    #[arg(long)]
    pub(crate) api: Option<String>,
    /// The address of an OpenAI-compatible server, or with --api of one that speaks that format. It
    /// is sent the key of the model's provider, or that of the format (OPENAI_API_KEY …).
    #[arg(long)]
    pub(crate) base_url: Option<String>,
    /// Send a key over http:// to a machine other than this one, where everyone on the way can read
    /// it.
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Instructions for the model.
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// A tool that the model may use: shell, read_file, write_file. May be repeated.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// An MCP server whose tools the model may use: NAME=COMMAND, for the shell, or NAME=https://…
    /// May be repeated; keys and headers go into endstop.toml.
    #[arg(long, value_name = "SERVER")]
    pub(crate) mcp: Vec<String>,
    /// Ask before each tool call.
    #[arg(long)]
    pub(crate) ask: bool,
    /// The folder that tools work in; it is no sandbox.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// A termination policy: a name, NAME={json config}, a JSON object, or a TOML file.
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: Option<String>,
    /// A rule that watches the run, and what it does when it fires (observe, warn, nudge, stop):
    /// stop:stuck, warn:repeat_call={"times":4}; or `off`. May be repeated; `endstop policies` lists the
    /// rules. [default: observe:stuck]
    #[arg(long = "watch", value_name = "MODE:RULE")]
    pub(crate) watches: Vec<String>,
    /// A file with the JSON Schema that the answer must satisfy.
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// The output cap of each model call, in tokens.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) max_output_tokens: Option<u64>,
    /// A command that says whether the work is right, once the run has succeeded.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// Print nothing but the answer to standard output: no text of turns before it, and nothing if the
    /// run is not a success.
    #[arg(long)]
    pub(crate) answer_only: bool,
    /// Write every event to this file, a line of JSON each.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Keep what is asked of the model and answered in this new file, a line of JSON each exchange;
    /// keys are cut out.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Replace the files of --events and --record if they exist and are not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Play what --record kept, without a network or a key. The task is the recorded one unless another
    /// is given; tools run as always, and must be given again. A run that is not the recorded one exits
    /// with 2.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// If a replay is not the recorded run, exit all the same as the replayed run ended.
    #[arg(long, requires = "replay")]
    pub(crate) accept_divergence: bool,
    /// Go on with a run that was kept: one whose process died, or that ended otherwise than as a success
    /// and has now what it lacked (raise the limit that ended it). Its id, the beginning of it, or
    /// `last`. Task and settings are the run's own; flags stand above them.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["task", "replay", "config"])]
    pub(crate) resume: Option<String>,
    /// Go on although the model, the tools, the instructions, the policy or the schema are not those that
    /// the run began with.
    #[arg(long, requires = "resume")]
    pub(crate) accept_changes: bool,
    /// With --resume and a journal that is not your own: start the commands, use the tools and ask the
    /// hosts that are stored with the run.
    #[arg(long, requires = "resume")]
    pub(crate) trust_journal: bool,
    /// Resume although secrets were cut out of the conversation when it was journalled: the model is sent
    /// `[redacted]` instead.
    #[arg(long, requires = "resume")]
    pub(crate) accept_redacted: bool,
    /// Where runs are kept: a file, or `off` [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// How many runs the journal keeps: beyond that the oldest are removed; a number or `off`
    /// [default: 10000].
    #[arg(long, value_name = "N", value_parser = crate::quantity::runs_or_off)]
    pub(crate) journal_keep: Option<Bound>,
    /// How large the journal's file may get before the oldest runs are removed; as 500MB, or `off`
    /// [default: 1GiB].
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size_or_off)]
    pub(crate) journal_max_size: Option<Bound>,
    /// What the model costs, in US dollars per million tokens: in=3,out=15, and if you like cached=0.3
    /// and cache_write=3.75.
    #[arg(long, value_name = "PRICE")]
    pub(crate) price: Option<String>,
    /// The model's context window, in tokens; Ollama is told it.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) context_window: Option<u64>,
    /// How the conversation is shortened where the context window is known and nearly full, or the
    /// prompt was refused as too long: on, off, or strategies in order, as elide,drop,summarise
    /// [default: on].
    #[arg(long, value_name = "HOW")]
    pub(crate) compact: Option<String>,
    /// Ask for whole responses instead of streams.
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Read this settings file instead of endstop.toml in this folder, and do all that it says.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Limits as flags; `off` switches one off. They stand above endstop.toml. A negative number
/// is taken as a value, so that it is refused by the name of its limit.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Limits (a value of `off` switches one off)")]
pub(crate) struct LimitArgs {
    /// Model responses that are kept [default: 25].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_turns: Option<String>,
    /// Cost ceiling in US dollars.
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    max_budget_usd: Option<String>,
    /// Ceiling on prompt and generated tokens together.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_tokens: Option<String>,
    /// Wall-clock ceiling of the run: 90s, 10m, 2h.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    timeout: Option<String>,
    /// How long one model call may take [default: 10m].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    turn_timeout: Option<String>,
    /// Time until the first content of a response; a model may think in silence [default: 10m].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    first_content_timeout: Option<String>,
    /// Time between two pieces of content of a stream [default: 60s].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    stall_timeout: Option<String>,
    /// How long one tool call may take [default: 60s].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    tool_timeout: Option<String>,
    /// The longest time that the model may ask for in a `shell` call [default: 10m].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    max_tool_timeout: Option<String>,
    /// How long stopped tools have to end [default: 2s].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    cancel_grace: Option<String>,
    /// Turns in a row all of whose tool calls failed [default: 3].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_consecutive_mistakes: Option<String>,
    /// Turns in a row that repeat themselves [default: 3].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_unproductive_turns: Option<String>,
    /// Repairs of a structured answer [default: 2].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_structured_output_retries: Option<String>,
    /// How long a turn is retried after transient provider errors [default: 60s].
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    retry_for: Option<String>,
    /// Retries of a turn after transient provider errors [default: as many as fit into --retry-for].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_retries: Option<String>,
    /// Blank answers in a row that are answered with a nudge [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_empty_turns: Option<String>,
    /// Times that an answer cut by the token limit is continued [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_continuations: Option<String>,
    /// Tool calls that run at once [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    tool_concurrency: Option<String>,
    /// Take a whole answer with an unknown finish value as an answer.
    #[arg(long)]
    accept_unknown_finish: bool,
}

/// A number of tokens that a model can work with.
fn tokens(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .ok()
        .filter(|tokens| *tokens > 0)
        .ok_or("wants a whole number of tokens, 1 or more")
}

impl LimitArgs {
    /// The limits that were given, by name.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let mut given: Vec<(&'static str, String)> = [
            ("max_turns", &self.max_turns),
            ("max_budget_usd", &self.max_budget_usd),
            ("max_tokens", &self.max_tokens),
            ("timeout", &self.timeout),
            ("turn_timeout", &self.turn_timeout),
            ("first_content_timeout", &self.first_content_timeout),
            ("stall_timeout", &self.stall_timeout),
            ("tool_timeout", &self.tool_timeout),
            ("max_tool_timeout", &self.max_tool_timeout),
            ("cancel_grace", &self.cancel_grace),
            ("max_consecutive_mistakes", &self.max_consecutive_mistakes),
            ("max_unproductive_turns", &self.max_unproductive_turns),
            ("max_structured_output_retries", &self.max_structured_output_retries),
            ("retry_for", &self.retry_for),
            ("max_retries", &self.max_retries),
            ("max_empty_turns", &self.max_empty_turns),
            ("max_continuations", &self.max_continuations),
            ("tool_concurrency", &self.tool_concurrency),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect();
        if self.accept_unknown_finish {
            given.push(("accept_unknown_finish", "true".to_owned()));
        }
        given
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Which ending: fix, loop, cut, budget, cancel, filtered.
    #[arg(default_value = "fix")]
    pub(crate) name: String,
    /// For fix: plant a bug that the scripted agent cannot repair.
    #[arg(long)]
    pub(crate) unfixable: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DetectArgs {
    /// The wire format or provider: openai-chat, anthropic-messages, gemini … [default: found by the body]
    #[arg(long)]
    pub(crate) api: Option<String>,
    /// The response body; standard input where it is left out or `-`. With --jsonl, the lines.
    pub(crate) file: Option<PathBuf>,
    /// The response's HTTP status.
    #[arg(long, default_value_t = 200, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(100..=999))]
    pub(crate) status: u16,
    /// A response header, as 'name: value'. May be repeated.
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// Read a recorded response a line, and print a line for each.
    #[arg(long, conflicts_with = "api")]
    pub(crate) jsonl: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DecideArgs {
    /// The policy: a name, NAME={json config}, a JSON object, or a TOML file.
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: String,
    /// The steps, a line of JSON each; standard input where it is left out or `-`.
    pub(crate) file: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The scenario; `-` for standard input.
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Read {"id", "scenario"} a line, and print a line for each.
    #[arg(long)]
    pub(crate) jsonl: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunsCommand>,
    /// How many.
    #[arg(short, long, value_name = "N", default_value_t = 20)]
    pub(crate) number: u32,
    /// Where the runs are kept [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Remove old runs and give their disk space back.
    Prune(PruneArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("bound").required(true).multiple(true),
    after_help = "All bounds that are given hold afterwards. A run that a process drives is never \
    removed. One that has not ended can be resumed, and stays unless --unfinished is given."
)]
pub(crate) struct PruneArgs {
    /// Remove runs that ended longer ago than this: 12h, 30d.
    #[arg(long, value_name = "AGE", group = "bound", value_parser = crate::quantity::age)]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Keep so many runs, the newest.
    #[arg(long, value_name = "N", group = "bound")]
    pub(crate) keep: Option<u64>,
    /// Remove the oldest runs until the file is no larger: 500MB, 1GB, 2GiB.
    #[arg(long, value_name = "SIZE", group = "bound", value_parser = crate::quantity::size)]
    pub(crate) max_size: Option<u64>,
    /// Also remove runs that have not ended, if no process drives them.
    #[arg(long)]
    pub(crate) unfinished: bool,
    /// Only say what would be removed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Where the runs are kept [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

/// A bound that `off` lifts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound(pub(crate) Option<u64>);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The run: its id, the beginning of it, `last`, or a file that `endstop run --events` wrote.
    #[arg(default_value = "last")]
    pub(crate) run: PathBuf,
    /// Write a page of one file with a picture of the run.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace the file of --html if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Where the runs are kept [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Files with sessions, and folders of them; `-` for standard input.
    #[arg(value_name = "PATH", required_unless_present = "find")]
    pub(crate) paths: Vec<PathBuf>,
    /// Look in the places where agents keep their sessions, and say which those are.
    #[arg(long)]
    pub(crate) find: bool,
    /// The format of the files: claude-code, codex … [default: each file's own is found out].
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Only sessions that went on after this: 7d, 12h, or a day as 2026-11-21.
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// How many of the worst sessions are told.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Write a page of one file, with a picture of how they ended.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Replace the file of --report if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A replay says what a stop would have done. What a nudge would have changed \
    nobody knows."
)]
pub(crate) struct BacktestArgs {
    /// Recorded runs: files and folders of any format that is read, a journal of `endstop run`, or `-`.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// What is tried: `default`, `reference`, or a list of candidates in a .json or .toml file.
    #[arg(long, value_name = "SET")]
    pub(crate) policies: Option<String>,
    /// Try this rule or policy: a name, NAME={json config}, or a JSON object. May be repeated.
    #[arg(long = "policy", value_name = "SPEC")]
    pub(crate) policy: Vec<String>,
    /// Try limits, all of them together: max_turns=20. May be repeated.
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub(crate) limits: Vec<String>,
    /// Try each detector at several strengths, and caps on turns.
    #[arg(long)]
    pub(crate) sweep: bool,
    /// Choose a threshold of each rule under which at most this share of good tasks is stopped:
    /// alpha=0.05.
    #[arg(long, value_name = "alpha=SHARE", value_parser = alpha)]
    pub(crate) calibrate: Option<f64>,
    /// The share of good runs that a recommendation may stop.
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = share)]
    pub(crate) max_harm: f64,
    /// Show one run: its steps, where each candidate fires, and what a stop there would have saved.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["report", "parquet", "write"])]
    pub(crate) explain: Option<String>,
    /// The format of the files, where it is not to be found out.
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Whether runs succeeded, where their recordings do not say: JSON or CSV, by run id.
    #[arg(long, value_name = "FILE")]
    pub(crate) outcomes: Option<PathBuf>,
    /// Refuse anything that cannot be read or judged: a run without an outcome, one that is there twice,
    /// steps out of order.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write a page of one file with a picture of what each candidate saves and costs.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write a table with a row a run: the step at which each candidate fires.
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write the recommended setting, or the calibrated one, for `endstop run --config`.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) write: Option<PathBuf>,
    /// Replace the files that are written if they exist and are not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// What the rule that is written does when it fires: observe, warn, nudge, stop [default: observe].
    #[arg(long, value_name = "MODE", requires = "write", value_parser = mode)]
    pub(crate) mode: Option<endstop::WatchMode>,
}

/// A share from 0 to 1: `0.01`, `1%`.
fn share(text: &str) -> Result<f64, &'static str> {
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share: Option<f64> = number.trim().parse().ok();
    share
        .map(|share| share / of)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or("wants a share from 0 to 1, or a percentage: 0.01, 1%")
}

/// `alpha=0.05`, or the share alone.
fn alpha(text: &str) -> Result<f64, &'static str> {
    share(text.strip_prefix("alpha=").unwrap_or(text))
        .ok()
        .filter(|alpha| *alpha > 0.0 && *alpha < 1.0)
        .ok_or("wants alpha=SHARE, a share between 0 and 1: alpha=0.05")
}

fn mode(text: &str) -> Result<endstop::WatchMode, String> {
    let known = endstop::WatchMode::ALL;
    known.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
        let names = known.map(endstop::WatchMode::as_str).join(", ");
        format!("is no mode; known are {names}")
    })
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProvidersArgs {
    /// Show one provider: its endpoint, its keys, its finish values and where each leads.
    pub(crate) name: Option<String>,
    /// Also list its models, as far as they are known, with their context windows and output caps.
    #[arg(long, requires = "name")]
    pub(crate) models: bool,
}

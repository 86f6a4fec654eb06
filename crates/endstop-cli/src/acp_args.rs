//! The arguments of `endstop acp`.

use crate::http_args::HttpArgs;
use crate::limit_args::LimitArgs;
use crate::param_args::ParamArgs;
use crate::quantity::tokens;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "The editor starts this command and talks to it; nothing else may be printed on standard \
        output. Each session reads the settings of its folder, as `endstop run` there would, and asks before \
        each tool call.\n\nExample, in the settings of an editor: {\"command\": \"endstop\", \"args\": \
        [\"acp\", \"--model\", \"anthropic/claude-sonnet-4-5\", \"--max-budget-usd\", \"2\"]}"
)]
pub(crate) struct AcpArgs {
    /// The model, as PROVIDER/MODEL, for example anthropic/claude-sonnet-4-5.
    #[arg(long, short)]
    pub(crate) model: Option<String>,
    /// The wire format, if it is not the provider's default: see `endstop run --help`.
    #[arg(long)]
    pub(crate) api: Option<String>,
    /// The address of an OpenAI-compatible server or, with --api, of a server that speaks that
    /// format.
    #[arg(long)]
    pub(crate) base_url: Option<String>,
    /// Send keys and headers over http:// to another machine, even though the connection is not
    /// encrypted.
    #[arg(long)]
    pub(crate) allow_http: bool,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Instructions for the model.
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// A tool that the model may use: shell, read_file, write_file. May be repeated. [default: the
    /// tools of the settings, or all three]
    #[arg(long = "tool", value_name = "NAME", conflicts_with = "no_tools")]
    pub(crate) tools: Vec<String>,
    /// Offer no built-in tool.
    #[arg(long)]
    pub(crate) no_tools: bool,
    /// An MCP server whose tools the model may use, in addition to those of the editor:
    /// NAME=COMMAND, for the shell, or NAME=https://… May be repeated.
    #[arg(long, value_name = "SERVER")]
    pub(crate) mcp: Vec<String>,
    /// Run tool calls without asking.
    #[arg(long)]
    pub(crate) no_ask: bool,
    /// A termination policy: a name, NAME={json config}, a JSON object, or a TOML file.
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: Option<String>,
    /// A rule that watches each run, and what it does when it fires: see `endstop run --help`.
    #[arg(long = "watch", value_name = "MODE:RULE")]
    pub(crate) watches: Vec<String>,
    /// The output cap of each model call, in tokens.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) max_output_tokens: Option<u64>,
    #[command(flatten)]
    pub(crate) params: ParamArgs,
    /// A command that checks the work before a run may end with success; needs --verify-rounds.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// The journal file that stores the runs, or `off` [default: journal.db in the user's state
    /// folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// The model's price in US dollars per million tokens: in=3,out=15.
    #[arg(long, value_name = "PRICE")]
    pub(crate) price: Option<String>,
    /// The model's context window, in tokens.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) context_window: Option<u64>,
    /// Strategies that shorten the conversation: see `endstop run --help`.
    #[arg(long, value_name = "HOW")]
    pub(crate) compact: Option<String>,
    /// Request whole responses instead of streams.
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Read this settings file instead of the endstop.toml of each session's folder, and trust all
    /// of it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

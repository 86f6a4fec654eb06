//! The arguments of `endstop branch`.

use crate::http_args::HttpArgs;
use crate::limit_args::LimitArgs;
use crate::param_args::ParamArgs;
use crate::quantity::tokens;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "The branch begins with the conversation that the run had after that turn, and pays only \
        for what it does itself. No tool of those turns runs again; what they have changed outside the run is not \
        undone. Settings come from the stored run; flags override them. Limits count from zero.\n\nExample: \
        endstop branch 7kq2m9xe0p --at 12 --message \"Run the tests first.\" --max-turns 20"
)]
pub(crate) struct BranchArgs {
    /// The run to branch from: its id, a prefix of the id, or `last`.
    pub(crate) run: String,
    /// The last turn that the branch keeps, from 1; 0 keeps the task only.
    #[arg(long, value_name = "TURN")]
    pub(crate) at: u32,
    /// A message that the model reads after that turn. It is required if the run had its answer there.
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Another model, as PROVIDER/MODEL.
    #[arg(long, short)]
    pub(crate) model: Option<String>,
    /// Models to fall back to, instead of those of the run; `off` for none. May be repeated.
    #[arg(long, value_name = "MODEL")]
    pub(crate) fallback: Vec<String>,
    /// The wire format, if it is not the provider's default.
    #[arg(long)]
    pub(crate) api: Option<String>,
    /// The address of the model's server.
    #[arg(long)]
    pub(crate) base_url: Option<String>,
    /// Send keys and headers over http:// to another machine, even though the connection is not
    /// encrypted.
    #[arg(long)]
    pub(crate) allow_http: bool,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Other instructions for the model; they need --accept-changes.
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// The tools that the model may use, instead of those of the run; they need --accept-changes.
    /// May be repeated.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Ask before each tool call: on the terminal, or with `park`: store the request in the journal,
    /// and exit with status 75.
    #[arg(long, value_name = "HOW", value_parser = ["terminal", "park"])]
    pub(crate) ask: Option<String>,
    /// A command that runs when the branch is parked or has ended; it reads a line of JSON from its
    /// standard input.
    #[arg(long, value_name = "CMD")]
    pub(crate) notify: Option<String>,
    /// The folder that tools work in; it is not a sandbox.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Another termination policy: a name, NAME={json config}, a JSON object, or a TOML file.
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: Option<String>,
    /// A rule that watches the branch, for example stop:stuck; or `off`. May be repeated.
    #[arg(long = "watch", value_name = "MODE:RULE")]
    pub(crate) watches: Vec<String>,
    /// The output cap of each model call, in tokens.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) max_output_tokens: Option<u64>,
    #[command(flatten)]
    pub(crate) params: ParamArgs,
    /// A command that checks the work after the branch has succeeded.
    #[arg(long, value_name = "CMD")]
    pub(crate) verify: Option<String>,
    /// Print only the final answer to standard output.
    #[arg(long)]
    pub(crate) answer_only: bool,
    /// Write every event of the branch to this file, as JSON Lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Replace the file of --events if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Branch although the tools, the instructions or the schema differ from those of the run.
    #[arg(long)]
    pub(crate) accept_changes: bool,
    /// With a journal that is not your own: start the commands, use the tools and contact the hosts
    /// that are stored with the run.
    #[arg(long)]
    pub(crate) trust_journal: bool,
    /// Branch although secrets were removed from the conversation when it was journalled: the model
    /// receives `[redacted]` instead.
    #[arg(long)]
    pub(crate) accept_redacted: bool,
    /// The journal file, which also stores the branch [default: journal.db in the user's state
    /// folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// The model's price in US dollars per million tokens: in=3,out=15.
    #[arg(long, value_name = "PRICE")]
    pub(crate) price: Option<String>,
    /// The project of the branch, instead of that of the run: its ceilings per day apply.
    #[arg(long, value_name = "NAME", value_parser = crate::spend_args::project)]
    pub(crate) project: Option<String>,
    /// The model's context window, in tokens.
    #[arg(long, value_name = "N", value_parser = tokens, allow_negative_numbers = true)]
    pub(crate) context_window: Option<u64>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

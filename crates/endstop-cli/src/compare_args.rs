//! The arguments of `endstop compare`.

use std::path::PathBuf;

#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum CompareCommand {
    /// Compare two policies on the same recorded runs, within each run.
    Policies(PoliciesArgs),
    /// Compare single runs: their endings, their costs, and where they diverge.
    Runs(RunsArgs),
    /// Compare two sets of runs, for example of two versions of an agent, within each task.
    Sets(SetsArgs),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A and B are a candidate of `endstop backtest` by its name, such as same_error(3) or \
        stuck(3,4,-,7); a policy or rule as in `--policy`, such as repeat_call={\"times\":3}; limits, such as \
        limits:max_turns=20,max_budget_usd=0.5; or none, the runs as they were recorded.\n\n\
        Example: endstop compare policies none limits:max_turns=12 runs/ --report compare.html"
)]
pub(crate) struct PoliciesArgs {
    /// The first policy.
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The second policy.
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// Recorded runs: files and folders in any supported format, or `-`.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The first run is compared with each of the others. A branch is compared from its first \
        turn on: its own turns follow those of the run that it branched from.\n\nExample: endstop compare runs \
        7kq2m9xe0p last --report runs.html"
)]
pub(crate) struct RunsArgs {
    /// The runs, two or more: an id, a prefix of it, `last`, or a file written by `--events`.
    #[arg(required = true, num_args = 2.., value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write a self-contained HTML page.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Replace the file of --report if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The journal file [default: journal.db in the user's state folder].
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Runs of the same task id belong together, or of the same run id if they have no task. \
        Give folders or files; several files of one version belong into one folder. Each task counts once, \
        however many runs it has.\n\nExample: endstop compare sets runs-v1/ runs-v2/ --report compare.html"
)]
pub(crate) struct SetsArgs {
    /// The runs of the first version: a file or a folder in any supported format.
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The runs of the second version.
    #[arg(value_name = "B")]
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CommonArgs {
    /// The format of the files [default: detected for each file].
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// A file that states which runs succeeded, if their recordings do not, as for `endstop backtest`.
    #[arg(long, value_name = "FILE")]
    pub(crate) outcomes: Option<PathBuf>,
    /// Write a self-contained HTML page with a chart of the differences.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Replace the file of --report if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

//! The arguments of `endstop conform`.

use crate::quantity;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The program runs in fresh folders, without the keys and logins of its user; its calls to other hosts \
        through a proxy are refused and reported. Exit status: 0 if it has the level (or, with --only, if no chosen MUST \
        fails; or, with --baseline, if nothing differs), 1 if not, 2 for usage or bad input.\n\nExample: endstop conform --level 2 -- claude"
)]
pub(crate) struct ConformArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConformCommand>,
    /// The program and its arguments, after `--`. A word `{task}` is replaced by the task; without it, the profile
    /// adds its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
    /// The profile: a name, or a TOML file. [default: by the name of the program; `generic` judges by exit status,
    /// output and side effects]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Start the program under `endstop guard`, whose limits, status and events are then judged. `diff` with the result
    /// without it shows what guard changes.
    #[arg(long)]
    pub(crate) guarded: bool,
    /// The level to reach, 1 to 4. Checks of higher levels are not run. [default: 4]
    #[arg(long, value_name = "N", value_parser = level, conflicts_with = "only")]
    pub(crate) level: Option<endstop_conform::Level>,
    /// Only these checks, for example T-01. May be repeated.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Time from the first call of a run after which it is stopped. A check that allows more is then not reached.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::patience)]
    pub(crate) patience: Duration,
    /// Number of runs at a time. [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) jobs: Option<u16>,
    /// A number in the task and in the report, so that two runs of the suite differ in it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A file with the ids that are expected to fail, one in each line. Exit status 1 if another MUST fails or is not
    /// reached, or if one of them passes.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write a report. The end of the name selects its form: .json, .xml (JUnit), .md or .html. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Vec<PathBuf>,
    /// Write a badge, in the JSON that shields.io reads.
    #[arg(long, value_name = "FILE")]
    pub(crate) badge: Option<PathBuf>,
    /// Replace the files of --report and --badge, even if they are not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// A variable of this shell that the program gets in addition to those for paths and languages. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) pass: Vec<String>,
    /// Start the program in this folder and with this home, and not in fresh ones. It may change both.
    #[arg(long)]
    pub(crate) in_place: bool,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum ConformCommand {
    /// List the checks, with their level and what is expected, and the names that a profile may have.
    List,
    /// Show a check with its cases, or the file of a case.
    Show(ShowArgs),
    /// Serve one case to the programs of another test suite, until it is stopped.
    Provider(ProviderArgs),
    /// Write the pages of a book for the results of several programs: tables, and a page of evidence for each program.
    Pages(PagesArgs),
    /// Compare two results that --json or --report wrote. Exit status 1 if a check is worse.
    Diff(DiffArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of a check, for example T-01, or the name of a case, for example cut-text.
    pub(crate) id: String,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProviderArgs {
    /// The case: its name, or the id of a check, whose first case is served.
    #[arg(long, value_name = "ID")]
    pub(crate) case: String,
    /// A folder for the files of started bodies. [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PagesArgs {
    /// The folder of the pages: `tables.md`, and one for each program.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Replace files of the folder, even if they are not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The results, in JSON. Several of one program become one: a check has the verdict of a result that reached it, and is
    /// marked if two of them differ.
    #[arg(required = true, value_name = "RESULT")]
    pub(crate) results: Vec<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// The earlier result.
    pub(crate) before: PathBuf,
    /// The later result.
    pub(crate) after: PathBuf,
}

fn level(text: &str) -> Result<endstop_conform::Level, String> {
    let number: u8 = text.parse().map_err(|_| "expected a level, 1 to 4".to_owned())?;
    endstop_conform::Level::try_from(number)
}

//! The arguments of the commands that read recorded runs: `audit` and `backtest`.

use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Files and folders with sessions; `-` for standard input.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Search the default session folders of known agents, and print which were searched.
    #[arg(long)]
    pub(crate) find: bool,
    /// The format of the files: claude-code, codex … [default: detected for each file].
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Only sessions that were active after this: 7d, 12h, or a day such as 2026-11-21.
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
    /// Number of worst sessions to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Write a self-contained HTML page with a chart of how the sessions ended.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Replace the file of --report if it exists and is not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A replay shows what a stop would have done. It cannot show what the model would \
        have done after a nudge.\n\nExamples:\n  \
        Which max_turns?           endstop backtest runs/ --limit max_turns=5..40 --report limits.html\n  \
        What would $0.50 do?       endstop backtest runs/ --limit max_budget_usd=0.1,0.2,0.5\n  \
        Which detector?            endstop backtest runs/ --sweep\n  \
        A rule with a promise:     endstop backtest runs/ --calibrate alpha=0.05 --write rule.toml\n  \
        This rule or that one?     endstop compare policies 'stuck(2,4,3,7)' 'same_error(3)' runs/\n  \
        Is the new version worse?  endstop compare sets runs-v1/ runs-v2/"
)]
pub(crate) struct BacktestArgs {
    /// Recorded runs: files and folders in any supported format, a journal of `endstop run`, or
    /// `-`.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The candidates to try: `default`, `reference`, or a .json or .toml file that lists them.
    #[arg(long, value_name = "SET")]
    pub(crate) policies: Option<String>,
    /// Try this rule or policy: a name, a rule as reports show it, such as stuck(3,4,-,7),
    /// NAME={json config}, or a JSON object. May be repeated.
    #[arg(long = "policy", value_name = "SPEC")]
    pub(crate) policy: Vec<String>,
    /// Try limits, several as one candidate: max_turns=20. A range or a list of values is shown as a
    /// curve: max_turns=5..40, max_budget_usd=0.1,0.2,0.5. May be repeated.
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub(crate) limits: Vec<String>,
    /// Try each detector at several strengths, and caps on turns.
    #[arg(long)]
    pub(crate) sweep: bool,
    /// The field of a run that names its kind of task, for the figures by group: `dataset`, `task` (the
    /// task's id up to its last slash), `agent`, or a label [default: task, if it has few values].
    #[arg(long, value_name = "FIELD")]
    pub(crate) group_by: Option<String>,
    /// Choose for each model a rule that stops a good run in at most this share of good tasks of each
    /// kind: alpha=0.05.
    #[arg(long, value_name = "alpha=SHARE", value_parser = alpha)]
    pub(crate) calibrate: Option<f64>,
    /// Maximum share of good runs that a recommendation may stop.
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = share)]
    pub(crate) max_harm: f64,
    /// Show one run: its steps, the step at which each candidate fires, and what a stop there would
    /// have saved.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["report", "write"])]
    pub(crate) explain: Option<String>,
    /// Choose N runs that the candidate would have stopped, and print the commands that continue them
    /// from there. The candidate is the only one, or the recommended one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), conflicts_with = "explain")]
    pub(crate) branch: Option<u16>,
    /// The format of the files [default: detected for each file].
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// A file that states which runs succeeded, if their recordings do not: JSON such as {"run-1":
    /// true, "run-2": false}, lines such as {"id": "run-1", "success": true}, or CSV whose first
    /// line is `id,success`.
    #[arg(long, value_name = "FILE")]
    pub(crate) outcomes: Option<PathBuf>,
    /// Refuse anything that cannot be read or evaluated: a run without an outcome, a duplicate run,
    /// steps out of order.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Write a self-contained HTML page with a chart of what each candidate saves and costs.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write a table with one row for each run: the step at which each candidate fires.
    #[cfg(feature = "parquet")]
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) parquet: Option<PathBuf>,
    /// With --calibrate and --write: the model whose rule is written, if the runs have several.
    #[arg(long, value_name = "MODEL", requires_all = ["calibrate", "write"])]
    pub(crate) model: Option<String>,
    /// Write the recommended setting, or the calibrated one, to a file for `endstop run --config`.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) write: Option<PathBuf>,
    /// Replace existing output files that are not empty.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The mode of the written rule when it fires: observe, warn, nudge, stop [default: observe].
    #[arg(long, value_name = "MODE", requires = "write", value_parser = mode)]
    pub(crate) mode: Option<endstop::WatchMode>,
}

/// Parses a share from 0 to 1: `0.01`, `1%`.
fn share(text: &str) -> Result<f64, &'static str> {
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share: Option<f64> = number.trim().parse().ok();
    share
        .map(|share| share / of)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or("expected a share from 0 to 1 or a percentage, for example 0.01 or 1%")
}

/// Parses `alpha=0.05`, or the share alone. The ends of the range are refused because no threshold
/// can be calibrated for them.
fn alpha(text: &str) -> Result<f64, &'static str> {
    share(text.strip_prefix("alpha=").unwrap_or(text))
        .ok()
        .filter(|alpha| *alpha > 0.0 && *alpha < 1.0)
        .ok_or("expected alpha=SHARE with a share between 0 and 1, for example alpha=0.05")
}

fn mode(text: &str) -> Result<endstop::WatchMode, String> {
    let known = endstop::WatchMode::ALL;
    known.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
        let names = known.map(endstop::WatchMode::as_str).join(", ");
        format!("unknown mode; expected one of {names}")
    })
}

//! The figures of a dataset as rows of cells; the terminal and the page lay them out differently.

use super::format;
use super::report::{Report, Strength};
use crate::amounts::thousands;
use endstop_trajectory::backtest::{CandidateFigures, Cap, DatasetFigures, Share};

/// Number of candidates up to which a dataset that is one of several shows all of them.
const FEW: usize = 14;
/// Number of candidates that it shows otherwise.
const BEST: usize = 8;

/// A count of runs, its share, and the confidence interval.
pub(crate) struct Runs {
    pub(crate) count: String,
    pub(crate) share: String,
    pub(crate) between: String,
}

impl Runs {
    /// The cells of a candidate that could evaluate no run.
    fn no_data() -> Runs {
        let none = || "–".to_owned();
        Runs { count: none(), share: "no data".to_owned(), between: none() }
    }
}

/// The results of one candidate, formatted.
pub(crate) struct Row {
    pub(crate) name: String,
    /// Good runs stopped.
    pub(crate) good: Runs,
    /// Good runs with at least four steps stopped.
    pub(crate) good4: Runs,
    /// Failed runs stopped.
    pub(crate) failed: Runs,
    /// Steps saved.
    pub(crate) steps: String,
    pub(crate) saved: String,
    pub(crate) tokens: String,
    pub(crate) usd: String,
    /// The share of failed runs stopped minus that of good runs, within the same task.
    pub(crate) paired: String,
    /// Support of the runs, for the recommended candidate.
    pub(crate) best: Option<Strength>,
    /// `true` for a baseline, with which the candidates are compared.
    pub(crate) baseline: bool,
    /// `true` if it stops more good runs than allowed.
    pub(crate) harms: bool,
}

/// Returns the candidates of a dataset that are shown.
pub(crate) fn shown<'d>(report: &Report, dataset: &'d DatasetFigures) -> Vec<&'d CandidateFigures> {
    let whole = report.whole().is_some_and(|whole| whole.name == dataset.name);
    let few = dataset.candidates.len() <= FEW;
    if few || whole && !report.sweep {
        return dataset.candidates.iter().collect();
    }
    let best = report.recommended().map(|one| one.name.as_str());
    let mut front: Vec<String> = dataset.pareto().into_iter().map(|point| point.name).collect();
    if !whole {
        // The front begins with the least harmful candidates; its end stops too many good runs to
        // be useful.
        front.truncate(BEST);
    }
    dataset
        .candidates
        .iter()
        .filter(|one| front.contains(&one.name) || best == Some(one.name.as_str()))
        .collect()
}

/// Returns the rows of a dataset, with the two baselines last.
pub(crate) fn rows(report: &Report, dataset: &DatasetFigures) -> Vec<Row> {
    let best = report.recommended().map(|one| one.name.as_str());
    let mut shown = shown(report, dataset);
    if report.sweep {
        let harm = |one: &CandidateFigures| one.harm().value.unwrap_or(0.0);
        // A sweep has many candidates, so they are ordered as on the front: by harm, then by
        // savings.
        shown.sort_by(|a, b| harm(a).total_cmp(&harm(b)).then(a.net.total_cmp(&b.net)));
    }
    let mut rows: Vec<Row> = shown
        .into_iter()
        .map(|one| {
            let strength = report.strength().filter(|_| best == Some(one.name.as_str()));
            candidate(one, dataset, strength, report.max_harm)
        })
        .collect();
    rows.push(cap(baseline(report, dataset), dataset, report.max_harm));
    rows.push(nothing(dataset));
    rows
}

fn runs(stopped: u64, share: &Share) -> Runs {
    Runs { count: thousands(stopped), share: format::seen(share), between: format::between(share) }
}

fn harms(shares: [&Share; 2], most: f64) -> bool {
    shares.iter().any(|share| share.value.is_some_and(|value| value > most))
}

fn candidate(
    one: &CandidateFigures,
    dataset: &DatasetFigures,
    best: Option<Strength>,
    most: f64,
) -> Row {
    // For a candidate that could evaluate no run, 0 % would be a false claim.
    let lacks = one.lacking >= dataset.runs && one.counts.fired == 0;
    let paired = one.paired.filter(|_| !lacks).map_or_else(
        || "–".to_owned(),
        |paired| {
            // Rounded to an integer, because a float would print `-0`.
            let points = |share: f64| (share * 100.0).round() as i64;
            format!(
                "{:+} ({:+} to {:+})",
                points(paired.difference),
                points(paired.low),
                points(paired.high)
            )
        },
    );
    let runs = |stopped, share| if lacks { Runs::no_data() } else { runs(stopped, share) };
    Row {
        name: one.name.clone(),
        good: runs(killed(&one.good_killed, dataset.succeeded), &one.good_killed),
        good4: runs(killed(&one.good4_killed, dataset.succeeded_4), &one.good4_killed),
        failed: runs(one.counts.fail_stopped, &one.failed_stopped),
        steps: format::signed(one.net_steps),
        saved: if lacks { "no data".to_owned() } else { format::share(one.net) },
        tokens: one.net_tokens.map_or_else(|| "–".to_owned(), format::signed),
        usd: one.net_usd.map_or_else(|| "–".to_owned(), format::usd),
        // An interval over tasks requires at least two of them.
        paired: if dataset.mixed_tasks < 2 { "–".to_owned() } else { paired },
        best,
        baseline: false,
        harms: harms([&one.good_killed, &one.good4_killed], most),
    }
}

fn cap(cap: &Cap, dataset: &DatasetFigures, most: f64) -> Row {
    let unknown = || "–".to_owned();
    // Without an interval, because its lengths are not known by task.
    let runs = |stopped, share: &Share| Runs { between: unknown(), ..runs(stopped, share) };
    let failed = endstop_trajectory::backtest::share(cap.fail_stopped, dataset.failed);
    Row {
        name: cap_name(cap),
        good: runs(killed(&cap.good_killed, dataset.succeeded), &cap.good_killed),
        good4: runs(killed(&cap.good4_killed, dataset.succeeded_4), &cap.good4_killed),
        failed: runs(cap.fail_stopped, &failed),
        steps: format::signed(cap.net_steps),
        saved: format::share(cap.net),
        tokens: unknown(),
        usd: unknown(),
        paired: unknown(),
        best: None,
        baseline: true,
        harms: harms([&cap.good_killed, &cap.good4_killed], most),
    }
}

/// Returns the cap that candidates are compared with: the best one that kills no more good runs than the
/// recommended candidate, or the 75th percentile if nothing is recommended.
pub(crate) fn baseline<'d>(report: &Report, dataset: &'d DatasetFigures) -> &'d Cap {
    let best = report.recommended().and_then(|one| dataset.candidate(&one.name));
    best.and_then(|one| one.equal_cap.as_ref()).unwrap_or(&dataset.cap)
}

/// Returns the name of the first baseline.
pub(crate) fn cap_name(cap: &Cap) -> String {
    format!("cap at {} turns", cap.turns)
}

/// Returns the number of runs of a share.
fn killed(share: &Share, of: u64) -> u64 {
    (share.value.unwrap_or(0.0) * of as f64).round() as u64
}

fn nothing(dataset: &DatasetFigures) -> Row {
    let none = || Runs { count: "0".into(), share: format::share(0.0), between: "–".into() };
    let known = |known: bool, zero: &str| if known { zero.to_owned() } else { "–".to_owned() };
    Row {
        name: "doing nothing".to_owned(),
        good: none(),
        good4: none(),
        failed: none(),
        steps: "0".to_owned(),
        saved: format::share(0.0),
        tokens: known(dataset.tokens.is_some(), "0"),
        usd: known(dataset.usd.is_some(), "$0.00"),
        paired: "–".to_owned(),
        best: None,
        baseline: true,
        harms: false,
    }
}

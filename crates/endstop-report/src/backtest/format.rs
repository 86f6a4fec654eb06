//! Text shared by the page and the terminal report of a backtest: shares, money, the recommendation
//! and its confidence.

use super::report::Report;
use crate::amounts::{count, thousands};
use endstop_core::Limits;
use endstop_trajectory::backtest::{
    CandidateFigures, DatasetFigures, Share, Trial, Unjudged, Verdict,
};

/// Formats a share as a percentage: `31 %`, `0.3 %`.
pub(crate) fn share(share: f64) -> String {
    format!("{} %", percent(share))
}

/// Formats the percentage alone, with as many digits as are meaningful.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.0 {
        format!("-{}", self::percent(-share))
    } else if percent == 0.0 {
        "0".to_owned()
    } else if (percent - percent.round()).abs() < 1e-9 {
        // Whole percentages have no decimals; the tolerance is for results such as 0.1 + 0.2.
        format!("{percent:.0}")
    } else if percent.abs() < 0.01 {
        // A share above zero must not be shown as zero.
        "<0.01".to_owned()
    } else if percent.abs() < 0.1 {
        format!("{percent:.2}")
    } else if percent.abs() < 9.95 {
        // From 9.95 on, one decimal would be rounded to `10.0`, which is longer than what follows.
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

/// Formats an observed share; `–` if there were no runs.
pub(crate) fn seen(of: &Share) -> String {
    of.value.map_or_else(|| "–".to_owned(), share)
}

/// Formats the 95 % confidence interval; `–` if there were no runs.
pub(crate) fn between(share: &Share) -> String {
    match share.value {
        Some(_) => format!("{}–{} %", percent(share.low), percent(share.high)),
        None => "–".to_owned(),
    }
}

/// Formats a count in at most six characters: `12,345`, `1.2M`.
pub(crate) fn short(n: u64) -> String {
    match n {
        0..=99_999 => thousands(n),
        100_000..=999_999 => format!("{}k", n / 1000),
        1_000_000..=99_999_999 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.0}M", n as f64 / 1e6),
    }
}

/// Formats a difference of counts as [`short`] does.
pub(crate) fn signed(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", short(n.unsigned_abs()))
}

/// Formats dollars; small amounts get four decimals.
pub fn usd(usd: f64) -> String {
    if usd < 0.0 {
        format!("-{}", self::usd(-usd))
    } else if usd >= 1000.0 {
        format!("${}", thousands(usd.round() as u64))
    } else if usd == 0.0 || usd >= 0.1 {
        format!("${usd:.2}")
    } else {
        format!("${usd:.4}")
    }
}

/// Describes the effect of a candidate in one sentence, with all figures.
pub(crate) fn effect(one: &CandidateFigures, whole: &DatasetFigures) -> String {
    format!(
        "it stops {} of {}, {} (95 %: {}), of those with 4 steps or more {} of {}, {} (95 %: {}), and saves {} of all steps ({} of {}): {} of {} stopped",
        thousands(killed(&one.good_killed, whole.succeeded)),
        count(whole.succeeded, "good run"),
        seen(&one.good_killed),
        between(&one.good_killed),
        thousands(killed(&one.good4_killed, whole.succeeded_4)),
        thousands(whole.succeeded_4),
        seen(&one.good4_killed),
        between(&one.good4_killed),
        share(one.net),
        signed(one.net_steps),
        thousands(whole.steps),
        thousands(one.counts.fail_stopped),
        count(whole.failed, "failed run"),
    )
}

/// Returns the number of runs of a share.
fn killed(share: &Share, of: u64) -> u64 {
    // The share was computed from this count, so rounding returns it exactly.
    (share.value.unwrap_or(0.0) * of as f64).round() as u64
}

/// Formats the label in a chart: `stuck(2,4,3): saves 31 % of steps, stops 0.3 % of good runs (95
/// %: 0.1–0.9 %)`.
pub(crate) fn label(one: &CandidateFigures) -> [String; 3] {
    [
        one.name.clone(),
        format!("saves {} of steps,", share(one.net)),
        format!(
            "stops {} of {} (95 %: {})",
            seen(&one.harm()),
            if one.harms_long_runs_more() { "long good runs" } else { "good runs" },
            between(&one.harm())
        ),
    ]
}

/// Lists the reasons for caution about a recommendation.
pub(crate) fn doubts(
    report: &Report,
    one: &CandidateFigures,
    whole: &DatasetFigures,
) -> Vec<String> {
    let mut doubts = Vec::new();
    let harm = one.harm();
    if harm.high > report.max_harm {
        let runs = if one.harms_long_runs_more() {
            format!("{} of 4 steps or more", count(whole.succeeded_4, "good run"))
        } else if whole.good_tasks <= whole.succeeded / 2 && whole.tasks_left_out == 0 {
            // Ten runs of a task tell less than ten tasks, which explains a bound that looks too high.
            let tasks = count(whole.good_tasks, "good task");
            format!("{} ({tasks})", count(whole.succeeded, "good run"))
        } else {
            count(whole.succeeded, "good run")
        };
        doubts.push(format!(
            "With your {runs} at most {} can be promised, not {}.",
            share(harm.high),
            share(report.max_harm)
        ));
    }
    if whole.succeeded_4 == 0 {
        doubts.push(
            "No good run has 4 steps or more, so nothing can be promised for long ones.".to_owned(),
        );
    }
    for dataset in report.figures.datasets.iter().filter(|dataset| dataset.name != whole.name) {
        let there = dataset
            .candidate(&one.name)
            .filter(|there| there.harm().value.is_some_and(|value| value > report.max_harm));
        if let Some(there) = there {
            doubts.push(format!(
                "In {} alone it stops {} of {}, {} of them.",
                dataset.name,
                thousands(killed(&there.good_killed, dataset.succeeded)),
                count(dataset.succeeded, "good run"),
                seen(&there.good_killed)
            ));
        }
    }
    if let (Verdict::WorseThanACap, Some(cap)) = (one.verdict, &one.equal_cap)
        // A cap on turns is not worse than itself.
        && !is_cap(report, &one.name)
    {
        doubts.push(format!(
            "A plain cap at {} stops no more good runs and saves as much or more.",
            count(u64::from(cap.turns), "turn")
        ));
    }
    if one.done_stopped > 0 {
        doubts.push(format!(
            "{} after the reward was full {} not counted: nothing was lost.",
            count(one.done_stopped, "stop"),
            if one.done_stopped == 1 { "is" } else { "are" }
        ));
    }
    let tried = whole.candidates.len();
    if tried > 1 {
        doubts.push(format!(
            "It is the best of {tried} on these runs, so it looks better here than it will on other runs; --calibrate reports results for tasks that were not used to choose the threshold."
        ));
    }
    doubts.extend(lacking(&one.name, one.lacking, one.lacking_in_part));
    doubts
}

/// Returns `true` if a candidate is a cap on turns itself: the rule, or the limit.
fn is_cap(report: &Report, name: &str) -> bool {
    let candidate = report.candidates.iter().find(|candidate| candidate.name == name);
    match candidate.map(|candidate| &candidate.trial) {
        Some(Trial::Rule(rule)) => rule.name() == "max_steps",
        Some(Trial::Kernel(setting)) => {
            let cap = Limits { max_turns: setting.limits.max_turns, ..Limits::none() };
            setting.limits == cap && setting.policy.is_none() && setting.watches.is_empty()
        }
        None => false,
    }
}

/// Describes the runs without the data that a candidate needs, and the runs with only part of it.
fn lacking(name: &str, all: u64, part: u64) -> Vec<String> {
    let mut said = Vec::new();
    if all > 0 {
        let runs = count(all, "run");
        said.push(format!("{name} could not fire in {runs}: the data it needs was not recorded."));
    }
    if part > 0 {
        let runs = count(part, "run");
        said.push(format!(
            "{name} evaluated {runs} in part: some of the data it needs was not recorded."
        ));
    }
    said
}

/// Returns these lines for at most `most` candidates, those that lack data in most runs first.
pub(crate) fn all_lacking<'c>(
    candidates: impl Iterator<Item = (&'c str, u64, u64)>,
    most: usize,
) -> Vec<String> {
    let mut lack: Vec<_> = candidates.filter(|(_, all, part)| all + part > 0).collect();
    lack.sort_by_key(|(_, all, part)| std::cmp::Reverse((*all, *part)));
    let shown = lack.iter().take(most);
    let mut said: Vec<String> =
        shown.flat_map(|(name, all, part)| lacking(name, *all, *part)).collect();
    if lack.len() > most {
        let more = count((lack.len() - most) as u64, "candidate");
        said.push(format!("The same holds for {more} more."));
    }
    said
}

/// Returns the candidates of a dataset with runs that lack data, for [`all_lacking`].
pub(crate) fn of_judged(dataset: &DatasetFigures) -> impl Iterator<Item = (&str, u64, u64)> {
    dataset.candidates.iter().map(|one| (one.name.as_str(), one.lacking, one.lacking_in_part))
}

/// Returns the same for a dataset without outcomes.
pub(crate) fn of_unjudged(dataset: &Unjudged) -> impl Iterator<Item = (&str, u64, u64)> {
    dataset.lacking.iter().map(|(name, all, part)| (name.as_str(), *all, *part))
}

/// Formats the steps that a candidate would have saved in runs without outcomes, or `no data` if it
/// could evaluate none.
pub(crate) fn saved_unjudged(dataset: &Unjudged, name: &str, saved: u64) -> String {
    // 0 saved steps would claim that the candidate was evaluated.
    let lacks = |(own, all, _): (&str, u64, u64)| own == name && all >= dataset.runs;
    if of_unjudged(dataset).any(lacks) { "no data".to_owned() } else { thousands(saved) }
}

/// Explains why there is no recommendation.
pub(crate) fn refusal(report: &Report) -> String {
    let least = report.figures.least_good_runs;
    match report.whole() {
        None => {
            "no run has an outcome, so good runs cannot be told from failed ones; pass them with --outcomes FILE"
                .to_owned()
        }
        Some(whole) if !whole.has_enough_good_runs() => format!(
            "{} of at least {least} that are needed: even if none of {least} is stopped, one in seven may be",
            count(whole.succeeded, "good run"),
        ),
        Some(whole) if whole.failed == 0 => {
            format!("none of {} failed, so a stop has nothing to save", count(whole.runs, "run"))
        }
        Some(_) => format!(
            "no candidate saves a step and stops at most {} of good runs, of all and of those with at least four steps",
            share(report.max_harm)
        ),
    }
}

/// A note on the limits of a replay.
pub(crate) const CANNOT_SAY: &str = "A replay shows what a stop would have done. It cannot show what would have changed \
    after a nudge or a user's answer, or whether a failed run would have recovered later.";

/// Returns a sentence with a capital letter at its begin.
pub(crate) fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Wraps text into lines of at most `most` characters, broken between words.
pub(crate) fn wrapped(text: &str, most: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    // A non-breaking space keeps a number together with its percent sign.
    let text = text.replace(" %", "\u{a0}%");
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(format!("{indent}{line}"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(format!("{indent}{line}"));
    }
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// Shortens a name to `most` characters by removing its middle, because similar candidates have the
/// same beginning.
pub fn fitted(name: &str, most: usize) -> String {
    let chars: Vec<char> =
        crate::visible::visible(name).replace(['\n', '\t'], " ").chars().collect();
    if chars.len() <= most {
        return chars.into_iter().collect();
    }
    let head = (most - 1) / 2;
    // One character is for the ellipsis.
    let tail = most - 1 - head;
    let (begin, end) = (&chars[..head], &chars[chars.len() - tail..]);
    begin.iter().chain(['…'].iter()).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_with_units() {
        for (of, says) in [
            (0.0, "0 %"),
            (0.000_01, "<0.01 %"),
            (0.000_5, "0.05 %"),
            (0.003_2, "0.3 %"),
            (0.099_6, "10 %"),
            (0.314, "31 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(share(of), says);
        }
        assert_eq!((short(12_345), short(123_456), short(1_234_567)), {
            ("12,345".to_owned(), "123k".to_owned(), "1.2M".to_owned())
        });
        assert_eq!((usd(0.0), usd(0.0123), usd(12.3)), {
            ("$0.00".to_owned(), "$0.0123".to_owned(), "$12.30".to_owned())
        });
        let nothing = Share { value: None, low: 0.0, high: 1.0 };
        assert_eq!((seen(&nothing), between(&nothing)), ("–".to_owned(), "–".to_owned()));
    }

    #[test]
    fn fitted_keeps_both_ends_of_names() {
        assert_eq!(fitted("any[repeat_call(3),no_new(3)]", 15), "any[rep…new(3)]");
        assert_eq!(fitted("stuck", 15), "stuck");
        assert_eq!(wrapped("one two three", 8, "  "), ["  one two", "  three"]);
        assert_eq!(wrapped("at most 95 %: no", 10, ""), ["at most", "95 %: no"]);
    }
}

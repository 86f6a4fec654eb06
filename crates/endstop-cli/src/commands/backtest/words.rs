//! What the page and the terminal say alike: shares, money, what is recommended and how sure that is.
//!
//! ```ignore
//! words::share(0.31)       // "31 %"
//! words::between(&share)   // "0.1–0.9 %"
//! ```

use super::Report;
use crate::card::{count, thousands};
use endstop_trajectory::backtest::{CandidateFigures, DatasetFigures, Share, Unjudged, Verdict};

/// A share as a percentage: `31 %`, `0.3 %`.
pub(super) fn share(share: f64) -> String {
    format!("{} %", percent(share))
}

/// The percentage alone, with as many digits as say something.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent == 0.0 {
        "0".to_owned()
    } else if (percent - percent.round()).abs() < 1e-9 {
        format!("{percent:.0}")
    } else if percent.abs() < 0.01 {
        "<0.01".to_owned()
    } else if percent.abs() < 0.1 {
        format!("{percent:.2}")
    } else if percent.abs() < 9.95 {
        format!("{percent:.1}")
    } else {
        format!("{percent:.0}")
    }
}

/// A share that was seen; `–` of nothing.
pub(super) fn seen(of: &Share) -> String {
    of.value.map_or_else(|| "–".to_owned(), share)
}

/// Between what it lies with 95 % confidence; `–` of nothing.
pub(super) fn between(share: &Share) -> String {
    match share.value {
        Some(_) => format!("{}–{} %", percent(share.low), percent(share.high)),
        None => "–".to_owned(),
    }
}

/// A count in at most six characters: `12,345`, `1.2M`.
pub(super) fn short(n: u64) -> String {
    match n {
        0..=99_999 => thousands(n),
        100_000..=999_999 => format!("{}k", n / 1000),
        1_000_000..=99_999_999 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.0}M", n as f64 / 1e6),
    }
}

/// Dollars, with cents where they count.
pub(super) fn usd(usd: f64) -> String {
    if usd >= 1000.0 {
        format!("${}", thousands(usd.round() as u64))
    } else if usd == 0.0 || usd >= 0.1 {
        format!("${usd:.2}")
    } else {
        format!("${usd:.4}")
    }
}

/// What a candidate does, in a sentence that needs no table.
pub(super) fn effect(one: &CandidateFigures, whole: &DatasetFigures) -> String {
    format!(
        "it stops {} of {}, {} (95 %: {}), of those with 4 steps or more {} of {}, {} (95 %: {}), and saves {} of all steps ({} of {}): {} of {} stopped",
        thousands(one.counts.succ_stopped),
        count(whole.succeeded, "good run"),
        seen(&one.good_stopped),
        between(&one.good_stopped),
        thousands(one.counts.succ4_stopped),
        thousands(whole.succeeded_4),
        seen(&one.good4_stopped),
        between(&one.good4_stopped),
        share(one.saved),
        thousands(one.counts.steps_saved),
        thousands(whole.steps),
        thousands(one.counts.fail_stopped),
        count(whole.failed, "failed run"),
    )
}

/// `stuck(2,4,3): saves 31 % of steps, stops 0.3 % of good runs (95 %: 0.1–0.9 %)`.
pub(super) fn label(one: &CandidateFigures) -> [String; 3] {
    [
        one.name.clone(),
        format!("saves {} of steps,", share(one.saved)),
        format!(
            "stops {} of {} (95 %: {})",
            seen(&one.harm()),
            if one.harms_long_runs_more() { "long good runs" } else { "good runs" },
            between(&one.harm())
        ),
    ]
}

/// What is to be said beside a recommendation.
pub(super) fn doubts(
    report: &Report,
    one: &CandidateFigures,
    whole: &DatasetFigures,
) -> Vec<String> {
    let mut doubts = Vec::new();
    let harm = one.harm();
    if harm.high > report.max_harm {
        let runs = if one.harms_long_runs_more() {
            format!("{} of 4 steps or more", count(whole.succeeded_4, "good run"))
        } else {
            count(whole.succeeded, "good run")
        };
        doubts.push(format!(
            "With {runs} it cannot be ruled out that it stops more than {} of them: up to {} is possible.",
            share(report.max_harm),
            share(harm.high)
        ));
    }
    for dataset in report.figures.datasets.iter().filter(|dataset| dataset.name != whole.name) {
        let there = dataset
            .candidate(&one.name)
            .filter(|there| there.harm().value.is_some_and(|value| value > report.max_harm));
        if let Some(there) = there {
            doubts.push(format!(
                "In {} alone it stops {} of {}, {} of them.",
                dataset.name,
                thousands(there.counts.succ_stopped),
                count(dataset.succeeded, "good run"),
                seen(&there.good_stopped)
            ));
        }
    }
    if one.verdict == Verdict::WorseThanACap {
        doubts.push(
            "A plain cap on turns that stops no more good runs would save as much or more."
                .to_owned(),
        );
    }
    let tried = whole.candidates.len();
    if tried > 1 {
        doubts.push(format!(
            "It is the best of {tried} on these runs, and looks better here than it will on others; --calibrate shows tasks that a threshold was not chosen on."
        ));
    }
    doubts.extend(lacking(&one.name, one.lacking, one.lacking_in_part));
    doubts
}

/// Runs that do not have what a candidate looks at, and those that have a part of it.
fn lacking(name: &str, all: u64, part: u64) -> Vec<String> {
    let mut said = Vec::new();
    if all > 0 {
        let runs = count(all, "run");
        said.push(format!(
            "{name} could not fire in {runs}: what it looks at is not recorded there."
        ));
    }
    if part > 0 {
        let runs = count(part, "run");
        said.push(format!(
            "{name} judged {runs} in part: some of what it looks at is not recorded there."
        ));
    }
    said
}

/// The same of those candidates, at most so many, of which it is so for most runs.
pub(super) fn all_lacking<'c>(
    candidates: impl Iterator<Item = (&'c str, u64, u64)>,
    most: usize,
) -> Vec<String> {
    let mut lack: Vec<_> = candidates.filter(|(_, all, part)| all + part > 0).collect();
    lack.sort_by_key(|(_, all, part)| std::cmp::Reverse((*all, *part)));
    let told = lack.iter().take(most);
    let mut said: Vec<String> =
        told.flat_map(|(name, all, part)| lacking(name, *all, *part)).collect();
    if lack.len() > most {
        let more = count((lack.len() - most) as u64, "candidate");
        said.push(format!("So it is for {more} more."));
    }
    said
}

/// The same of the candidates of a dataset, for [`all_lacking`].
pub(super) fn of_judged(dataset: &DatasetFigures) -> impl Iterator<Item = (&str, u64, u64)> {
    dataset.candidates.iter().map(|one| (one.name.as_str(), one.lacking, one.lacking_in_part))
}

/// And of runs that nobody judged.
pub(super) fn of_unjudged(dataset: &Unjudged) -> impl Iterator<Item = (&str, u64, u64)> {
    dataset.lacking.iter().map(|(name, all, part)| (name.as_str(), *all, *part))
}

/// The steps that a candidate would have saved of runs that nobody judged, where it could look at one.
pub(super) fn saved_unjudged(dataset: &Unjudged, name: &str, saved: u64) -> String {
    let lacks = |(own, all, _): (&str, u64, u64)| own == name && all >= dataset.runs;
    if of_unjudged(dataset).any(lacks) { "no data".to_owned() } else { thousands(saved) }
}

/// Why nothing is recommended.
pub(super) fn refusal(report: &Report) -> String {
    let least = report.figures.least_good_runs;
    match report.whole() {
        None => {
            "no run has an outcome, so nobody knows which were good: give them with --outcomes FILE"
                .to_owned()
        }
        Some(whole) if !whole.has_enough_good_runs() => format!(
            "{} of the at least {least} that it takes: if none of {least} is stopped, still one in seven may be",
            count(whole.succeeded, "good run"),
        ),
        Some(_) => format!(
            "no candidate saves a step and stops at most {} of good runs, of all and of those with at least four steps",
            share(report.max_harm)
        ),
    }
}

/// What a replay cannot say.
pub(super) const CANNOT_SAY: &str = "A replay knows what a stop does. What a nudge, or a person, would have changed \
    instead, nobody knows; nor whether a run that failed would have been repaired later.";

/// A text in lines of at most so many characters, cut between words.
pub(super) fn wrapped(text: &str, most: usize, indent: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    // A number stays with its sign of percent.
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

/// At most so many characters, the middle left out: names of one kind begin alike.
pub(super) fn fitted(name: &str, most: usize) -> String {
    let chars: Vec<char> = crate::card::visible(name).replace(['\n', '\t'], " ").chars().collect();
    if chars.len() <= most {
        return chars.into_iter().collect();
    }
    let head = (most - 1) / 2;
    let tail = most - 1 - head;
    let (begin, end) = (&chars[..head], &chars[chars.len() - tail..]);
    begin.iter().chain(['…'].iter()).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_say_what_they_are() {
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
    fn names_keep_their_ends_and_lines_their_words() {
        assert_eq!(fitted("any[repeat_call(3),no_new(3)]", 15), "any[rep…new(3)]");
        assert_eq!(fitted("stuck", 15), "stuck");
        assert_eq!(wrapped("one two three", 8, "  "), ["  one two", "  three"]);
        assert_eq!(wrapped("at most 95 %: no", 10, ""), ["at most", "95 %: no"]);
    }
}

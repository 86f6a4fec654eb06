//! The comparison of runs as text.

use super::format::{COLUMNS, branch, cells, decided, sentence, step};
use super::{Comparison, Pair};
use crate::visible::{shorten, visible};

/// Returns the lines of the report.
pub(crate) fn report(compared: &Comparison) -> Vec<String> {
    let mut out = Vec::new();
    let [ended, cost, turns, calls, tokens, time] = COLUMNS;
    out.push(format!(
        "{:<3}{:<12}  {ended:<34}{cost:>12}{turns:>7}{calls:>7}{tokens:>11}{time:>10}",
        "", "run"
    ));
    for (nth, run) in compared.runs.iter().enumerate() {
        let [ended, cost, turns, calls, tokens, time] = cells(run);
        let name = shorten(&run.name, 60).replace(['\n', '\t'], " ");
        out.push(format!(
            "{:<3}{name:<12}  {ended:<34}{cost:>12}{turns:>7}{calls:>7}{tokens:>11}{time:>10}",
            Comparison::letter(nth)
        ));
        out.extend(decided(run).map(|why| format!("{:<17}{why}", "")));
        out.extend(branch(run).map(|from| format!("{:<17}{from}", "")));
    }
    for pair in &compared.pairs {
        out.push(String::new());
        pair_lines(compared, pair, &mut out);
    }
    for run in &compared.runs {
        out.extend(run.problems.iter().map(|problem| format!("Note: {}", shorten(problem, 600))));
    }
    out.iter().map(|line| visible(line)).collect()
}

fn pair_lines(compared: &Comparison, pair: &Pair, out: &mut Vec<String>) {
    let stop = if pair.diverge.is_some() { ":" } else { "" };
    out.push(format!("{}{stop}", sentence(compared, pair)));
    let Some(found) = &pair.diverge else { return };
    for nth in [0, pair.other] {
        for (line, text) in step(compared.runs[nth].at(found.turn)).into_iter().enumerate() {
            let letter = if line == 0 { Comparison::letter(nth) } else { String::new() };
            out.push(format!("  {letter:<3}{text}"));
        }
    }
}

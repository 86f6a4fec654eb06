//! The text report of a comparison.

use super::format;
use crate::recorded::compare::Compared;
use crate::visible::visible;
use endstop_report::backtest::fitted;
use endstop_trajectory::compare::Measure;

/// Number of runs or tasks that are listed.
const LISTED: usize = 20;

/// Returns the lines of the report.
pub(crate) fn report(compared: &Compared) -> Vec<String> {
    let comparison = &compared.comparison;
    let [heading, sentence] = format::headline(comparison);
    let mut out = vec![format!("{heading}: {sentence}"), String::new()];
    for side in format::sides(comparison) {
        out.push(clean(&side));
    }
    if comparison.pairing == endstop_trajectory::compare::Pairing::Run {
        out.push(clean(&format!("A: {}", comparison.a)));
        out.push(clean(&format!("B: {}", comparison.b)));
    }
    out.push(String::new());
    let means = format::means(comparison);
    out.push(format!("{means:<30}{:>14}{:>14}   B − A (95 % interval)", "A", "B"));
    for measure in &comparison.measures {
        row(&measure.name, measure, &mut out);
    }
    for measure in &comparison.endings {
        row(&format!("ended: {}", measure.name), measure, &mut out);
    }
    if comparison.differing > 0 {
        out.push(String::new());
        out.push(format!("{}:", format::examples(comparison)));
        for one in comparison.examples.iter().take(LISTED) {
            let dataset = one.dataset.as_ref().map_or_else(String::new, |name| format!("{name} "));
            // Both ends, because ids of one source often differ only in their last part.
            let line = format!("  {dataset}{}: A {}; B {}", fitted(&one.id, 60), one.a, one.b);
            out.push(clean(&line));
        }
        let listed = comparison.examples.len().min(LISTED) as u64;
        if comparison.differing > listed {
            out.push(format!(
                "  and {} more; --json lists a thousand",
                comparison.differing - listed
            ));
        }
    }
    for problem in format::problems(compared) {
        out.push(clean(&format!("Note: {problem}")));
    }
    out
}

fn row(name: &str, measure: &Measure, out: &mut Vec<String>) {
    let difference = measure
        .difference
        .as_ref()
        .map_or_else(String::new, |found| format::difference(measure.unit, found));
    let meaning = format::meaning(measure);
    let line = format!(
        "{name:<30}{:>14}{:>14}   {difference}{}{meaning}",
        format::value(measure.unit, measure.a),
        format::value(measure.unit, measure.b),
        if meaning.is_empty() { "" } else { "  " }
    );
    out.push(line.trim_end().to_owned());
}

/// Makes text from files safe for the terminal.
fn clean(text: &str) -> String {
    visible(&crate::output::hidden(text)).replace(['\n', '\t'], " ")
}

//! The text report of an audit: totals first, then the worst sessions. Lines have at most 100
//! columns, except for file names, which are not broken because the user may copy them.

use super::format;
use super::report::Report;
use crate::amounts::thousands;
use crate::visible::shorten;
use endstop_trajectory::audit::{How, Session};

const WIDTH: usize = 100;
/// Maximum number of agents and models that are listed.
const AGENTS: usize = 20;
/// Maximum number of loops, and of stops, that are listed for a session.
const TOLD: usize = 2;

/// Returns the lines of the report.
pub fn lines(report: &Report) -> Vec<String> {
    let mut out = Vec::new();
    looked(report, &mut out);
    let audit = &report.audit;
    if audit.sessions == 0 {
        out.push("No sessions found.".to_owned());
        reading(report, &mut out);
        // With folders or problems in the report, the reader already sees why nothing was found.
        if report.looked.is_empty() && report.problems.is_empty() {
            out.push(format!(
                "{} scanned; `endstop audit --find` searches the default folders of known agents.",
                crate::amounts::count(report.skipped + report.files, "file")
            ));
        }
        return out;
    }
    wrap(&format::verdict(report), "", &mut out);
    out.push(String::new());
    wrap(&format::which(report), "", &mut out);
    wrap(&format::all(report), "", &mut out);
    out.push(String::new());
    out.push(format!(
        "{:<34}{:>9}{:>9}{:>17}{:>14}",
        "How they ended", "sessions", "turns", "tokens", "cost"
    ));
    for how in How::ALL {
        let Some(group) = audit.ended.get(&how) else { continue };
        out.push(format!(
            "  {:<32}{:>9}{:>9}{:>17}{:>14}",
            format::how(how),
            thousands(group.sessions),
            thousands(group.spent.turns),
            format::cell(&group.spent),
            format::money(&group.spent)
        ));
    }
    agents(report, &mut out);
    out.push(String::new());
    if let Some(line) = format::outcomes(report) {
        wrap(&line, "  ", &mut out);
    }
    for line in [format::loops(report), format::signs(report), format::limits(report)] {
        wrap(&line, "  ", &mut out);
    }
    if let Some(line) = format::lacking(report) {
        wrap(&line, "  ", &mut out);
    }
    if let Some(line) = format::unpriced(report) {
        wrap(&line, "  ", &mut out);
    }
    out.push(format::source(report).to_owned());
    reading(report, &mut out);
    if !audit.worst.is_empty() {
        out.push(String::new());
        out.push(format!(
            "The worst {} of {} that ended wrongly, looped or claimed what did not happen:",
            audit.worst.len(),
            thousands(audit.wrong)
        ));
    }
    for (nth, session) in audit.worst.iter().enumerate() {
        out.push(String::new());
        one(nth + 1, session, &mut out);
    }
    let text = out.concat();
    // Only the signs that occur in the report are explained.
    let used: Vec<_> =
        format::SIGNS.iter().filter(|(sign, _)| text.contains(&format!("{sign}$"))).collect();
    if !used.is_empty() {
        out.push(String::new());
    }
    for (sign, meaning) in used {
        wrap(&format!("{sign}  {meaning}"), "   ", &mut out);
    }
    out
}

/// Adds the sessions by agent and model, the most frequent first.
fn agents(report: &Report, out: &mut Vec<String>) {
    let groups = format::agents(report);
    // A single group repeats the totals.
    if groups.len() < 2 {
        return;
    }
    out.push(String::new());
    out.push(format!(
        "{:<42}{:>9}{:>9}{:>9}{:>9}{:>14}",
        "By agent and model", "sessions", "failed", "looped", "turns", "cost"
    ));
    for (name, group) in groups.iter().take(AGENTS) {
        out.push(format!(
            "  {:<40}{:>9}{:>9}{:>9}{:>9}{:>14}",
            format::fitted(name, 39),
            thousands(group.sessions),
            thousands(group.failed),
            thousands(group.looped),
            thousands(group.spent.turns),
            format::money(&group.spent)
        ));
    }
    if groups.len() > AGENTS {
        out.push(format!("  and {} more; --json lists them", groups.len() - AGENTS));
    }
}

fn looked(report: &Report, out: &mut Vec<String>) {
    if report.looked.is_empty() {
        return;
    }
    out.push("Folders searched:".to_owned());
    for place in &report.looked {
        let what = match (place.exists, place.files) {
            (false, _) => "folder not found".to_owned(),
            (true, 0) => "no sessions".to_owned(),
            (true, files) => format!(
                "{} in {}",
                crate::amounts::count(place.sessions, "session"),
                crate::amounts::count(files, "file")
            ),
        };
        out.push(format!("  {:<12} {}: {what}", place.agent, shorten(&place.folder, 300)));
        for problem in &place.unreadable {
            out.push(format!("    {}", shorten(problem, 300)));
        }
    }
    out.push(String::new());
}

fn reading(report: &Report, out: &mut Vec<String>) {
    for line in format::reading(report) {
        wrap(&format!("Note: {line}"), "  ", out);
    }
}

/// Adds one of the worst sessions.
fn one(nth: usize, session: &Session, out: &mut Vec<String>) {
    let indent = "    ";
    wrap(&format!("{nth:>2}. {}", format::head(session)), indent, out);
    let at = session.at.map_or_else(String::new, |at| format!(":{at}"));
    // Not wrapped, so that the path can be copied; bounded, because a recording may have chosen it.
    out.push(format!("{indent}{}{at}", shorten(&session.file, 1000)));
    let mut tell = |line: &str| wrap(&format!("{indent}{line}"), "      ", out);
    if !session.task.is_empty() {
        tell(&format!("task: {}", session.task));
    }
    tell(&format::ended(session));
    if let Some(sign) = &session.sign {
        tell(&format::sign(sign));
    }
    for one in session.loops.iter().take(TOLD) {
        tell(&format::looped(one));
    }
    if session.loops.len() > TOLD {
        tell(&format!("and {} more loops", session.loops.len() - TOLD));
    }
    for stop in session.stops.iter().take(TOLD) {
        tell(&format::stop(stop));
    }
    if session.stops.len() > TOLD {
        tell(&format!("and {} more stops", session.stops.len() - TOLD));
    }
    if let Some(advice) = format::advice(session) {
        tell(&advice);
    }
}

/// Wraps text into lines of [`WIDTH`] columns. The first line keeps its own indent, and the others
/// get `indent`.
fn wrap(text: &str, indent: &str, out: &mut Vec<String>) {
    // Made visible first, because that changes the width which is measured below.
    let text = crate::visible::visible(text).replace(['\n', '\t'], " ");
    let start = text.len() - text.trim_start().len();
    let mut line = text[..start].to_owned();
    let mut columns = start;
    let mut begun = false;
    for word in text[start..].split(' ') {
        let mut word = word;
        loop {
            let wide = word.chars().count();
            let gap = usize::from(begun);
            if columns + gap + wide <= WIDTH {
                if begun {
                    line.push(' ');
                }
                line.push_str(word);
                columns += gap + wide;
                begun = true;
                break;
            }
            // A word that is longer than a line is split; any other word moves to the next line.
            let alone = indent.chars().count() + wide > WIDTH;
            // With fewer than ten columns left, the word starts on the next line, because a
            // splinter of it would be hard to read.
            if alone && columns + gap < WIDTH - 10 {
                let room = WIDTH - columns - gap;
                let (head, tail) =
                    word.split_at(word.char_indices().nth(room).map_or(word.len(), |(at, _)| at));
                if begun {
                    line.push(' ');
                }
                line.push_str(head);
                word = tail;
            }
            out.push(std::mem::replace(&mut line, indent.to_owned()));
            columns = indent.chars().count();
            begun = false;
        }
    }
    out.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::json;
    use endstop_trajectory::audit::{Audit, Noticed};
    use endstop_trajectory::backtest::Examples;
    use endstop_trajectory::read::{Options, for_each, testing};

    /// A build of the workspace has the readers, because a crate needs them; one of this crate has not.
    #[test]
    fn benchmark_is_read_or_named() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../endstop-trajectory/fixtures");
        for (folder, format) in [
            ("agentdojo", "agentdojo"),
            ("intercode", "intercode"),
            ("malt", "malt"),
            ("react_log", "react-log"),
            ("tau_bench", "tau-bench"),
            ("tau2_bench", "tau2-bench"),
            ("tothf", "tothf"),
        ] {
            let path = format!("{fixtures}/{folder}");
            let files = std::fs::read_dir(&path).unwrap().count() as u64;
            let (mut audit, mut noticed) = (Audit::new(5), Noticed::default());
            let visited = for_each(path, &Options::default(), &mut |run| match run {
                Ok(run) => audit.add(Session::of(&run, &endstop_trajectory::Prices::new())),
                Err(problem) => noticed.problem(None, &problem),
            })
            .unwrap();
            let problems = Examples::of(noticed.problems);
            let report = Report { audit, problems, files: visited.files, ..Report::default() };
            let text = lines(&report).join(" ");
            let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let json = json(&report);
            let not_built = &json["problems"]["not_built"];
            if testing::is_built(format) {
                assert!(report.audit.sessions > 0 && not_built.is_null(), "{format}: {json:#}");
                continue;
            }
            // All files of the folder except its table of counts.
            assert_eq!(not_built["count"], files - 1, "{format}: {json:#}");
            assert_eq!((report.audit.sessions, report.files), (0, 0));
            assert_eq!(report.problems.len(), 1, "{json:#}");
            let what = format!(
                ": in the format `{format}`, which this build cannot read: build endstop-cli with `--features benchmarks`"
            );
            assert!(not_built["first"][0].as_str().unwrap().ends_with(&what), "{not_built}");
            assert!(text.contains("No sessions found. Note: not read (not_built): "), "{text}");
            assert!(text.contains(&what), "{text}");
        }
    }

    #[test]
    fn long_lines_and_words_are_wrapped() {
        let mut out = Vec::new();
        wrap(&format!("  {} {}", "word ".repeat(30).trim(), "x".repeat(250)), "    ", &mut out);
        assert!(out.iter().all(|line| line.chars().count() <= WIDTH), "{out:?}");
        assert!(out[0].starts_with("  word") && out[1].starts_with("    "), "{out:?}");
        let said: String = out.concat().split_whitespace().collect();
        assert_eq!(said, "word".repeat(30) + &"x".repeat(250));
        out.clear();
        wrap("short", "  ", &mut out);
        assert_eq!(out, ["short"]);
    }
}

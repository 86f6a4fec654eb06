//! The version of a program, in its own words.

use super::launch::Launch;
use super::place::{passed, quoted, removed};
use endstop_process::{CommandLine, StopTokens};
use std::io;
use std::time::Duration;

/// Time that a program has to print its version. Some load for long.
const LONGEST: Duration = Duration::from_secs(60);

/// Returns the version that a program prints, or an empty text if it prints none, or its profile does not say how. It runs in an empty home.
///
/// # Errors
/// No folder or process could be made.
pub async fn version(launch: &Launch<'_>) -> io::Result<String> {
    if launch.profile.version.is_empty() {
        return Ok(String::new());
    }
    let home = tempfile::Builder::new().prefix("endstop-conform-").tempdir()?;
    let words = launch.command.iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.chain(launch.profile.version.iter().cloned()).collect();
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    let mut variables = passed(launch.pass);
    variables.insert("HOME".to_owned(), home.path().display().to_string());
    variables.insert("IS_SANDBOX".to_owned(), "1".to_owned());
    let line = format!(
        "exec env {} sh -c 'exec \"$@\"' sh {} 2>/dev/null </dev/null",
        removed(&variables),
        words.join(" ")
    );
    let mut command = CommandLine::new(line).in_dir(home.path());
    for (name, value) in variables {
        command = command.variable(name, value);
    }
    let stop = StopTokens::never();
    let finished = tokio::time::timeout(LONGEST, command.run(&stop)).await;
    let Ok(finished) = finished else { return Ok(String::new()) };
    Ok(number(&finished?.output.text()))
}

/// Returns the first word that begins with a digit and has a dot, without the text around it: programs print `codex-cli 1.2.3` and
/// `1.2.3 (Claude Code)`.
fn number(text: &str) -> String {
    let words =
        text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let mut words = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    words.find(|word| word.contains('.')).unwrap_or_default().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn versions_are_found_in_their_lines() {
        for (text, expected) in [
            ("codex-cli 0.171.0\n", "0.171.0"),
            ("2.1.332 (Claude Code)\n", "2.1.332"),
            ("\nThis is mini-swe-agent version 2.4.6.\nCheck the v2 guide\n", "2.4.6"),
            ("usage: agent", ""),
        ] {
            assert_eq!(number(text), expected);
        }
    }
}

//! aider.
//!
//! It reads `.env` files of the working folder, which override the environment, and
//! `.aider.conf.yml`. Options are stronger than both.

use super::parse;
use super::plan::Plan;
use super::wiring::Source;
use endstop_wire::WireFormat::{OpenAiChat, OpenAiResponses};
use std::ffi::OsString;
use std::path::PathBuf;

const OPTION: &str = "--openai-api-base";

/// Variables that a `.env` file must not set.
const VARIABLES: [&str; 5] = [
    "OPENAI_API_BASE",
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_BASE",
    "AIDER_OPENAI_API_BASE",
];

pub(super) fn wire(plan: &mut Plan<'_>) {
    let formats = &[OpenAiChat, OpenAiResponses];
    // The names that aider prefers, the strongest last.
    for name in ["OPENAI_API_BASE", "AIDER_OPENAI_API_BASE"] {
        if let Some(base) = plan.var(name).map(str::to_owned) {
            plan.upstream(formats, &base, Source::Variable(name.to_owned()));
        }
    }
    let own: Vec<PathBuf> =
        [".env", ".aider.conf.yml"].iter().filter_map(|name| plan.home(name)).collect();
    plan.report_repository(&[".env"], &own, |file| {
        let found = VARIABLES.iter().filter(|name| parse::dotenv(file, name).is_some());
        found.map(|name| (*name).to_owned()).collect()
    });
    plan.report_repository(&[".aider.conf.yml"], &own, |file| {
        // Only the name of the key matters, so the file need not be parsed as YAML.
        let key = |line: &str| line.split(':').next().map(|key| key.trim().replace('_', "-"));
        let named = file.lines().any(|line| key(line).as_deref() == Some("openai-api-base"));
        if named { vec!["openai-api-base".to_owned()] } else { Vec::new() }
    });
    let url = plan.url("/v1");
    match plan.command.option(OPTION) {
        Some((range, base)) => {
            plan.upstream(formats, &base, Source::Argument(OPTION.to_owned()));
            plan.command.words.splice(range, [OsString::from(OPTION), url.into()]);
        }
        None => plan.insert(&[OPTION, &url]),
    }
    // Its option sets them after all files were read.
    let anthropic = ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"];
    for name in anthropic {
        let pair = format!("{name}={}", plan.url(""));
        plan.insert(&["--set-env", &pair]);
    }
}

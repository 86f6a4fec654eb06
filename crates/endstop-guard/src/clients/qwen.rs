//! Qwen Code.
//!
//! Its option `--openai-base-url` is stronger than its settings and than `.env` files.

use super::parse::{self, text};
use super::plan::Plan;
use super::wiring::{Source, Unguardable, Warning};
use endstop_wire::WireFormat::OpenAiChat;
use std::ffi::OsString;
use std::path::PathBuf;

const OPTION: &str = "--openai-base-url";
const BASE_URL: &str = "OPENAI_BASE_URL";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("QWEN_HOME").map(PathBuf::from).or_else(|| plan.home(".qwen"));
    let file = folder.map(|folder| folder.join("settings.json"));
    let settings = file.as_ref().and_then(|file| plan.user_json(file)).unwrap_or_default();
    if let (Some(base), Some(file)) = (text(&settings, &["security", "auth", "baseUrl"]), &file)
        && plan.var(BASE_URL).is_none()
    {
        plan.upstream(&[OpenAiChat], base, Source::File(file.clone()));
    }
    let own: Vec<PathBuf> = file.into_iter().collect();
    plan.report_repository(&[".qwen/settings.json"], &own, |file| {
        let settings = parse::json(file).unwrap_or_default();
        let found = text(&settings, &["security", "auth", "baseUrl"]);
        found.map(|_| "security.auth.baseUrl".to_owned()).into_iter().collect()
    });
    plan.report_repository(&[".qwen/.env", ".env"], &[], |file| {
        parse::dotenv(file, BASE_URL).map(|_| BASE_URL.to_owned()).into_iter().collect()
    });

    let login = plan.command.option("--auth-type").map(|(_, value)| value);
    let login =
        login.or_else(|| text(&settings, &["security", "auth", "selectedType"]).map(str::to_owned));
    match login.as_deref() {
        Some("qwen-oauth") => return plan.warn(Warning::Unguardable(Unguardable::QwenLogin)),
        None if plan.var("OPENAI_API_KEY").is_none() => {
            return plan.warn(Warning::Unguardable(Unguardable::QwenWithoutKey));
        }
        _ => {}
    }
    // The option is set even if the variable would do, because a `.env` file could replace it.
    let url = plan.url("/v1");
    match plan.command.option(OPTION) {
        Some((range, base)) => {
            plan.upstream(&[OpenAiChat], &base, Source::Argument(OPTION.to_owned()));
            plan.command.words.splice(range, [OsString::from(OPTION), url.into()]);
        }
        None => plan.insert(&[OPTION, &url]),
    }
}

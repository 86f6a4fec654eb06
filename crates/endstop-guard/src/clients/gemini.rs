//! Gemini CLI.
//!
//! With a base URL it only starts if its settings select the API key. A temporary *system* settings
//! file, which overrides the user's, does so. A Google login ignores the base URL.

use super::parse::{self, put, text};
use super::plan::Plan;
use super::wiring::{Source, Unguardable, Warning};
use endstop_wire::WireFormat::Gemini;
use serde_json::json;
use std::path::PathBuf;

const BASE_URL: &str = "GOOGLE_GEMINI_BASE_URL";
const SYSTEM: &str = "GEMINI_CLI_SYSTEM_SETTINGS_PATH";
const BY_KEY: &str = "gemini-api-key";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("GEMINI_CLI_HOME").map(|home| PathBuf::from(home).join(".gemini"));
    let folder = folder.or_else(|| plan.home(".gemini"));
    let mut own = Vec::new();
    let (mut selected, mut in_file) = (None, None);
    if let Some(folder) = folder {
        own = vec![folder.join("settings.json"), folder.join(".env")];
        let settings = plan.user_json(&own[0]).unwrap_or_default();
        selected = text(&settings, &["security", "auth", "selectedType"])
            .or_else(|| text(&settings, &["selectedAuthType"]))
            .map(str::to_owned);
        in_file = plan.user_text(&own[1]);
    }
    own.extend(plan.home(".env"));
    if let Some((base, file)) =
        in_file.as_ref().and_then(|file| Some((parse::dotenv(file, BASE_URL)?, &own[1])))
        && plan.var(BASE_URL).is_none()
    {
        plan.upstream(&[Gemini], base, Source::File(file.clone()));
    }
    // The variables are set already, and a `.env` file does not override them.
    plan.report_repository(&[".gemini/.env", ".env"], &own, |file| {
        parse::dotenv(file, BASE_URL).map(|_| BASE_URL.to_owned()).into_iter().collect()
    });

    let key = plan.var("GEMINI_API_KEY").is_some()
        || in_file.as_ref().is_some_and(|file| parse::dotenv(file, "GEMINI_API_KEY").is_some());
    match selected.as_deref() {
        Some("vertex-ai") => return plan.warn(Warning::Unguardable(Unguardable::Vertex)),
        Some(BY_KEY | "gateway") => {}
        None if key => {}
        // Another login bills another account, so it is the user who must change it.
        _ => return plan.warn(Warning::Unguardable(Unguardable::GoogleLogin)),
    }
    let system = plan.var(SYSTEM).unwrap_or("/etc/gemini-cli/settings.json").to_owned();
    let mut settings = plan.user_json(&PathBuf::from(system)).unwrap_or_default();
    put(&mut settings, &["security", "auth", "selectedType"], json!(BY_KEY));
    let path = plan.file("gemini-settings.json", settings.to_string());
    plan.set(SYSTEM, path);
}

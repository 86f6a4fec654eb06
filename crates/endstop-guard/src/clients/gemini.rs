//! Gemini CLI.
//!
//! With a base URL it only starts if the user's settings select the API key. If the user relies on
//! `GEMINI_API_KEY` instead, it gets a temporary home folder: its settings select the key, and all
//! other entries are links to those of the user. Its *system* settings would be simpler, but it only
//! reads those of root. A Google login ignores the base URL.

use super::parse::{self, put, text};
use super::plan::Plan;
use super::wiring::{Mirror, Source, Unguardable, Warning};
use endstop_wire::WireFormat::Gemini;
use serde_json::{Value, json};
use std::path::PathBuf;

const BASE_URL: &str = "GOOGLE_GEMINI_BASE_URL";
const HOME: &str = "GEMINI_CLI_HOME";
/// Name of the temporary home folder.
const FOLDER: &str = "gemini-home";
const BY_KEY: &str = "gemini-api-key";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let home = plan.var(HOME).map(PathBuf::from).or_else(|| plan.home(""));
    let folder = home.as_ref().map(|home| home.join(".gemini"));
    let mut settings = Value::Null;
    let mut own = Vec::new();
    let (mut selected, mut in_file) = (None, None);
    if let Some(folder) = &folder {
        own = vec![folder.join("settings.json"), folder.join(".env")];
        settings = plan.user_json(&own[0]).unwrap_or_default();
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
    // Without a selected login, its variables choose one, and are stronger than a key.
    let is_on = |name: &str| plan.var(name).is_some_and(|value| value == "true");
    let by_variable = match selected {
        None if is_on("GOOGLE_GENAI_USE_GCA") => Some("oauth-personal".to_owned()),
        None if is_on("GOOGLE_GENAI_USE_VERTEXAI") => Some("vertex-ai".to_owned()),
        _ => None,
    };
    match selected.or(by_variable).as_deref() {
        Some("vertex-ai") => return plan.warn(Warning::Unguardable(Unguardable::GeminiOnVertex)),
        // The settings are enough as they are.
        Some(BY_KEY) => return,
        None | Some("gateway") if key => {}
        None => return plan.warn(Warning::Unguardable(Unguardable::GeminiWithoutKey)),
        // Another login bills another account, so it is the user who must change it.
        _ => return plan.warn(Warning::Unguardable(Unguardable::GoogleLogin)),
    }
    put(&mut settings, &["security", "auth", "selectedType"], json!(BY_KEY));
    plan.file(&format!("{FOLDER}/.gemini/settings.json"), settings.to_string());
    if let (Some(home), Some(folder)) = (home, folder) {
        let path = PathBuf::from(FOLDER);
        let files = Mirror { path: path.join(".gemini"), of: folder, except: "settings.json" };
        // The folder of skills that several clients share.
        let skills = Mirror { path: path.join(".agents"), of: home.join(".agents"), except: "" };
        plan.wiring.mirrors.extend([files, skills]);
    }
    let path = plan.request.private.join(FOLDER).display().to_string();
    plan.set(HOME, path);
}

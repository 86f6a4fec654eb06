//! Pages of reports in notebooks.

use endstop_report::html::Escaper;
use endstop_wire::redact::KnownKeys;

/// Returns an escaper that redacts the secrets of the environment.
pub(crate) fn escaper() -> Escaper {
    let variables = std::env::vars_os().map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    });
    Escaper::new(KnownKeys::of_variables(variables))
}

/// Returns a page in a frame, so that its styles do not reach the rest of the notebook. The frame is
/// a sandbox: the page runs no script and reaches nothing around it.
pub(crate) fn framed(page: &str, height: u32) -> String {
    // `&` first, because the escape of the quote contains one. Nothing else ends an attribute.
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<iframe sandbox srcdoc=\"{page}\" style=\"width:100%;height:{height}px;border:0\"></iframe>"
    )
}

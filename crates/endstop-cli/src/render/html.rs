//! Escaping for the HTML pages of this command: as `endstop-report` does it, without the secrets of
//! this process.

pub(crate) use endstop_report::html::section;

use crate::output;
use endstop_report::html::Escaper;
use maud::Markup;

/// Returns an escaper that redacts the secrets of the run and of the environment.
pub(crate) fn escaper() -> Escaper {
    Escaper::new(output::keys())
}

/// Returns a page with this title and these sections. The page loads no external resource.
pub(crate) fn page(title: &str, sections: &Markup) -> String {
    escaper().page(title, sections)
}

/// Returns a paragraph with a class, which may be empty.
pub(crate) fn paragraph(class: &str, text: &str) -> Markup {
    escaper().paragraph(class, text)
}

/// Returns text from a file, a model or a server as content of a page.
pub(crate) fn safe(text: &str) -> Markup {
    escaper().safe(text)
}

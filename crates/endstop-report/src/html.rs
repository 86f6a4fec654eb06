//! The shared parts of the HTML pages: styles, content security policy, and escaping.
//!
//! ```
//! use endstop_report::html::Escaper;
//! assert_eq!(Escaper::default().escape("a < b"), "a &lt; b");
//! ```

use crate::visible::visible;
use endstop_wire::redact::KnownKeys;
use maud::{Markup, PreEscaped, html};

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d8dde4;--card:#fff;--back:#f5f6f8;--bad:#c62828;--warn:#b26a00;--good:#1b7f3b;--bar:#9db2cf}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b3;--line:#39424e;--card:#1b2129;--back:#12161b;--bad:#ff6b6b;--warn:#ffb74d;--good:#66d08a;--bar:#5d7699}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0 0 16px}
h1{font-size:1.5rem;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:0 0 10px}p{margin:4px 0;overflow-wrap:anywhere}.soft{color:var(--soft)}.bad{color:var(--bad)}.warn{color:var(--warn)}.good{color:var(--good)}
code{font:0.9em ui-monospace,monospace;overflow-wrap:anywhere}.limit{display:grid;grid-template-columns:minmax(9em,15em) 1fr minmax(6em,auto);gap:4px 12px;align-items:center;margin:6px 0}
.track{height:14px;border-radius:7px;background:var(--line);overflow:hidden}.track i{display:block;height:100%;background:var(--bar)}.met .track i{background:var(--bad)}.met{font-weight:600}
dl.card{display:grid;grid-template-columns:max-content 1fr;gap:4px 12px;margin:8px 0}dl.card dt{color:var(--soft)}dl.card dd{margin:0;white-space:pre-line;overflow-wrap:anywhere}
.badge{display:inline-block;min-width:1.5em;padding:0 .4em;border-radius:.75em;color:#fff;font-weight:700;text-align:center}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-family:system-ui,sans-serif}.narrow{display:none}
@media(max-width:640px){.wide{display:none}.narrow{display:block}.limit{grid-template-columns:1fr auto}.limit .track{grid-column:1/3;grid-row:2}main{padding:8px}section{padding:12px}}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{padding:4px 8px;vertical-align:top;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}th{color:var(--soft);font-weight:600}tr.best td{font-weight:700}@media(max-width:640px){table{font-size:.8rem}th,td{padding:3px 4px;white-space:normal}th:first-child,td:first-child{min-width:10em}}
.lane{display:grid;grid-template-columns:2em 1fr;align-items:start;margin:6px 0}.lane i{display:inline-block;width:14px;height:14px;margin:1px;border-radius:3px;background:var(--bar)}.lane i.same{opacity:.35}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:12px;margin:0 0 8px}.pair>div{min-width:0;border-left:3px solid var(--line);padding-left:10px}@media(max-width:640px){.pair{grid-template-columns:1fr}}
details{border-top:1px solid var(--line);padding:6px 0}summary{cursor:pointer;overflow-wrap:anywhere}pre{white-space:pre-wrap;overflow-wrap:anywhere;font:0.85em ui-monospace,monospace;margin:6px 0;max-height:24em;overflow:auto}
";

/// The content security policy: a page may load only its own styles and inline images. Scripts are
/// blocked, so that markup that got past [`Escaper::escape`] does nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Redacts and escapes text for HTML pages, which are made to be shared.
#[derive(Clone, Debug, Default)]
pub struct Escaper {
    keys: KnownKeys,
}

impl Escaper {
    /// Creates an escaper that also redacts these secrets. Credentials of a known format are always
    /// redacted.
    pub fn new(keys: KnownKeys) -> Escaper {
        Escaper { keys }
    }

    /// Returns a page with this title and these sections. The page loads no external resource.
    pub fn page(&self, title: &str, sections: &Markup) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width,initial-scale=1";
                    title { (self.safe(title)) " · Endstop" }
                    style { (PreEscaped(STYLE)) }
                }
                body { main { (LINE_END) (sections) } }
            }
            (LINE_END)
        };
        page.into_string()
    }

    /// Returns a paragraph with a class, which may be empty.
    pub fn paragraph(&self, class: &str, text: &str) -> Markup {
        html! { p class=(class) { (self.safe(text)) } }
    }

    /// Returns text from a file, a model or a server as content of a page. Use it for every such
    /// text: the templates escape `<` themselves, but do not redact secrets.
    pub fn safe(&self, text: &str) -> Markup {
        PreEscaped(self.escape(text))
    }

    /// Escapes text for HTML, without secrets, and with symbols for characters that HTML cannot
    /// contain.
    pub fn escape(&self, text: &str) -> String {
        visible(&self.keys.out_of_text(text))
            // `&` first, because the other replacements add it.
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&#39;")
    }
}

/// The first line of a page, in lower case, as HTML formatters write it.
const DOCTYPE: PreEscaped<&str> = PreEscaped("<!doctype html>\n");

/// The end of a line. Each section is a line of its own, so that two pages can be compared.
const LINE_END: PreEscaped<&str> = PreEscaped("\n");

/// Returns a section of a page.
pub fn section(content: &Markup) -> Markup {
    html! { section { (content) } (LINE_END) }
}

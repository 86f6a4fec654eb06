//! Token limits of known models: context window and largest answer.
//!
//! ```
//! use endstop_wire::catalog::models::limits;
//! let claude = limits("anthropic", "claude-sonnet-4-5-20250929");
//! assert_eq!(claude.max_output, Some(64_000));
//! assert!(claude.context_window >= Some(200_000));
//! assert_eq!(limits("vllm", "my-own"), Default::default());
//! ```
//!
//! These limits let a budget lower a call's output cap to what the model accepts, and let a
//! conversation be shortened before it is too long, without any setting. The window comes from the
//! price catalogue if that has it ([`crate::catalog::prices`]). The rest is a plain-text table
//! compiled into the program and written by `cargo xtask models` from LiteLLM's data (MIT, see
//! `data/LICENSE-litellm`). A provider is found by its id and a model by its exact name, without a
//! trailing date if that helps; similar names never match.

use crate::catalog::prices;
use memchr::memmem;

/// `@provider`, followed by its models: `id TAB window TAB largest answer`. An unknown number is
/// left empty.
const TABLE: &str = include_str!("../../data/models.tsv");

/// Limits of a model in tokens. `None` means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLimits {
    /// Tokens of prompt and answer together. If the source counts only the prompt, that number.
    pub context_window: Option<u64>,
    /// Tokens of the largest answer.
    pub max_output: Option<u64>,
}

/// Returns the known limits of a model.
pub fn limits(provider: &str, model: &str) -> ModelLimits {
    let own = find(provider, model).unwrap_or_default();
    ModelLimits {
        context_window: prices::context_window(provider, model).or(own.context_window),
        max_output: own.max_output,
    }
}

/// Returns the ids of a provider's models in the table.
pub fn known(provider: &str) -> impl Iterator<Item = &'static str> {
    section(provider).unwrap_or("").lines().filter_map(|line| line.split('\t').next())
}

fn find(provider: &str, model: &str) -> Option<ModelLimits> {
    let model = model.to_lowercase();
    let lines = section(&provider.to_lowercase())?;
    let line = |id: &str| lines.lines().find(|line| line.split('\t').next() == Some(id));
    let found = line(&model).or_else(|| line(undated(&model)?))?;
    let mut fields = found.split('\t').skip(1).map(|field| field.parse().ok());
    Some(ModelLimits {
        context_window: fields.next().flatten(),
        max_output: fields.next().flatten(),
    })
}

/// Returns the table lines of a provider.
fn section(id: &str) -> Option<&'static str> {
    // A newline in the id could match across lines of the table.
    if id.is_empty() || id.contains('\n') {
        return None;
    }
    let at = memmem::find(TABLE.as_bytes(), format!("\n@{id}\n").as_bytes())?;
    let rest = TABLE.get(at + id.len() + 3..)?;
    Some(&rest[..memmem::find(rest.as_bytes(), b"\n@").unwrap_or(rest.len())])
}

/// Returns `model` for `model-20250929`, `model@20250929`, `model-2025-09-29` and `model-latest`.
fn undated(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    // Cut digits and dashes off the end, which may include a version number before the date.
    let name = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date = &model[name.len()..];
    let digits = date.bytes().filter(u8::is_ascii_digit).count();
    // The year starts the date within the cut part, so `-4-5-20250929` loses only its date.
    let at = name.len() + date.find("20").filter(|_| digits >= 8)?;
    let (head, date) = (&model[..at], &model[at..]);
    let eight = date.bytes().filter(u8::is_ascii_digit).count() == 8;
    head.strip_suffix(['-', '@']).filter(|_| eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_date_is_removed() {
        for (model, want) in [
            ("gpt-5-2025-08-07", Some("gpt-5")),
            ("claude-sonnet-4-5-20250929", Some("claude-sonnet-4-5")),
            ("claude-haiku-4-5@20251001", Some("claude-haiku-4-5")),
            ("gpt-5-latest", Some("gpt-5")),
            ("gpt-4-0613", None),
            ("glm-5", None),
            ("20250101", None),
            ("", None),
        ] {
            assert_eq!(undated(model), want, "{model}");
        }
    }

    #[test]
    fn every_table_line_is_found() {
        let (mut provider, mut models) = ("", 0);
        for line in TABLE.lines().skip(1) {
            if let Some(id) = line.strip_prefix('@') {
                provider = id;
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |text: &str| (!text.is_empty()).then(|| text.parse::<u64>().unwrap());
            let want =
                ModelLimits { context_window: number(fields[1]), max_output: number(fields[2]) };
            assert_eq!(find(provider, fields[0]), Some(want), "{provider}/{}", fields[0]);
            assert!(want.max_output.is_none_or(|n| n > 0) && want != ModelLimits::default());
            models += 1;
        }
        assert!(models > 1_000 && known("anthropic").count() > 10);
        assert_eq!(limits("anthropic\n", "x"), ModelLimits::default());
    }
}

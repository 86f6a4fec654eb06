//! How much a model can read and write, where that is known.
//!
//! ```
//! use endstop_wire::catalog::models::limits;
//! let claude = limits("anthropic", "claude-sonnet-4-5-20250929");
//! assert_eq!(claude.max_output, Some(64_000));
//! assert!(claude.context_window >= Some(200_000));
//! assert_eq!(limits("vllm", "my-own"), Default::default());
//! ```
//!
//! With these a ceiling lowers the output cap of a call to what the model takes, and a conversation
//! is shortened before it is too long, without a setting. The window is the price catalogue's where
//! that has one ([`crate::catalog::prices`]); the rest is a text table, a constant of the program, written by
//! `cargo xtask models` from LiteLLM's (MIT, see `data/LICENSE-litellm`). A provider is found by its
//! id and a model by its name, a date at its end left out where that helps; never by resemblance.

use crate::catalog::prices;
use memchr::memmem;

/// `@provider`, then its models: `id TAB window TAB largest answer`, an unknown number left out.
const TABLE: &str = include_str!("../../data/models.tsv");

/// What a model can take and give, in tokens; `None` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLimits {
    /// How much of prompt and answer fits together; where a source counts the prompt alone, that.
    pub context_window: Option<u64>,
    /// The largest answer.
    pub max_output: Option<u64>,
}

/// What is known of a model's limits.
pub fn limits(provider: &str, model: &str) -> ModelLimits {
    let own = find(provider, model).unwrap_or_default();
    ModelLimits {
        context_window: prices::context_window(provider, model).or(own.context_window),
        max_output: own.max_output,
    }
}

/// The models of a provider that the table has, by id.
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

/// The lines of a provider.
fn section(id: &str) -> Option<&'static str> {
    if id.is_empty() || id.contains('\n') {
        return None;
    }
    let at = memmem::find(TABLE.as_bytes(), format!("\n@{id}\n").as_bytes())?;
    let rest = TABLE.get(at + id.len() + 3..)?;
    Some(&rest[..memmem::find(rest.as_bytes(), b"\n@").unwrap_or(rest.len())])
}

/// `model` of `model-20250929`, `model@20250929`, `model-2025-09-29` and `model-latest`.
fn undated(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    let name = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date = &model[name.len()..];
    let digits = date.bytes().filter(u8::is_ascii_digit).count();
    // The year comes last of what is cut, so that `-4-5-20250929` loses its date alone.
    let at = name.len() + date.find("20").filter(|_| digits >= 8)?;
    let (head, date) = (&model[..at], &model[at..]);
    let eight = date.bytes().filter(u8::is_ascii_digit).count() == 8;
    head.strip_suffix(['-', '@']).filter(|_| eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_at_the_end_is_left_out() {
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
    fn every_line_of_the_table_is_found() {
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

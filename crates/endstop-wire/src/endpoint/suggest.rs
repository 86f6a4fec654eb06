//! The provider that a wrong name probably means.

use crate::catalog::models;
use crate::catalog::providers::PROVIDERS;

/// Common wrong names and the providers they stand for. Used for hints only.
const HINTS: &[(&str, &str)] = &[
    ("claude", "anthropic"),
    ("gpt", "openai"),
    ("chatgpt", "openai"),
    ("grok", "xai"),
    ("x-ai", "xai"),
    ("hf", "huggingface"),
    ("github", "github-models"),
    ("vercel", "vercel-gateway"),
    ("qwen", "dashscope"),
    ("bigmodel", "zhipu"),
    ("kimi", "moonshot"),
    ("moonshotai", "moonshot"),
    ("glm", "zai"),
    ("z-ai", "zai"),
    ("aws", "bedrock"),
    ("amazon-bedrock", "bedrock"),
    ("vertexai", "vertex"),
    ("vertex_ai", "vertex"),
    ("google-vertex", "vertex"),
    ("azure-openai", "azure"),
    ("azure_openai", "azure"),
    ("llama.cpp", "llamacpp"),
    ("llama-cpp", "llamacpp"),
    ("mistralai", "mistral"),
    ("command", "cohere"),
    ("together_ai", "together"),
    ("fireworks_ai", "fireworks"),
];

/// Returns the provider and the model for a model name with a known prefix, for example those of Anthropic for `claude-…`.
pub(super) fn whole(model: &str) -> Option<String> {
    let model = model.trim_matches('/').to_lowercase();
    let (_, id) = HINTS.iter().find(|(name, _)| model.starts_with(name))?;
    // `gpt5` is `gpt-5`: a known model with the same letters and digits is meant.
    let bare = |name: &str| name.replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let known = models::known(id).find(|known| bare(known) == bare(&model));
    Some(format!("{id}/{}", known.unwrap_or(&model)))
}

/// Returns the provider with an id at most two edits away, or one whose frequent wrong name has a typo.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase();
    if let Some((_, id)) = HINTS.iter().find(|(hint, _)| *hint == name) {
        return Some(id);
    }
    let closest = PROVIDERS
        .iter()
        .map(|provider| (strsim::levenshtein(&name, provider.id), provider.id))
        .min()?;
    // A short id could be reached from any short name, so the distance must be less than both
    // lengths.
    if closest.0 <= 2 && closest.0 < closest.1.len().min(name.len()) {
        return Some(closest.1);
    }
    let is_near = |hint: &str| hint.len() > 2 && strsim::osa_distance(&name, hint) == 1;
    HINTS.iter().find(|(hint, _)| is_near(hint)).map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::HINTS;
    use crate::catalog::providers::provider;

    #[test]
    fn hints_name_existing_providers() {
        for (hint, id) in HINTS {
            assert!(provider(id).is_some() && provider(hint).is_none(), "{hint}");
        }
    }
}

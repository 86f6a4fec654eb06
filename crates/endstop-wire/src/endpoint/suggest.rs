//! The provider that a wrong name probably means.

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

/// Returns the provider for a model name with a known prefix, for example Anthropic for `claude-…`.
pub(super) fn maker(model: &str) -> Option<&'static str> {
    let model = model.to_lowercase();
    let hint = HINTS.iter().find(|(name, _)| model.starts_with(name));
    hint.map(|(_, id)| *id)
}

/// Returns the provider with an id at most two edits away.
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
    (closest.0 <= 2 && closest.0 < closest.1.len().min(name.len())).then_some(closest.1)
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

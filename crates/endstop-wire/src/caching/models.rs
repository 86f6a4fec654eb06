//! The models on Amazon Bedrock that take cache marks.
//!
//! Bedrock refuses a request with a mark for a model that does not take it (HTTP 403, "your request
//! did not allow prompt caching"), so a model that is not in this table gets none. Sources are the
//! page "Prompt caching for faster model inference" of the Bedrock user guide, with its table of
//! models and fields, and for the newer Claude models their price of cached input in the price
//! catalogue. The page names a lifetime of an hour for Claude Haiku, Sonnet and Opus 4.5; its use is
//! reported for Sonnet and Opus 4.6 and Opus 4.7 as well.

/// A family of models on Bedrock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BedrockModel {
    /// Part of the model's id, after the prefix of an inference profile.
    pub id: &'static str,
    /// `true` if the list of tools can be marked, and blocks other than text. Nova takes marks in the
    /// system prompt and in messages, but refuses them among the tools ("extraneous key
    /// \[cachePoint\] is not permitted"), after a tool result and after an image.
    pub anywhere: bool,
    /// `true` if a lifetime of an hour is known to be accepted.
    pub hour: bool,
}

const fn claude(id: &'static str) -> BedrockModel {
    BedrockModel { id, anywhere: true, hour: false }
}

const fn claude_hour(id: &'static str) -> BedrockModel {
    BedrockModel { hour: true, ..claude(id) }
}

const fn nova(id: &'static str) -> BedrockModel {
    BedrockModel { id, anywhere: false, hour: false }
}

/// The models, first match first.
pub const BEDROCK: &[BedrockModel] = &[
    claude("anthropic.claude-3-5-haiku"),
    claude("anthropic.claude-3-7-sonnet"),
    claude_hour("anthropic.claude-haiku-4-5"),
    claude_hour("anthropic.claude-sonnet-4-5"),
    claude_hour("anthropic.claude-sonnet-4-6"),
    claude_hour("anthropic.claude-opus-4-5"),
    claude_hour("anthropic.claude-opus-4-6"),
    claude_hour("anthropic.claude-opus-4-7"),
    claude("anthropic.claude-sonnet-4"),
    claude("anthropic.claude-opus-4"),
    claude("anthropic.claude-haiku-5"),
    claude("anthropic.claude-sonnet-5"),
    claude("anthropic.claude-opus-5"),
    claude("anthropic.claude-fable-5"),
    nova("amazon.nova-micro-v1"),
    nova("amazon.nova-lite-v1"),
    nova("amazon.nova-pro-v1"),
    nova("amazon.nova-premier-v1"),
];

/// Returns the row of a model, by its id or the id of an inference profile.
pub(super) fn bedrock(model: &str) -> Option<&'static BedrockModel> {
    BEDROCK.iter().find(|known| model.contains(known.id))
}

#[cfg(test)]
mod tests {
    use super::bedrock;

    #[test]
    fn unknown_models_take_no_marks() {
        for model in [
            "meta.llama3-1-70b-instruct-v1:0",
            "mistral.mistral-large-2402-v1:0",
            "anthropic.claude-3-haiku-20240307-v1:0",
            "anthropic.claude-3-5-sonnet-20241022-v2:0",
            "global.amazon.nova-2-lite-v1:0",
            "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc",
            "",
        ] {
            assert_eq!(bedrock(model), None, "{model}");
        }
    }

    #[test]
    fn first_match_is_the_most_exact() {
        let hour = |model: &str| bedrock(model).unwrap().hour;
        assert!(hour("us.anthropic.claude-sonnet-4-5-20250929-v1:0"));
        assert!(!hour("anthropic.claude-sonnet-4-20250514-v1:0"));
        assert!(hour("global.anthropic.claude-opus-4-6-v1"));
        assert!(!bedrock("eu.amazon.nova-pro-v1:0").unwrap().anywhere);
    }
}

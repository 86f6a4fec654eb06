//! The places of the output cap in requests, as data.

use endstop_wire::WireFormat;

/// The place of the output cap in a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapPlace {
    /// Names of the object that holds the cap, the first for insertions; empty: the body itself.
    pub(crate) objects: &'static [&'static str],
    /// Names of the cap, the first for insertions.
    pub(crate) names: &'static [&'static str],
}

/// Returns the place for bodies of this shape.
pub(crate) fn cap_place(shape: WireFormat) -> CapPlace {
    let (objects, names): (&[_], &[_]) = match shape {
        WireFormat::OpenAiResponses => (&[], &["max_output_tokens"]),
        // Google's servers read both spellings of protocol buffers in JSON.
        WireFormat::Gemini => {
            (&["generationConfig", "generation_config"], &["maxOutputTokens", "max_output_tokens"])
        }
        WireFormat::BedrockConverse => (&["inferenceConfig"], &["maxTokens", "max_new_tokens"]),
        WireFormat::Ollama => (&["options"], &["num_predict"]),
        WireFormat::OpenAiChat => (&[], &["max_completion_tokens", "max_tokens"]),
        _ => (&[], &["max_tokens"]),
    };
    CapPlace { objects, names }
}

//! Selects the decoder of a wire format.

use super::decoded::{Accumulate, RequestFacts};
use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v1, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::dialect::{Dialect, WireFormat};

/// Returns an empty accumulator for the dialect's wire format.
pub(super) fn accumulator(dialect: &'static Dialect, facts: &RequestFacts) -> Box<dyn Accumulate> {
    match dialect.family {
        WireFormat::OpenAiChat => {
            Box::new(openai_chat::Accumulator::new(dialect, facts.has_alternatives))
        }
        WireFormat::Anthropic => Box::new(anthropic::Accumulator::new()),
        WireFormat::Gemini => Box::new(gemini::Accumulator::new()),
        WireFormat::OpenAiResponses => Box::new(openai_responses::Accumulator::new(dialect)),
        WireFormat::CohereV2 => Box::new(cohere_v2::Accumulator::default()),
        WireFormat::CohereV1 => Box::new(cohere_v1::Accumulator::default()),
        WireFormat::Ollama => Box::new(ollama::Accumulator::new()),
        WireFormat::BedrockConverse => Box::new(bedrock_converse::Accumulator::new()),
        WireFormat::BedrockInvoke => Box::new(bedrock_invoke::Accumulator::new()),
    }
}

//! Selects the decoder of a wire format.

use super::decoded::Accumulate;
use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v1, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::dialect::{Dialect, Family};

/// Returns an empty accumulator for the dialect's wire format.
pub(super) fn accumulator(dialect: &'static Dialect) -> Box<dyn Accumulate> {
    match dialect.family {
        Family::OpenAiChat => Box::new(openai_chat::Accumulator::new(dialect)),
        Family::Anthropic => Box::new(anthropic::Accumulator::new()),
        Family::Gemini => Box::new(gemini::Accumulator::new()),
        Family::OpenAiResponses => Box::new(openai_responses::Accumulator::new(dialect)),
        Family::CohereV2 => Box::new(cohere_v2::Accumulator::default()),
        Family::CohereV1 => Box::new(cohere_v1::Accumulator::default()),
        Family::Ollama => Box::new(ollama::Accumulator::new()),
        Family::BedrockConverse => Box::new(bedrock_converse::Accumulator::new()),
        Family::BedrockInvoke => Box::new(bedrock_invoke::Accumulator::new()),
    }
}

//! Selects the reader of a body inside InvokeModel, whose format depends on the model.

use crate::codec::request::{Fields, RequestReader};
use crate::codec::{anthropic, bedrock_converse, openai_chat};

/// Returns the reader for this body. Bodies of older models have formats that are not read.
pub(super) fn reader(fields: &Fields<'_>) -> Option<&'static RequestReader> {
    match () {
        // Bedrock requires this field of Anthropic's models, and of no others.
        () if fields.raw("anthropic_version").is_some() => Some(&anthropic::read::READER),
        () if fields.raw("messages").is_none() => None,
        () if fields.raw("inferenceConfig").is_some() => Some(&bedrock_converse::read::READER),
        () => Some(&openai_chat::read::READER),
    }
}

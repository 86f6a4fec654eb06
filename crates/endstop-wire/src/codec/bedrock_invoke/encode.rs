//! Bedrock InvokeModel encoder, for Anthropic models.
//!
//! The request is Anthropic's own except for three fields: the URL names the model and asks for a
//! stream, and the body carries the format version.

use crate::codec::anthropic;
use crate::codec::request::{Encode, RequestSpec};
use endstop_core::Message;

/// Version of Anthropic's format that Bedrock accepts.
const VERSION: &str = "bedrock-2023-05-31";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder(anthropic::Encoder);

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        Encoder(anthropic::Encoder::addressed(spec, VERSION, false))
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self.0.bytes()
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        self.0.body(messages, epoch, output_cap)
    }
}

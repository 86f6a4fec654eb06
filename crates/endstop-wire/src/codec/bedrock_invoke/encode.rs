//! Messages to a request of an Anthropic model on Bedrock.
//!
//! It is Anthropic's own but for three fields: the address says the model and whether to stream,
//! and the version stands in the body.

use crate::codec::anthropic;
use crate::codec::request::RequestSpec;
use endstop_core::Message;

/// The version of Anthropic's format that Bedrock takes.
const VERSION: &str = "bedrock-2023-05-31";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub struct Encoder(anthropic::Encoder);

impl Encoder {
    /// An encoder of this spec.
    pub fn new(spec: &RequestSpec) -> Encoder {
        Encoder(anthropic::Encoder::addressed(spec, VERSION, false))
    }

    /// The body of the next call.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        self.0.body(messages, epoch, output_cap)
    }
}

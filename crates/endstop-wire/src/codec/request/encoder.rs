//! Provider-neutral requests ([`RequestSpec`]) and their append-only encoding ([`Encoder`]).
//!
//! ```
//! use endstop_core::{Message, MessageId, Role};
//! use endstop_wire::{Encoder, RequestSpec, dialect};
//! let spec = RequestSpec { model: "gpt-5".into(), ..RequestSpec::default() };
//! let mut encoder = Encoder::new(dialect::OPENAI_CHAT, &spec);
//! let mut messages = vec![Message::text(MessageId(1), Role::User, "Hello")];
//! let first = encoder.body(&messages, 0, Some(256)).to_vec();
//! messages.push(Message::text(MessageId(2), Role::Assistant, "Hi."));
//! let second = encoder.body(&messages, 0, Some(128)); // encodes the new message alone
//! assert!(second.len() > first.len());
//! ```
//!
//! A history is append-only within an epoch, so encoded bytes are reused and each turn costs only
//! its new messages. If the epoch changes, or if the history does not continue the previous one,
//! the encoder starts again.

use super::{Encode, RequestSpec};
use crate::codec::table::row;
use crate::dialect::Dialect;
use endstop_core::Message;

/// Encodes the requests of one conversation.
#[derive(Debug)]
pub struct Encoder(Option<Box<dyn Encode>>);

impl Clone for Encoder {
    fn clone(&self) -> Encoder {
        Encoder(self.0.as_ref().map(|encoder| encoder.copied()))
    }
}

impl Encoder {
    /// Creates an encoder for this dialect. If the format can only be decoded
    /// ([`read_only`](crate::WireFormat::read_only)), every body is empty and no server accepts it, so check before
    /// sending.
    pub fn new(dialect: &Dialect, spec: &RequestSpec) -> Encoder {
        Encoder(row(dialect.family).encode.map(|encoder| encoder(dialect, spec)))
    }

    /// Returns the body of the next call. `output_cap` overrides the spec's cap for this call only.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        self.0.as_mut().map_or(&[], |encoder| encoder.body(messages, epoch, output_cap))
    }

    /// Moves the bytes of the last body out, so that a client can send them without a copy. If they
    /// are not [given back](Self::give_back) before the next body, that one is encoded from its start.
    ///
    /// ```
    /// # use endstop_core::{Message, MessageId, Role};
    /// # use endstop_wire::{Encoder, RequestSpec, dialect};
    /// let mut encoder = Encoder::new(dialect::OPENAI_CHAT, &RequestSpec::default());
    /// let messages = [Message::text(MessageId(1), Role::User, "Hello")];
    /// let first = encoder.body(&messages, 0, None).to_vec();
    /// let sent = encoder.take_body();
    /// assert_eq!(sent, first);
    /// encoder.give_back(sent);
    /// assert_eq!(encoder.body(&messages, 0, None), first);
    /// ```
    pub fn take_body(&mut self) -> Vec<u8> {
        self.bytes().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the bytes of [`take_body`](Self::take_body), which must be unchanged.
    pub fn give_back(&mut self, body: Vec<u8>) {
        if let Some(bytes) = self.bytes() {
            *bytes = body;
        }
    }

    /// Returns the bytes of the last body.
    fn bytes(&mut self) -> Option<&mut Vec<u8>> {
        self.0.as_mut().map(|encoder| encoder.bytes())
    }
}

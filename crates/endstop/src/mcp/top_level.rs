//! Finds the request id of a message that is too large to store, by scanning it as it passes by.
//!
//! ```text
//! let mut message = TopLevel::default();
//! message.take(br#"{"jsonrpc":"2.0","result":{"id":1},"#);
//! message.take(br#""id":7}"#);
//! assert_eq!(message.answers(), Some(RequestId::Number(7)));
//! ```

use rmcp::model::RequestId;

/// The longest key or id that is stored, in bytes.
const LONGEST: usize = 64;

/// Scans the top-level members of a JSON object for the id of the request that it answers. Needs
/// constant memory and linear time, and the result does not depend on how the bytes are split.
#[derive(Debug, Default)]
pub(super) struct TopLevel {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// `true` while the scanner is inside the value of a member.
    in_value: bool,
    /// The current key or value.
    word: Vec<u8>,
    key: Vec<u8>,
    id: Option<RequestId>,
    is_request: bool,
}

impl TopLevel {
    /// Scans the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    /// Returns the id of the request that the message answers, or `None` if the message is itself a
    /// request.
    pub(super) fn answers(&self) -> Option<RequestId> {
        self.id.clone().filter(|_| !self.is_request)
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.key = std::mem::take(&mut self.word);
                self.in_value = true;
            }
            b',' if self.depth == 1 => self.member(),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() < LONGEST {
            self.word.push(byte);
        }
    }

    /// Handles the end of a member.
    fn member(&mut self) {
        let value = std::mem::take(&mut self.word);
        if std::mem::take(&mut self.in_value) {
            match self.key.as_slice() {
                br#""id""# => self.id = serde_json::from_slice(&value).ok(),
                br#""method""# => self.is_request = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_read_at_any_cut() {
        let seven = Some(RequestId::Number(7));
        let text = Some(RequestId::String("a\"b".into()));
        for (message, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":1,"x":["}",{"id":2}]}}"#, seven.clone()),
            (
                r#"{"result":{"content":[{"text":"\"id\":9,\\"}]},"jsonrpc":"2.0", "id" : 7 }"#,
                seven,
            ),
            (r#"{"id":"a\"b","error":{"code":1}}"#, text),
            (r#"{"id":7,"method":"sampling/createMessage","params":{}}"#, None),
            (r#"{"method":"x","id":7}"#, None),
            (r#"{"id":null,"error":{}}"#, None),
            (r#"{"id":[7],"result":{}}"#, None),
            (r#"{"result":{"id":7}}"#, None),
            ("[[[[", None),
            ("}}}}]]\"", None),
        ] {
            for cut in 0..=message.len() {
                let mut read = TopLevel::default();
                read.take(&message.as_bytes()[..cut]);
                read.take(&message.as_bytes()[cut..]);
                assert_eq!(read.answers(), id, "{message} cut at {cut}");
            }
        }
        // The long value is not stored.
        let mut long = TopLevel::default();
        long.take(br#"{"result":""#);
        (0..100_000).for_each(|_| long.take(b"xxxxxxxxxx"));
        long.take(br#"","id":3}"#);
        assert_eq!(long.answers(), Some(RequestId::Number(3)));
        assert!(long.word.capacity() + long.key.capacity() < 1000);
    }
}

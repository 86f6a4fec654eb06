//! Captures output in bounded memory: the beginning and the end are stored, and a mark shows the
//! cut.
//!
//! ```
//! use endstop_process::Capture;
//! let mut capture = Capture::keeping(4);
//! capture.take(b"0123456789");
//! assert_eq!(capture.text(), "0123\n[… 2 bytes left out …]\n6789");
//! ```

use std::collections::VecDeque;

/// Default number of bytes that are stored of each end.
const KEEP: usize = 32 * 1024;

/// An output of which the beginning and the end are stored.
#[derive(Clone, Debug)]
pub struct Capture {
    keep: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: u64,
}

impl Default for Capture {
    fn default() -> Capture {
        Capture::keeping(KEEP)
    }
}

impl Capture {
    /// Creates a capture that stores at most this many bytes of each end.
    pub fn keeping(keep: usize) -> Capture {
        Capture { keep, head: Vec::new(), tail: VecDeque::new(), left_out: 0 }
    }

    /// Appends the next bytes of the output.
    pub fn take(&mut self, bytes: &[u8]) {
        let room = (self.keep - self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        // Only the last `keep` bytes can end up in the tail, so the others are not copied.
        let (gone, last) = rest.split_at(rest.len().saturating_sub(self.keep));
        let over = (self.tail.len() + last.len()).saturating_sub(self.keep);
        self.tail.drain(..over);
        self.tail.extend(last);
        self.left_out += (gone.len() + over) as u64;
    }

    /// Returns the number of bytes that were left out in the middle.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the output, with a mark at the cut. Invalid UTF-8 is replaced; a character that the
    /// cut splits is left out as a whole instead.
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.left_out == 0 {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let head = without_cut_end(&self.head);
        let tail = without_cut_start(&tail);
        let left_out = self.left_out
            + (self.head.len() - head.len()) as u64
            + (self.tail.len() - tail.len()) as u64;
        format!(
            "{}\n[… {left_out} bytes left out …]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        )
    }
}

/// Returns the bytes without an incomplete character at their end.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // `error_len` is `None` only if the bytes end inside a character.
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Returns the bytes without the rest of a split character at their start (at most three bytes).
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let inside = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    &bytes[inside..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_size_does_not_change_capture() {
        let all: Vec<u8> = (0..500u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let mut whole = Capture::keeping(100);
        whole.take(&all);
        for size in [1, 3, 99, 100, 101, 250] {
            let mut pieces = Capture::keeping(100);
            all.chunks(size).for_each(|piece| pieces.take(piece));
            assert_eq!(pieces.text(), whole.text(), "pieces of {size}");
        }
        assert_eq!(whole.left_out() as usize, all.len() - 200);
        assert!(whole.text().starts_with("0\n1\n") && whole.text().ends_with("498\n499\n"));
    }

    #[test]
    fn short_output_is_unchanged() {
        let mut capture = Capture::keeping(4);
        capture.take(b"a\xff");
        capture.take("\u{e9}".as_bytes());
        assert_eq!(capture.text(), "a\u{fffd}\u{e9}");
    }

    #[test]
    fn split_character_is_left_out() {
        let mut capture = Capture::keeping(4);
        capture.take("ab€€€cd".as_bytes());
        assert_eq!(capture.text(), "ab\n[… 9 bytes left out …]\ncd");
    }
}

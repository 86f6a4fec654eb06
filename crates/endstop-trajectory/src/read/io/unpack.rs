//! Reads a file, and unpacks it if its first bytes are those of gzip or zstd.
//!
//! ```text
//! let mut input = Input::new(Box::new(File::open(path)?))?;
//! let head = input.head();                 // looked at, and read again below
//! while input.fill(&mut buffer, 1 << 20)? > 0 { … }
//! ```
//!
//! Files with several members or frames, such as those made by `cat a.gz b.gz`, are read to the
//! end. The unpacked content is never held as a whole: [`Input::fill`] returns at most the
//! requested number of bytes.

use flate2::read::MultiGzDecoder;
use memchr::memchr;
use std::io::{self, Chain, Cursor, Read};

/// Number of bytes that are inspected for format detection.
pub(crate) const HEAD: usize = 256 << 10;

/// Maximum number of bytes that are inspected if the first line is an incomplete object. The
/// presence of a second line distinguishes a file of lines from a single run.
pub(crate) const LINE: usize = 32 << 20;

/// A file that is read once, from beginning to end.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    /// The bytes that were inspected and not yet returned.
    ahead: Vec<u8>,
    taken: usize,
    /// An error that occurred while looking ahead; it is returned after the bytes before it.
    failed: Option<io::Error>,
    /// The length of the byte order mark that was skipped.
    pub(crate) mark: u64,
}

impl Input {
    /// Reads the first bytes and sets up unpacking.
    pub(crate) fn new(mut raw: Box<dyn Read + Send>) -> io::Result<Input> {
        let mut magic = Vec::with_capacity(4);
        raw.by_ref().take(4).read_to_end(&mut magic)?;
        let packed = Packing::of(&magic);
        // The four bytes are part of the file, so they are put back in front of the reader.
        let raw: Chain<Cursor<Vec<u8>>, _> = Cursor::new(magic).chain(raw);
        let reader: Box<dyn Read + Send> = match packed {
            None => Box::new(raw),
            Some(Packing::Gzip) => Box::new(MultiGzDecoder::new(raw)),
            Some(Packing::Zstd) => Box::new(zstd::stream::read::Decoder::new(raw)?),
        };
        let mut input = Input { reader, ahead: Vec::new(), taken: 0, failed: None, mark: 0 };
        let mut ahead = Vec::new();
        if let Err(error) = input.reader.by_ref().take(HEAD as u64).read_to_end(&mut ahead) {
            input.failed = Some(error);
        }
        // JSON does not allow a byte order mark, and some editors write it.
        if ahead.starts_with(b"\xef\xbb\xbf") {
            ahead.drain(..3);
            input.mark = 3;
        }
        input.ahead = ahead;
        if input.ahead.trim_ascii_start().starts_with(b"{") {
            input.look_on();
        }
        Ok(input)
    }

    /// Looks ahead for a second line after the first.
    fn look_on(&mut self) {
        let mut line = memchr(b'\n', &self.ahead);
        while self.failed.is_none() && self.ahead.len() < LINE {
            if line.is_some_and(|end| !self.ahead[end..].trim_ascii().is_empty()) {
                return;
            }
            let had = self.ahead.len();
            match self.reader.by_ref().take(HEAD as u64).read_to_end(&mut self.ahead) {
                Ok(0) => return,
                Ok(_) => line = line.or_else(|| Some(had + memchr(b'\n', &self.ahead[had..])?)),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Returns the beginning of the unpacked file, without a byte order mark; the whole file if it
    /// is short.
    pub(crate) fn head(&self) -> &[u8] {
        &self.ahead
    }

    /// Appends up to `most` bytes and returns their number; 0 at the end.
    pub(crate) fn fill(&mut self, buffer: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        if self.taken < self.ahead.len() {
            let n = most.min(self.ahead.len() - self.taken);
            buffer.extend_from_slice(&self.ahead[self.taken..self.taken + n]);
            self.taken += n;
            return Ok(n);
        }
        self.ahead = Vec::new();
        self.taken = 0;
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let had = buffer.len();
        match self.reader.by_ref().take(most as u64).read_to_end(buffer) {
            Ok(n) => Ok(n),
            // The bytes before the error are valid. The error is returned by the next call.
            Err(error) if buffer.len() > had => {
                self.failed = Some(error);
                Ok(buffer.len() - had)
            }
            Err(error) => Err(error),
        }
    }
}

enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    fn of(magic: &[u8]) -> Option<Packing> {
        match magic {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            // A regular frame, or a skippable frame that precedes it.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some(Packing::Zstd),
            _ => None,
        }
    }
}

/// Returns `true` if the bytes begin like a zip archive, which may be empty.
pub(crate) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn all(bytes: Vec<u8>) -> (Vec<u8>, Option<io::ErrorKind>) {
        let mut input = Input::new(Box::new(Cursor::new(bytes))).unwrap();
        let mut out = Vec::new();
        loop {
            match input.fill(&mut out, 1000) {
                Ok(0) => return (out, None),
                Ok(_) => {}
                Err(error) => return (out, Some(error.kind())),
            }
        }
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    #[test]
    fn multi_member_files_are_read_completely() {
        let text = "line\n".repeat(100_000).into_bytes();
        let both = [&text[..], &text[..]].concat();
        assert_eq!(all(text.clone()).0, text);
        assert_eq!(all([gz(&text), gz(&text)].concat()).0, both);
        let frame = zstd::encode_all(&text[..], 1).unwrap();
        assert_eq!(all([frame.clone(), frame].concat()).0, both);
    }

    #[test]
    fn truncated_packed_file_reports_the_cut() {
        let text: Vec<u8> = (0..600_000u32).flat_map(|i| format!("{i}\n").into_bytes()).collect();
        for mut packed in [gz(&text), zstd::encode_all(&text[..], 1).unwrap()] {
            packed.truncate(packed.len() - packed.len() / 3);
            let (out, error) = all(packed);
            assert!(out.len() > text.len() / 3 && text.starts_with(&out), "{}", out.len());
            assert_eq!(error, Some(io::ErrorKind::UnexpectedEof));
        }
    }

    #[test]
    fn byte_order_mark_is_skipped() {
        assert_eq!(all(b"\xef\xbb\xbf{}".to_vec()).0, b"{}");
    }
}

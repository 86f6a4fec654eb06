//! Decompresses copies of bodies, in bounded memory. The bodies themselves pass unchanged.

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Write;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

/// The reason why the copy of a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The body has a content encoding that is not supported, such as `br`.
    #[error("unsupported content encoding `{0}`")]
    Encoding(String),
    /// The compressed data are invalid.
    #[error("invalid compressed data")]
    Invalid,
    /// The decompressed body is larger than the limit.
    #[error("the decompressed body is too large")]
    TooLarge,
}

/// Receives parts of a decompressed body.
type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Unreadable> + 'a;

/// Decompresses one body, chunk by chunk.
pub(crate) struct Decoder {
    kind: Kind,
    left: u64,
}

enum Kind {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
    // `deflate` is zlib by its definition, but some servers send it without the zlib header.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
    Zstd(ZstdFrames),
    Unknown(String),
    Off,
}

impl Decoder {
    /// Returns a decoder for a body with these headers, which produces at most `limit` bytes from a
    /// compressed body.
    pub(crate) fn of(headers: &HeaderMap, limit: u64) -> Decoder {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let (first, second) = (values.next(), values.next());
        let name = first.map_or(&b""[..], |value| value.as_bytes().trim_ascii());
        let name = String::from_utf8_lossy(&name[..name.len().min(40)]).to_ascii_lowercase();
        let kind = match name.as_str() {
            _ if second.is_some() => Kind::Unknown("several".to_owned()),
            "" | "identity" => Kind::Plain,
            "gzip" | "x-gzip" => Kind::Gzip(MultiGzDecoder::new(Vec::new())),
            "deflate" => Kind::Deflate,
            "zstd" => ZstdFrames::new().map_or(Kind::Unknown(name), Kind::Zstd),
            _ => Kind::Unknown(name.escape_default().to_string()),
        };
        Decoder { kind, left: limit }
    }

    /// Returns whether the bytes that pass differ from those that are read.
    pub(crate) fn is_encoded(&self) -> bool {
        !matches!(self.kind, Kind::Plain)
    }

    /// Decompresses a chunk and gives the output to `sink` in parts. After an error, the decoder
    /// ignores all input.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Unreadable> {
        if bytes.is_empty() {
            return Ok(());
        }
        let result = self.feed_kind(bytes, sink);
        if result.is_err() {
            self.kind = Kind::Off;
        }
        result
    }

    fn feed_kind(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), Unreadable> {
        if matches!(self.kind, Kind::Deflate) {
            // The low four bits of a zlib header are the method, 8.
            self.kind = if bytes[0] & 0x0f == 8 {
                Kind::Zlib(ZlibDecoder::new(Vec::new()))
            } else {
                Kind::Raw(DeflateDecoder::new(Vec::new()))
            };
        }
        let left = &mut self.left;
        let mut sink = |part: &[u8]| {
            *left = left.checked_sub(part.len() as u64).ok_or(Unreadable::TooLarge)?;
            sink(part);
            Ok(())
        };
        match &mut self.kind {
            Kind::Plain => {
                sink(bytes)?;
                Ok(())
            }
            Kind::Gzip(decoder) => inflate(decoder, MultiGzDecoder::get_mut, bytes, &mut sink),
            Kind::Zlib(decoder) => inflate(decoder, ZlibDecoder::get_mut, bytes, &mut sink),
            Kind::Raw(decoder) => inflate(decoder, DeflateDecoder::get_mut, bytes, &mut sink),
            Kind::Zstd(frames) => frames.feed(bytes, &mut sink),
            Kind::Unknown(name) => Err(Unreadable::Encoding(std::mem::take(name))),
            Kind::Deflate | Kind::Off => Ok(()),
        }
    }
}

fn inflate<D: Write>(
    decoder: &mut D,
    output: fn(&mut D) -> &mut Vec<u8>,
    mut bytes: &[u8],
    sink: &mut Sink<'_>,
) -> Result<(), Unreadable> {
    // A call of `write` fills the decoder's buffer of 32 kB at most once, which bounds the output
    // that waits here, however well the input was compressed.
    while !bytes.is_empty() {
        let used = decoder.write(bytes).map_err(|_| Unreadable::Invalid)?;
        drain(output(decoder), sink)?;
        if used == 0 {
            // Bytes after the end of the compressed data have no meaning.
            return Ok(());
        }
        bytes = &bytes[used..];
    }
    // Server-sent events must be read when they arrive, not when the buffer is full.
    decoder.flush().map_err(|_| Unreadable::Invalid)?;
    drain(output(decoder), sink)
}

fn drain(output: &mut Vec<u8>, sink: &mut Sink<'_>) -> Result<(), Unreadable> {
    if !output.is_empty() {
        sink(output)?;
        output.clear();
    }
    Ok(())
}

/// Logarithm of the largest window: the 8 MiB that RFC 9659 allows for HTTP.
const LARGEST_WINDOW: u32 = 23;

/// The state of a zstd stream (RFC 8878) between two chunks of input. It takes a window, two blocks of 128 KiB, and the tables of
/// the decoder, however well the input was compressed: the decoder stops when `output` is full.
struct ZstdFrames {
    decoder: DCtx<'static>,
    output: Vec<u8>,
}

impl ZstdFrames {
    /// Returns a decoder, or `None` if there is no memory for it.
    fn new() -> Option<ZstdFrames> {
        let mut decoder = DCtx::try_create()?;
        // Without it, a header could ask for a window of 128 MiB.
        decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW)).ok()?;
        Some(ZstdFrames { decoder, output: vec![0; 64 << 10] })
    }

    /// Decompresses all blocks that are complete. Frames may follow each other; skippable ones are
    /// skipped.
    fn feed(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Unreadable> {
        let mut input = InBuffer::around(bytes);
        loop {
            let mut output = OutBuffer::around(&mut self.output[..]);
            self.decoder.decompress_stream(&mut output, &mut input).map_err(reason)?;
            let written = output.pos();
            if written > 0 {
                sink(&self.output[..written])?;
            }
            // A full buffer means that more output may wait, also after the last byte of input.
            if written < self.output.len() && input.pos() == bytes.len() {
                return Ok(());
            }
        }
    }
}

fn reason(error: ErrorCode) -> Unreadable {
    // zstd returns the negative number of an error. The numbers are part of its stable interface.
    let too_wide = ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge as usize;
    if error.wrapping_neg() == too_wide { Unreadable::TooLarge } else { Unreadable::Invalid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_read_before_its_frame_ends() {
        let mut frames = ZstdFrames::new().unwrap();
        let mut output = Vec::new();
        let mut sink = |part: &[u8]| {
            output.extend_from_slice(part);
            Ok(())
        };
        // A window of 8 MiB, and a block that is not the last.
        frames.feed(&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68, 0x18, 0x00, 0x00], &mut sink).unwrap();
        frames.feed(b"abc", &mut sink).unwrap();
        assert_eq!(output, b"abc");
    }

    #[test]
    fn memory_is_bounded_for_bombs() {
        // A window of 8 MiB, and blocks that repeat one byte 128 KiB times.
        let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68];
        stream.extend([0x02, 0x00, 0x10, b'a'].repeat(1000));
        let mut frames = ZstdFrames::new().unwrap();
        let (mut total, mut largest) = (0, 0);
        for chunk in stream.chunks(1001) {
            let mut sink = |part: &[u8]| {
                total += part.len();
                largest = largest.max(part.len());
                Ok(())
            };
            frames.feed(chunk, &mut sink).unwrap();
        }
        assert_eq!(total, 1000 << 17);
        assert!(largest <= 64 << 10, "{largest}");
        let memory = frames.decoder.sizeof();
        assert!(memory < 9 << 20, "{memory}");
    }
}

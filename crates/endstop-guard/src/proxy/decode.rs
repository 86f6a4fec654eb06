//! Decompresses copies of bodies, in bounded memory. The bodies themselves pass unchanged.

use super::unreadable::{Sink, Unreadable};
use super::zstd_frames::ZstdFrames;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Write;

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

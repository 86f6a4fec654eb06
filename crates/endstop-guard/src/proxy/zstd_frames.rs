//! Decompresses a zstd stream (RFC 8878) in bounded memory.

use super::unreadable::{Sink, Unreadable};
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

/// Logarithm of the largest window: the 8 MiB that RFC 9659 allows for HTTP.
const LARGEST_WINDOW: u32 = 23;

/// The state between two chunks of input. It takes a window, two blocks of 128 KiB, and the tables of
/// the decoder, however well the input was compressed: the decoder stops when `output` is full.
pub(crate) struct ZstdFrames {
    decoder: DCtx<'static>,
    output: Vec<u8>,
}

impl ZstdFrames {
    /// Returns a decoder, or `None` if there is no memory for it.
    pub(crate) fn new() -> Option<ZstdFrames> {
        let mut decoder = DCtx::try_create()?;
        // Without it, a header could ask for a window of 128 MiB.
        decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW)).ok()?;
        Some(ZstdFrames { decoder, output: vec![0; 64 << 10] })
    }

    /// Decompresses all blocks that are complete. Frames may follow each other; skippable ones are
    /// skipped.
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Unreadable> {
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

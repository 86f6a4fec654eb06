//! Splits a zstd stream (RFC 8878) into blocks and decompresses them one by one.

use super::unreadable::{Sink, Unreadable};
use ruzstd::decoding::FrameDecoder;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The largest window: what RFC 9659 allows for HTTP.
const LARGEST_WINDOW: u64 = 8 << 20;
/// The largest block (RFC 8878, section 3.1.1.2.4).
const LARGEST_BLOCK: usize = 128 << 10;
const MAGIC: u32 = 0xFD2F_B528;

/// The state between two chunks of input.
pub(crate) struct ZstdFrames {
    decoder: FrameDecoder,
    // At most a block and a chunk of the body.
    pending: Vec<u8>,
    in_frame: bool,
    has_checksum: bool,
    skip: usize,
    output: Vec<u8>,
}

impl Default for ZstdFrames {
    fn default() -> ZstdFrames {
        ZstdFrames {
            decoder: FrameDecoder::new(),
            pending: Vec::new(),
            in_frame: false,
            has_checksum: false,
            skip: 0,
            output: vec![0; 64 << 10],
        }
    }
}

impl ZstdFrames {
    /// Decompresses all blocks that are complete. `ruzstd` keeps the last window of its output until
    /// the frame ends, so short streams are only read at their end.
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Unreadable> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let used = self.step(&pending[at..], sink)?;
            if used == 0 {
                break;
            }
            at += used;
        }
        pending.drain(..at);
        self.pending = pending;
        Ok(())
    }

    /// Processes the next element and returns its length, or 0 if it is not complete.
    fn step(&mut self, input: &[u8], sink: &mut Sink<'_>) -> Result<usize, Unreadable> {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len());
            self.skip -= skipped;
            return Ok(skipped);
        }
        if self.in_frame { self.block(input, sink) } else { self.frame_header(input) }
    }

    fn frame_header(&mut self, input: &[u8]) -> Result<usize, Unreadable> {
        let Some(magic) = little_endian(input, 0, 4) else { return Ok(0) };
        // Skippable frames have 16 magic numbers.
        if magic >> 4 == 0x0184_D2A5 {
            let Some(length) = little_endian(input, 4, 4) else { return Ok(0) };
            self.skip = length as usize;
            return Ok(8);
        }
        if magic != u64::from(MAGIC) {
            return Err(Unreadable::Invalid);
        }
        let Some(descriptor) = input.get(4).copied() else { return Ok(0) };
        let single_segment = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = match descriptor >> 6 {
            0 => usize::from(single_segment),
            flag => 1 << flag,
        };
        let window = usize::from(!single_segment);
        let length = 5 + window + dictionary + size;
        if input.len() < length {
            return Ok(0);
        }
        let window = if single_segment {
            little_endian(input, 5 + dictionary, size).unwrap_or(u64::MAX)
        } else {
            let base = 1_u64 << (10 + (input[5] >> 3));
            base + base / 8 * u64::from(input[5] & 7)
        };
        if window > LARGEST_WINDOW {
            return Err(Unreadable::TooLarge);
        }
        self.decoder.reset(&input[..length]).map_err(|_| Unreadable::Invalid)?;
        self.has_checksum = descriptor & 4 != 0;
        self.in_frame = true;
        Ok(length)
    }

    fn block(&mut self, input: &[u8], sink: &mut Sink<'_>) -> Result<usize, Unreadable> {
        let Some(header) = little_endian(input, 0, 3) else { return Ok(0) };
        let (last, kind, size) = (header & 1 == 1, header >> 1 & 3, (header >> 3) as usize);
        if kind == 3 || size > LARGEST_BLOCK {
            return Err(Unreadable::Invalid);
        }
        // A block of kind 1 repeats one byte.
        let content = if kind == 1 { 1 } else { size };
        let length = 3 + content + if last && self.has_checksum { 4 } else { 0 };
        if input.len() < length {
            return Ok(0);
        }
        let mut block = &input[..length];
        loop {
            let (decoder, output) = (&mut self.decoder, &mut self.output);
            // The decoder asserts some properties of its input instead of returning an error. It is
            // not used again after a panic.
            let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode_from_to(block, output)));
            let Ok(Ok((_, written))) = decoded else { return Err(Unreadable::Invalid) };
            sink(&self.output[..written])?;
            if written < self.output.len() {
                break;
            }
            block = &[];
        }
        self.in_frame = !last;
        Ok(length)
    }
}

fn little_endian(input: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = input.get(at..at + length)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

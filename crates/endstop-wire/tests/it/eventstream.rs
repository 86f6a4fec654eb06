//! AWS event streams: the frames that AWS publishes, every header type, faulty frames, and
//! arbitrary bytes in chunks of any size.

use endstop_wire::stream::eventstream::{EventStreamDecoder, FrameError, HeaderValue, frame};
use proptest::prelude::*;

/// Number of headers of a message, and its payload.
type Seen = (usize, Vec<u8>);

/// Decodes these bytes in chunks. Also returns `true` if the decoder ended between two frames.
fn messages(bytes: &[u8], cut: usize) -> (Vec<Seen>, Result<bool, FrameError>) {
    let mut decoder = EventStreamDecoder::new();
    let mut seen = Vec::new();
    for piece in bytes.chunks(cut) {
        let pushed = decoder.push(piece, &mut |m| seen.push((m.headers.len(), m.payload.to_vec())));
        if let Err(error) = pushed {
            assert_eq!(decoder.push(b"more", &mut |_| panic!("it continued")), Err(error));
            return (seen, Err(error));
        }
    }
    (seen, Ok(decoder.is_between()))
}

/// Builds a frame of arbitrary headers and payload.
fn raw(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = ((16 + headers.len() + payload.len()) as u32).to_be_bytes().to_vec();
    out.extend((headers.len() as u32).to_be_bytes());
    out.extend(crc32(&out).to_be_bytes());
    out.extend(headers);
    out.extend(payload);
    out.extend(crc32(&out).to_be_bytes());
    out
}

/// CRC-32, one bit at a time, so that the test does not depend on the library under test.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn frames_match_aws_test_vectors() {
    let empty = [0, 0, 0, 16, 0, 0, 0, 0, 5, 194, 72, 235, 125, 152, 200, 255];
    assert_eq!(frame(&[], b""), empty);
    assert_eq!(raw(b"", b""), empty);
    assert_eq!(messages(&empty, 1), (vec![(0, vec![])], Ok(true)));
    let payload = b"{'foo':'bar'}";
    let with_payload = frame(&[], payload);
    assert_eq!(with_payload[..12], [0, 0, 0, 29, 0, 0, 0, 0, 0xfd, 0x52, 0x8c, 0x5a]);
    assert_eq!(with_payload[25..], [0xc3, 0x65, 0x39, 0x36]);
    let typed = frame(&[("content-type", "application/json")], payload);
    assert_eq!(typed[..12], [0, 0, 0, 61, 0, 0, 0, 32, 0x07, 0xfd, 0x83, 0x96]);
    assert_eq!(typed[57..], [0x8d, 0x9c, 0x08, 0xb1]);
}

#[test]
fn all_header_types_decode() {
    let mut headers = Vec::new();
    let mut add = |name: &str, kind: u8, value: &[u8]| {
        headers.push(name.len() as u8);
        headers.extend(name.as_bytes());
        headers.push(kind);
        headers.extend(value);
    };
    add("yes", 0, &[]);
    add("no", 1, &[]);
    add("byte", 2, &[0xff]);
    add("short", 3, &[0xff, 0xfe]);
    add("integer", 4, &[0, 1, 0, 0]);
    add("long", 5, &[0xff; 8]);
    add("bytes", 6, &[0, 2, 0, 0xff]);
    add("text", 7, "\0\u{2}é".as_bytes());
    add("time", 8, &[0, 0, 0, 0, 0, 0, 1, 0]);
    add("uuid", 9, &[7; 16]);
    let bytes = raw(&headers, b"p");
    for cut in 1..=bytes.len() {
        let mut decoder = EventStreamDecoder::new();
        let mut seen = 0;
        for piece in bytes.chunks(cut) {
            let check = |m: &endstop_wire::stream::eventstream::EventMessage<'_>| {
                let values: Vec<_> = m.headers.iter().map(|(_, value)| *value).collect();
                assert_eq!(
                    values,
                    [
                        HeaderValue::Bool(true),
                        HeaderValue::Bool(false),
                        HeaderValue::Byte(-1),
                        HeaderValue::Short(-2),
                        HeaderValue::Integer(65536),
                        HeaderValue::Long(-1),
                        HeaderValue::Bytes(&[0, 255]),
                        HeaderValue::Text("é"),
                        HeaderValue::Timestamp(256),
                        HeaderValue::Uuid([7; 16]),
                    ]
                );
                assert_eq!(
                    (m.text("text"), m.text("bytes"), m.payload),
                    (Some("é"), None, &b"p"[..])
                );
            };
            decoder
                .push(piece, &mut |m| {
                    check(m);
                    seen += 1;
                })
                .unwrap();
        }
        assert_eq!(seen, 1, "{cut}");
    }
}

#[test]
fn faulty_frame_ends_the_stream() {
    let good = frame(&[("a", "b")], b"payload");
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    // A prelude with a valid checksum.
    let claims = |total: u32, headers: u32| {
        let mut out = total.to_be_bytes().to_vec();
        out.extend(headers.to_be_bytes());
        out.extend(crc32(&out).to_be_bytes());
        out.extend([0; 64]);
        out
    };
    for (bad, error) in [
        (flipped(1), FrameError::PreludeChecksum),
        (flipped(7), FrameError::PreludeChecksum),
        (flipped(9), FrameError::PreludeChecksum),
        (flipped(13), FrameError::MessageChecksum),
        (flipped(20), FrameError::MessageChecksum),
        (flipped(good.len() - 1), FrameError::MessageChecksum),
        (claims(0, 0), FrameError::Length(0)),
        (claims(15, 0), FrameError::Length(15)),
        (claims(u32::MAX, 0), FrameError::Length(u32::MAX)),
        (claims((24 << 20) + 1, 0), FrameError::Length((24 << 20) + 1)),
        (claims(32, 17), FrameError::HeadersLength(17)),
        (claims(32, u32::MAX), FrameError::HeadersLength(u32::MAX)),
        (claims(1 << 20, (128 << 10) + 1), FrameError::HeadersLength((128 << 10) + 1)),
        (raw(&[0, 0], b""), FrameError::HeaderText),
        (raw(&[1, 0xff, 0], b""), FrameError::HeaderText),
        (raw(&[1, b'a', 7, 0, 1, 0xff], b""), FrameError::HeaderText),
        (raw(&[1, b'a', 10], b""), FrameError::HeaderType(10)),
        (raw(&[5, b'a'], b"bcdef"), FrameError::HeaderCut),
        (raw(&[1, b'a'], b""), FrameError::HeaderCut),
        (raw(&[1, b'a', 7, 0, 9, b'x'], b"12345678"), FrameError::HeaderCut),
        (raw(&[1, b'a', 5, 0, 0], b""), FrameError::HeaderCut),
        (raw(&[1, b'a', 9, 0], b""), FrameError::HeaderCut),
    ] {
        let bytes = [good.clone(), bad, good.clone()].concat();
        for cut in [1, 2, 3, 7, 11, 12, 13, 16, 31, bytes.len()] {
            let (seen, ended) = messages(&bytes, cut);
            assert_eq!((seen.len(), ended), (1, Err(error)), "{cut}");
        }
    }
    assert_eq!(messages(&claims(24 << 20, 0), 5).1, Ok(false), "waits for the rest");
}

#[test]
fn large_frame_takes_linear_time() {
    let payload = vec![b'x'; 1 << 20];
    let bytes = frame(&[(":message-type", "event")], &payload);
    let (seen, ended) = messages(&bytes, 3);
    assert!(seen.len() == 1 && seen[0].1 == payload && ended == Ok(true));
}

proptest! {
    /// Arbitrary bytes: no panic, and the same result for every chunk size.
    #[test]
    fn any_bytes_are_chunk_independent(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        flip in any::<prop::sample::Index>(),
        cut in 1usize..40,
    ) {
        let mut bytes: Vec<u8> = frames.iter().flat_map(|p| frame(&[("n", "v")], p)).collect();
        let sound = messages(&bytes, cut);
        prop_assert_eq!(sound.0.len(), frames.len());
        bytes.extend(noise);
        prop_assert_eq!(messages(&bytes, cut), messages(&bytes, usize::MAX));
        if !bytes.is_empty() {
            let at = flip.index(bytes.len());
            bytes[at] ^= 1;
            prop_assert_eq!(messages(&bytes, cut), messages(&bytes, usize::MAX));
        }
    }
}

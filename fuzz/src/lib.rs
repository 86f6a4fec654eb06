//! Fuzz targets: one function per target, which checks the invariants of a decoder for any input.
//!
//! ```sh
//! fuzz/run            # every target for a minute, and a table
//! fuzz/run 600 sse    # one target for ten minutes
//! ```
//!
//! An input is a head of four bytes (the dialect, the status, the request with its headers, and the
//! chunk lengths) and the body. To add a wire format, add a file in `fuzz_targets` that calls
//! [`fuzz`] with its name.

mod laws;
mod model;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_wire::dialect::{DIALECTS, Dialect, WireFormat};
use endstop_wire::errors::{classify, retry_after_ms};
use endstop_wire::stream::eventstream::{self, frame};
use endstop_wire::redact::EXCERPT_CHARS;
use endstop_wire::stream::sse as events;
use endstop_wire::{Eof, Headers, RequestFacts, StreamDecoder, decode_body};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Number of bytes before the body.
pub const HEAD: usize = 4;

/// Statuses to choose from; most are 200, because error responses take shorter paths.
const STATUSES: [u16; 16] =
    [200, 200, 200, 200, 200, 200, 0, 201, 302, 400, 401, 403, 429, 500, 503, 65535];

/// A parsed input.
pub struct Input<'a> {
    which: u8,
    status: u16,
    facts: RequestFacts,
    headers: Headers,
    cuts: u8,
    body: Cow<'a, [u8]>,
}

/// Encodes a line as a binary frame. The first word is its kind (`e`vent, `x` for an exception, `r`
/// for an error), the second its type, and the rest its payload. The payload of a `chunk` is
/// wrapped in base64, as Bedrock does.
fn framed(line: &[u8]) -> Vec<u8> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let mut word = || words.next().unwrap_or_default();
    let (what, kind, payload) = (word(), String::from_utf8_lossy(word()), word());
    let packed = format!("{{\"bytes\":\"{}\"}}", STANDARD.encode(payload));
    let payload = if kind == "chunk" { packed.as_bytes() } else { payload };
    let (what, name) = match what {
        b"x" => ("exception", ":exception-type"),
        b"r" => ("error", ":error-code"),
        _ => ("event", ":event-type"),
    };
    frame(&[(":message-type", what), (name, &kind)], payload)
}

impl<'a> Input<'a> {
    /// Parses an input; `None` if it is shorter than the head.
    pub fn read(data: &'a [u8]) -> Option<Input<'a>> {
        let (&[which, status, request, cuts], body) = data.split_first_chunk::<HEAD>()?;
        let cap = u64::from(request >> 1 & 7);
        let mut headers = Headers::new();
        for (bit, name, value) in [
            (16, "retry-after", "7"),
            (32, "x-should-retry", "false"),
            (64, "content-encoding", "gzip"),
            (128, "content-type", "text/html"),
        ] {
            if request & bit != 0 {
                headers.push(name, value);
            }
        }
        Some(Input {
            which,
            status: STATUSES[usize::from(status) % STATUSES.len()],
            facts: RequestFacts {
                stop_strings: request & 1 != 0,
                output_cap: (cap > 0).then_some(cap),
                has_alternatives: cuts & 1 == 1,
                ..RequestFacts::default()
            },
            headers,
            cuts,
            body: Cow::Borrowed(body),
        })
    }

    /// For formats with binary frames, and in every second input: encodes each line of the body as
    /// a frame, because mutation alone never finds a valid checksum.
    fn frame(&mut self, family: WireFormat) {
        if family.in_frames() && self.which & 1 == 1 {
            let mut frames = Vec::new();
            for line in self.body.split(|byte| *byte == b'\n') {
                frames.extend(framed(line));
            }
            self.body = Cow::Owned(frames);
        }
        self.which /= 2;
    }

    /// Returns the chunks of the body: of equal length, or of pseudo-random lengths.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (mut rest, mut seed) = (&*self.body, u32::from(self.cuts) + 1);
        let even = self.cuts < 128;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            // A linear congruential generator, because the chunks must depend on the input alone.
            if !even {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            }
            let len = if even { seed as usize } else { 1 + (seed >> 16) as usize % 97 };
            let (piece, after) = rest.split_at(len.min(rest.len()));
            rest = after;
            Some(piece)
        })
    }
}

/// Decodes a response of this format in one of its dialects: complete, in chunks, and in one chunk.
///
/// # Panics
/// If an invariant is broken or the format is not known.
pub fn fuzz(format: &str, data: &[u8]) {
    let family = WireFormat::named(format).unwrap_or_else(|| panic!("no wire format is `{format}`"));
    let Some(mut input) = Input::read(data) else { return };
    input.frame(family);
    let of_family: Vec<&'static Dialect> =
        DIALECTS.iter().filter(|dialect| dialect.family == family).collect();
    let dialect = of_family[usize::from(input.which) % of_family.len()];
    let whole = decode_body(dialect, input.status, &input.headers, &input.body, &input.facts);
    laws::of(&whole, dialect, input.status, input.body.len());
    let (cut, said) = streamed(dialect, &input, input.pieces());
    assert_eq!(whole, cut, "cuts change nothing");
    // The deltas are compared with a stream too, because `decode_body` returns none.
    let (_, at_once) = streamed(dialect, &input, std::iter::once(&*input.body));
    assert_eq!(at_once, said, "cuts change no delta");
    laws::of_deltas(&said, input.body.len());
}

fn streamed<'b>(
    dialect: &'static Dialect,
    input: &Input<'_>,
    pieces: impl Iterator<Item = &'b [u8]>,
) -> (endstop_wire::Decoded, laws::Shown) {
    let mut shown = laws::Shown::default();
    let mut stream = StreamDecoder::new(dialect, input.status, input.headers.clone(), input.facts);
    let mut unreadable = false;
    for piece in pieces {
        if let Err(e) = stream.push(piece, &mut |delta| shown.take(delta)) {
            // Text formats fail only above their size limits, which no input reaches.
            assert!(dialect.family.in_frames(), "the body is within its bounds: {e:?}");
            unreadable = true;
            break;
        }
    }
    let decoded = stream.finish(Eof::Clean);
    assert!(!unreadable || decoded.error.is_some(), "damage is reported: {decoded:?}");
    (decoded, shown)
}

/// Compares the decoder of server-sent events with a model that follows the text of the standard.
///
/// # Panics
/// If they differ.
pub fn sse(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    let mut seen = Vec::new();
    let mut take = |item: events::Item<'_>| seen.push(model::Seen::from(item));
    let mut decoder = events::SseDecoder::new();
    for piece in input.pieces() {
        decoder.push(piece, &mut take).expect("within the caps");
    }
    decoder.finish(&mut take).expect("within the caps");
    let (expected, retry) = model::events(&input.body);
    assert_eq!(seen, expected);
    assert_eq!(decoder.retry(), retry);

    // With small limits, an error is permanent, and no event exceeds its limit.
    let caps = events::Caps { line: 40, event: 60 };
    let mut decoder = events::SseDecoder::with_caps(caps);
    let mut refused = None;
    for piece in input.pieces() {
        let pushed = decoder.push(piece, &mut |item| {
            if let events::Item::Event { data, .. } = item {
                // A byte that is not UTF-8 becomes a replacement character of three bytes.
                assert!(data.len() <= 3 * caps.event, "an event beyond the cap");
            }
        });
        match (refused, pushed) {
            (Some(e), again) => assert_eq!(again, Err(e)),
            (None, pushed) => refused = pushed.err(),
        }
    }
}

/// Decodes binary frames: the raw body, and the lines of the body encoded as valid frames, one of
/// which may be damaged. Valid frames are decoded, and nothing after a damaged frame is.
///
/// # Panics
/// If an invariant is broken.
pub fn frames(data: &[u8]) {
    type Seen = Vec<(Vec<String>, Vec<u8>)>;
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut decoder, mut seen) = (eventstream::EventStreamDecoder::new(), Seen::new());
        let mut failed = None;
        for piece in pieces {
            let pushed = decoder.push(piece, &mut |message| {
                let headers = message.headers.iter().map(|header| format!("{header:?}"));
                seen.push((headers.collect(), message.payload.to_vec()));
            });
            match (failed, pushed) {
                (Some(e), again) => assert_eq!(again, Err(e)),
                (None, pushed) => failed = pushed.err(),
            }
        }
        (seen, failed, failed.is_none() && decoder.is_between())
    };
    let Some(mut input) = Input::read(data) else { return };
    assert_eq!(read(&mut input.pieces()), read(&mut std::iter::once(&*input.body)));
    let lines: Vec<&[u8]> = input.body.split(|byte| *byte == b'\n').collect();
    let mut sound: Vec<u8> = lines.iter().flat_map(|line| framed(line)).collect();
    let count = lines.len();
    // Any damaged byte must be detected, because checksums cover the whole frame.
    let damaged = usize::from(input.status) % sound.len();
    let whole = input.which & 1 == 0;
    if !whole {
        sound[damaged] ^= 1 + input.which / 2;
    }
    input.body = Cow::Owned(sound);
    let (seen, failed, between) = read(&mut input.pieces());
    assert_eq!((seen.clone(), failed, between), read(&mut std::iter::once(&*input.body)));
    assert_eq!(whole, seen.len() == count && between, "{failed:?}");
    assert!(seen.len() <= count);
}

/// Decodes a JSON array in chunks, and compares the result with the same elements as events.
///
/// # Panics
/// If they differ.
pub fn elements(data: &[u8]) {
    let Some(mut input) = Input::read(data) else { return };
    // An event cannot contain a line break, and between the elements of an array a break is only
    // white space, so replacing them changes neither.
    for byte in input.body.to_mut() {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    let dialect = DIALECTS.iter().find(|d| d.family == WireFormat::Gemini).expect("Gemini is known");
    let (cut, _) = streamed(dialect, &input, input.pieces());
    laws::of(&cut, dialect, input.status, input.body.len());
    let Ok(text) = std::str::from_utf8(&input.body) else { return };
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
    if list.is_empty() || !matches!(input.status, 0 | 200..=299) {
        return;
    }
    let mut events = String::new();
    for element in list {
        events.extend(["data: ", element.get(), "\n\n"]);
    }
    let as_events =
        decode_body(dialect, input.status, &input.headers, events.as_bytes(), &input.facts);
    assert_eq!(cut, as_events, "an array decodes like its elements as events");
}

/// Classifies an error response of any provider.
///
/// # Panics
/// If an invariant is broken.
pub fn errors(data: &[u8]) {
    const KEY: &str = "sk-live-0123456789abcdef";
    const SECRET: &str = "0123456789abcdef";
    let Some(input) = Input::read(data) else { return };
    let provider = DIALECTS[usize::from(input.which) % DIALECTS.len()].name;
    let text = String::from_utf8_lossy(&input.body);
    let e = classify(input.status, &input.headers, &text, provider);
    assert_eq!(e.status, (input.status != 0).then_some(input.status));
    assert!(e.message.chars().count() <= EXCERPT_CHARS && !e.message.is_empty(), "{e:?}");
    let (_, value) = e.original.expect("an error names what told it");
    assert!(value.chars().count() <= EXCERPT_CHARS, "{value}");
    // An API key anywhere in the text must be redacted.
    let mut at = usize::from(input.cuts).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let (before, after) = text.split_at(at);
    let told = format!("{before} {KEY} {after}");
    let e = classify(input.status, &input.headers, &told, provider);
    let elsewhere = before.contains(SECRET) || after.contains(SECRET);
    assert!(elsewhere || !format!("{e:?} {e}").contains(SECRET), "{e:?}");
}

/// Parses retry hints; the lines of the body are the values of the headers and the message.
///
/// # Panics
/// If an invariant is broken.
pub fn hints(data: &[u8]) {
    let Some(input) = Input::read(data) else { return };
    let text = String::from_utf8_lossy(&input.body);
    let mut lines = text.splitn(4, '\n');
    let mut headers = Headers::new();
    for (bit, name) in [(1, "retry-after"), (2, "retry-after-ms"), (4, "date")] {
        if input.which & bit != 0 {
            headers.push(name, lines.next().unwrap_or_default());
        }
    }
    let words = lines.next().unwrap_or_default().to_lowercase();
    let found = retry_after_ms(&headers, &words);
    let (seconds, ms) = (headers.get("retry-after"), headers.get("retry-after-ms"));
    if let (Some(Ok(seconds)), None) = (seconds.map(|text| text.trim().parse::<u32>()), ms) {
        assert_eq!(found, Some(u64::from(seconds) * 1000));
    }
    if let Some(Ok(ms)) = ms.map(|text| text.trim().parse::<u32>()) {
        assert_eq!(found, Some(u64::from(ms)));
    }
}

/// Runs `endstop detect --jsonl` on one line.
///
/// # Panics
/// If the printed result does not parse back.
pub fn detect(data: &[u8]) {
    let Ok(row) = serde_json::from_slice::<Value>(data) else { return };
    let Ok(out) = endstop_wire::detect::detect(&row) else { return };
    assert_eq!(out.get("id"), row.get("id"));
    laws::reads_back(&out);
}

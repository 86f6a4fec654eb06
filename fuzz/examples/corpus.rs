//! Unpacks the stored fuzzing corpus for the fuzzer, and packs it again.
//!
//! ```sh
//! # Unpacks corpus/*.gz and the recordings into work/TARGET/, with a dictionary for each
//! cargo run --no-default-features --example corpus -- lay work
//! # Packs the minimised work/TARGET/ into corpus/*.gz
//! cargo run --no-default-features --example corpus -- pack work
//! ```
//!
//! A packed corpus is a gzip stream of inputs. Each input follows its length in four bytes,
//! little-endian.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_wire::WireFormat;
use endstop_wire::stream::eventstream::EventStreamDecoder;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Size in bytes of the largest body that becomes a seed; larger bodies add little coverage and are
/// slow.
const SEED: usize = 16 << 10;
/// Maximum bytes that are packed per target, before compression.
const PACKED: usize = 400 << 10;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["lay", to] => lay(Path::new(to)),
        ["pack", from] => pack(Path::new(from)),
        _ => Err(io::Error::other("usage: corpus lay DIR | corpus pack DIR")),
    }
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn unzipped(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes an input under the hash of its content, so that equal inputs are stored once.
fn put(to: &Path, target: &str, input: &[u8]) -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let dir = to.join(target);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(format!("{:016x}", hasher.finish())), input)
}

fn lay(to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(here("corpus"))? {
        let path = entry?.path();
        let target = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let packed = unzipped(&path)?;
        let mut rest = &packed[..];
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let input = after.get(..len).ok_or_else(|| io::Error::other("a corpus is cut"))?;
            put(to, &target, input)?;
            rest = &after[len..];
        }
    }
    for entry in fs::read_dir(here("../testdata/recordings"))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(".jsonl.gz") {
            for line in String::from_utf8_lossy(&unzipped(&path)?).lines() {
                recorded(to, line)?;
            }
        }
    }
    for (n, hint) in HINTS.iter().enumerate() {
        put(to, "hints", &[&[n as u8 & 7, 0, 0, 0], hint.as_bytes()].concat())?;
    }
    dictionaries(to)
}

/// Writes a dictionary for each target: names and short values from the recordings, the known
/// finish values, and tokens of hostile bodies.
fn dictionaries(to: &Path) -> io::Result<()> {
    let mut seen: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for entry in fs::read_dir(here("../testdata/recordings"))? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with(".jsonl.gz") {
            continue;
        }
        for line in String::from_utf8_lossy(&unzipped(&path)?).lines() {
            let row: Value = serde_json::from_str(line)?;
            let (Some(api), Some(body)) = (row["api"].as_str(), row["body"].as_str()) else {
                continue;
            };
            let Ok(dialect) = endstop_wire::dialect::dialect(api) else { continue };
            let words = seen.entry(dialect.family.as_str().to_owned()).or_default();
            let data = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
            for json in data.chain([body]).filter_map(|text| serde_json::from_str(text).ok()) {
                words_of(&json, words);
            }
        }
    }
    let mut errors = BTreeMap::new();
    let text = fs::read_to_string(here("../testdata/recordings/errors.json"))?;
    words_of(&serde_json::from_str(&text)?, &mut errors);
    seen.insert("errors".to_owned(), errors);
    let gemini = seen.get("gemini").cloned().unwrap_or_default();
    seen.insert("elements".to_owned(), gemini);
    for family in WireFormat::ALL {
        let words = seen.entry(family.as_str().to_owned()).or_default();
        for (value, _) in endstop_wire::signal::finish::known(*family) {
            words.insert((*value).to_owned(), usize::MAX);
        }
    }
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for key in ["api", "status", "headers", "body", "body_encoding", "base64", "request", "id"] {
        all.insert(key.to_owned(), usize::MAX);
    }
    all.extend(WireFormat::ALL.iter().map(|family| (family.as_str().to_owned(), usize::MAX)));
    seen.insert("detect".to_owned(), all);
    for target in ["sse", "hints", "frames"] {
        seen.insert(target.to_owned(), BTreeMap::new());
    }
    for (target, words) in seen {
        let mut words: Vec<_> = words.into_iter().filter(|(_, times)| *times > 1).collect();
        words.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let mut file = File::create(to.join(format!("{target}.dict")))?;
        for (word, _) in words.into_iter().take(300) {
            writeln!(file, "\"\\\"{word}\\\"\"")?;
        }
        for token in HOSTILE {
            let escaped: String = token.bytes().map(|b| format!("\\x{b:02x}")).collect();
            writeln!(file, "\"{escaped}\"")?;
        }
    }
    Ok(())
}

/// Counts the field names of a JSON value, and values that look like names.
fn words_of(json: &Value, words: &mut BTreeMap<String, usize>) {
    let mut count = |word: &str| {
        let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if (1..40).contains(&word.len()) && word.bytes().all(name) {
            *words.entry(word.to_owned()).or_default() += 1;
        }
    };
    match json {
        Value::String(text) => count(text),
        Value::Array(list) => list.iter().for_each(|item| words_of(item, words)),
        Value::Object(map) => {
            map.keys().for_each(|key| count(key));
            map.values().for_each(|value| words_of(value, words));
        }
        _ => {}
    }
}

/// Writes a recorded response as a seed of every target that can read it.
fn recorded(to: &Path, line: &str) -> io::Result<()> {
    let row: Value = serde_json::from_str(line)?;
    let (Some(api), Some(body)) = (row["api"].as_str(), row["body"].as_str()) else {
        return Ok(());
    };
    let Ok(dialect) = endstop_wire::dialect::dialect(api) else { return Ok(()) };
    if row["body_encoding"] == "base64" {
        let frames = STANDARD.decode(body).map_err(io::Error::other)?;
        let lines = lines_of(&frames);
        if (1..SEED).contains(&lines.len()) {
            put(to, dialect.family.as_str(), &[&[1, 0, 0, 200], &lines[..]].concat())?;
            put(to, "frames", &[&[0, 0, 0, 200], &lines[..]].concat())?;
        }
        return Ok(());
    }
    if body.len() > SEED {
        return Ok(());
    }
    let status = row["status"].as_u64().unwrap_or(200);
    // The index of the status in `STATUSES` of the library.
    let status = match status {
        400 => 9,
        401 => 10,
        403 => 11,
        429 => 12,
        500 => 13,
        503 => 14,
        _ => 0,
    };
    let input = [&[0, status, 0, 200], body.as_bytes()].concat();
    put(to, dialect.family.as_str(), &input)?;
    if status > 0 {
        put(to, "errors", &input)?;
    }
    if body.starts_with("data:") || body.starts_with("event:") {
        put(to, "sse", &input)?;
    }
    if dialect.family == WireFormat::Gemini {
        let trimmed = body.trim();
        let array = if trimmed.starts_with('[') {
            trimmed.to_owned()
        } else {
            let data = body.lines().filter_map(|line| line.strip_prefix("data:"));
            format!("[{}]", data.collect::<Vec<_>>().join(","))
        };
        put(to, "elements", &[&[0, 0, 0, 200], array.as_bytes()].concat())?;
    }
    if line.len() <= SEED {
        let mut row = row;
        for key in ["expected", "source", "streaming"] {
            row.as_object_mut().and_then(|row| row.remove(key));
        }
        put(to, "detect", row.to_string().as_bytes())?;
    }
    Ok(())
}

/// Converts the frames of a stream to the lines that the library encodes as frames.
fn lines_of(frames: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let _ = EventStreamDecoder::new().push(frames, &mut |message| {
        let kinds = [("e", ":event-type"), ("x", ":exception-type"), ("r", ":error-code")];
        let Some((what, kind)) =
            kinds.iter().find_map(|(what, name)| Some((what, message.text(name)?)))
        else {
            return;
        };
        let bytes = serde_json::from_slice::<Value>(message.payload)
            .ok()
            .and_then(|payload| STANDARD.decode(payload["bytes"].as_str()?).ok());
        let payload = bytes.as_deref().filter(|_| kind == "chunk").unwrap_or(message.payload);
        lines.push([what.as_bytes(), b" ", kind.as_bytes(), b" ", payload].concat());
    });
    lines.join(&b'\n')
}

fn pack(from: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let dir = entry?.path();
        if !dir.is_dir() {
            continue;
        }
        let target = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut inputs = BTreeSet::new();
        for entry in fs::read_dir(&dir)? {
            let input = fs::read(entry?.path())?;
            inputs.insert((input.len(), input));
        }
        let mut gz = GzEncoder::new(
            File::create(here("corpus").join(format!("{target}.gz")))?,
            Compression::best(),
        );
        // Sorted by length, because small inputs give the most coverage per byte.
        let (mut size, mut kept) = (0, 0);
        for (len, input) in &inputs {
            if size + len > PACKED {
                break;
            }
            size += len;
            kept += 1;
            gz.write_all(&u32::try_from(*len).map_err(io::Error::other)?.to_le_bytes())?;
            gz.write_all(input)?;
        }
        gz.finish()?;
        println!("{target}: {kept} of {} inputs, {size} bytes", inputs.len());
    }
    Ok(())
}

/// Tokens of hostile bodies, and of event streams.
const HOSTILE: &[&str] = &[
    "data: ",
    "event: ",
    "error: ",
    "id: ",
    "retry: ",
    "\n\n",
    "\r\n",
    "[DONE]",
    "\u{feff}",
    "\\ud83d",
    "\\u0000",
    "1e999",
    "18446744073709551616",
    "-1",
    "\":null,\"",
    "\":{\"",
    "\":[{\"",
    "[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]",
    "{\"a\":{\"a\":{\"a\":{\"a\":",
    "<html>",
    "\u{1f}\u{8b}",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "try again in ",
    "1h2m3.4s",
];

/// Retry hints: header values and messages, one per line.
const HINTS: &[&str] = &[
    "please try again in 1.3s.",
    "2\n",
    "350\nretry in 350ms",
    "0.5\n120\n",
    "Sun, 06 Nov 1994 08:49:37 GMT\n",
    "Sun, 06 Nov 1994 08:49:37 GMT\nSun, 06 Nov 1994 08:49:07 GMT\n{\"retryDelay\":\"24s\"}",
    "x\ntry again in 6m0s",
    "-1\n1e30\nSun, 06 Nov 1994 08:49:37 GMT\nwait 1h2m",
];

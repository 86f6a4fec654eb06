//! Recorded responses decode to the same result for every way of splitting their bytes.
//!
//! `cargo test` splits in a few hundred ways. To try all of them, on any set of recordings:
//! `ENDSTOP_RECORDINGS=DIR cargo test --release -p endstop-wire --test it -- every_cut --ignored --nocapture`

use crate::recordings::{RECORDINGS, data, rows};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_wire::detect::{printed, request_facts};
use endstop_wire::dialect::{Dialect, dialect};
use endstop_wire::{Decoded, Delta, Eof, Headers, RequestFacts, StreamDecoder};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every pair of split points is tried up to this many bytes.
const SMALL: usize = 2_000;

/// A recorded response that is ready to decode.
struct Recorded {
    id: String,
    dialect: &'static Dialect,
    status: u16,
    headers: Headers,
    facts: RequestFacts,
    body: Vec<u8>,
    streaming: bool,
    succeeds: bool,
}

impl Recorded {
    fn new(row: &Value) -> Recorded {
        let text = row["body"].as_str().unwrap();
        let body = match row["body_encoding"].as_str() {
            Some("base64") => STANDARD.decode(text).unwrap(),
            _ => text.as_bytes().to_vec(),
        };
        Recorded {
            id: row["id"].to_string(),
            dialect: dialect(row["api"].as_str().unwrap()).unwrap(),
            status: u16::try_from(row["status"].as_u64().unwrap()).unwrap(),
            headers: row["headers"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
                .collect(),
            facts: request_facts(&row["request"]),
            body,
            streaming: row["streaming"] == true,
            succeeds: row["expected"]["reason"] != "error_termination",
        }
    }

    /// Decodes the response from chunks that end at these offsets. Also returns the text of its
    /// deltas.
    fn cut_at(&self, cuts: &[usize]) -> (Decoded, String) {
        let (stream, said) = self.pushed(cuts);
        (stream.finish(Eof::Clean), said)
    }

    /// Returns `true` if nothing is decoded before the whole body is held, so that its end equals
    /// that of the whole.
    fn is_held(&self, cuts: &[usize]) -> bool {
        let (stream, said) = self.pushed(cuts);
        stream.held() == self.body && said.is_empty()
    }

    fn pushed(&self, cuts: &[usize]) -> (StreamDecoder, String) {
        let headers = self.headers.clone();
        let mut stream = StreamDecoder::new(self.dialect, self.status, headers, self.facts);
        let mut said = String::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([self.body.len()]) {
            let piece = &self.body[from..to];
            from = to;
            stream
                .push(piece, &mut |delta| match delta {
                    Delta::Text(t) | Delta::Reasoning(t) | Delta::Refusal(t) => said.push_str(t),
                    Delta::ToolCallStarted { index, name, .. } => {
                        said.push_str(&[&index.to_string(), " ", name, ">"].concat());
                    }
                    Delta::ToolArguments { index, json } => {
                        said.push_str(&[&index.to_string(), json].concat());
                    }
                    _ => {}
                })
                .unwrap();
        }
        (stream, said)
    }

    /// Returns the offsets at which events, lines and characters end, and the bytes next to them.
    fn boundaries(&self) -> Vec<usize> {
        let body = &self.body;
        let ends = (1..=body.len()).filter(|at| {
            let behind = body[at - 1];
            // A line, an object, or a multi-byte character.
            matches!(behind, b'\n' | b'\r' | b'}') || behind >= 0x80
        });
        let mut places: Vec<usize> = ends.flat_map(|at| [at - 1, at, at + 1]).collect();
        places.retain(|at| (1..body.len()).contains(at));
        places.dedup();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn random(&self, seed: u64) -> Vec<usize> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let many = next() % 40 + 1;
        let mut cuts: Vec<usize> =
            (0..many).map(|_| (next() % (self.body.len() as u64 + 1)) as usize).collect();
        cuts.sort_unstable();
        cuts
    }
}

fn recorded(paths: &[PathBuf]) -> Vec<Recorded> {
    paths.iter().flat_map(|path| rows(path)).map(|row| Recorded::new(&row)).collect()
}

#[test]
fn chunking_does_not_change_the_result() {
    let paths = RECORDINGS.map(data);
    for r in recorded(&paths) {
        let whole = r.cut_at(&[]);
        let bytes: Vec<usize> = (1..r.body.len()).collect();
        assert_eq!(whole, r.cut_at(&bytes), "{} byte by byte", r.id);
        assert_eq!(whole, r.cut_at(&r.boundaries()), "{} at boundaries", r.id);
        for seed in 0..8 {
            let cuts = r.random(seed);
            assert_eq!(whole, r.cut_at(&cuts), "{} at {cuts:?}", r.id);
        }
        if r.streaming && r.succeeds {
            let text = printed(&whole.0)["turn"]["text"].clone();
            let text = text.as_str().unwrap();
            assert!(
                whole.1.chars().count() >= text.chars().count(),
                "{}: deltas are missing",
                r.id
            );
        }
    }
}

#[test]
#[ignore = "takes half an hour of processor time over all recordings, and needs a release build"]
fn every_cut() {
    let paths: Vec<PathBuf> = match std::env::var_os("ENDSTOP_RECORDINGS") {
        Some(dir) => std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().ends_with(".jsonl.gz"))
            .collect(),
        None => RECORDINGS.map(data).to_vec(),
    };
    let all = recorded(&paths);
    let (tried, pairs) = (AtomicU64::new(0), AtomicU64::new(0));
    let left = Mutex::new(all.iter().enumerate());
    let work = || {
        loop {
            let next = left.lock().unwrap().next();
            let Some((number, r)) = next else { return };
            if number % 50 == 0 {
                println!("{number} of {} begun", all.len());
            }
            let whole = r.cut_at(&[]);
            let held = r.is_held(&[]);
            let check = |cuts: &[usize]| {
                // One in a hundred is decoded to its end in any case.
                let read = !held || cuts.iter().sum::<usize>() % 100 == 0 || !r.is_held(cuts);
                if read {
                    assert_eq!(whole, r.cut_at(cuts), "{} at {cuts:?}", r.id);
                }
                tried.fetch_add(1, Ordering::Relaxed);
            };
            check(&(1..r.body.len()).collect::<Vec<_>>());
            if r.body.len() <= SMALL {
                for one in 0..r.body.len() {
                    for two in one..r.body.len() {
                        check(&[one, two]);
                    }
                }
                pairs.fetch_add(1, Ordering::Relaxed);
            } else {
                for at in r.boundaries() {
                    check(&[at]);
                }
                for seed in 0..500 {
                    check(&r.random(seed));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    println!(
        "{} responses: {} cuttings, every pair of cuts for {} of them",
        all.len(),
        tried.into_inner(),
        pairs.into_inner()
    );
}

//! `bench-peer ITEM [ARGUMENT]…`: runs one benchmark item against a scripted model server on the
//! loopback interface, and prints its cost as one line of JSON.
//!
//! | item | measures |
//! |---|---|
//! | `a TURNS REPS [stream]` | a run of TURNS turns with a tool call each |
//! | `b RUNS TURNS AT_ONCE` | many runs at once |
//! | `c TOKENS [events]` | one streamed response (`events`: with a reader of the deltas) |
//! | `d MODEL TOKENS REPS` | the time from a cancel to the closed socket |
//! | `e` | the time from the start of the process to the end of a first turn |
//! | `f RUNS` | memory of runs that hang, and the time to end them |
//! | `k TURNS REPS [stream]` | the work of `a` without HTTP: only kernel and wire formats |
//! | `h TURNS REPS [stream]` | the requests of `a` through only the HTTP client |
//! | `g REQUESTS` | memory of the requests of `f` in only the HTTP client |

mod floor;
mod items;
mod measure;
mod mock;
mod replay;

use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// The values of a measurement, or the reason why there are none.
type Measured = Result<Map<String, Value>, Box<dyn std::error::Error>>;

/// The command-line arguments after the item.
struct Words(Vec<String>);

impl Words {
    fn number(&self, at: usize, default: usize) -> usize {
        self.0.get(at).and_then(|word| word.parse().ok()).unwrap_or(default)
    }
    fn text<'a>(&'a self, at: usize, default: &'a str) -> &'a str {
        self.0.get(at).map_or(default, String::as_str)
    }
    fn has(&self, word: &str) -> bool {
        self.0.iter().any(|w| w == word)
    }
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let item = if words.is_empty() { String::new() } else { words.remove(0) };
    match measured(&item, &Words(words)) {
        Ok(values) => {
            let mut line = Map::new();
            line.insert("peer".to_owned(), json!("endstop"));
            line.insert("item".to_owned(), json!(item));
            line.insert("versions".to_owned(), json!({"endstop": "0.1.0"}));
            line.extend(values);
            println!("{}", Value::Object(line));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-peer {item}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(item: &str, words: &Words) -> Measured {
    // One thread, so that processor times can be compared with those of the floor client.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match item {
            "a" => items::turns(words).await,
            "b" => items::at_once(words).await,
            "c" => items::tokens(words).await,
            "d" => items::cancel(words).await,
            "e" => items::cold().await,
            "f" => items::suspended(words).await,
            "k" => replay::kernel_and_wire(words),
            "h" => replay::http(words).await,
            "g" => floor::suspended(words).await,
            _ => Err("give an item: a, b, c, d, e, f, k, h or g".into()),
        }
    })
}

//! The parts of the command that a build can leave out, as a table: `endstop --version --verbose` lists
//! them, and a command or a flag that is missing names its feature.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// A feature of the package `endstop-cli`.
struct Feature {
    name: &'static str,
    is_built: bool,
    purpose: &'static str,
    /// The commands, and the flags of commands, that only exist with it.
    words: &'static [&'static str],
}

const FEATURES: [Feature; 7] = [
    Feature {
        name: "acp",
        is_built: cfg!(feature = "acp"),
        purpose: "`endstop acp`, agents for editors",
        words: &["acp"],
    },
    Feature {
        name: "bedrock",
        is_built: cfg!(feature = "bedrock"),
        purpose: "Amazon Bedrock with access keys of AWS",
        words: &[],
    },
    Feature {
        name: "benchmarks",
        is_built: cfg!(feature = "benchmarks"),
        purpose: "recorded runs of research benchmarks",
        words: &[],
    },
    Feature {
        name: "google-login",
        is_built: cfg!(feature = "google-login"),
        purpose: "Vertex AI with application default credentials",
        words: &[],
    },
    Feature {
        name: "otlp",
        is_built: cfg!(feature = "otlp"),
        purpose: "spans and metrics for an OpenTelemetry collector",
        words: &[],
    },
    Feature {
        name: "parquet",
        is_built: cfg!(feature = "parquet"),
        purpose: "`endstop backtest --parquet`",
        words: &["backtest --parquet"],
    },
    Feature {
        name: "restate",
        is_built: cfg!(feature = "restate"),
        purpose: "`endstop worker` and `endstop serve --restate`, durable runs",
        words: &["worker", "serve --restate"],
    },
];

/// Returns the text of `--version --verbose` after its first line.
pub(crate) fn table() -> String {
    let mut text = String::from("features:\n");
    for feature in &FEATURES {
        let sign = if feature.is_built { '+' } else { '-' };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {sign} {:<13} {}", feature.name, feature.purpose);
    }
    if FEATURES.iter().any(|feature| !feature.is_built) {
        text.push_str("To add one, build endstop-cli with `--features NAME`.\n");
    }
    text
}

/// Returns the object of `--version --json`.
pub(crate) fn version() -> Value {
    let features = FEATURES.iter().map(|one| (one.name.to_owned(), one.is_built.into()));
    let features: Map<String, Value> = features.collect();
    json!({"type": "version", "version": env!("CARGO_PKG_VERSION"), "features": features})
}

/// Returns the error for a command or a flag that this build leaves out.
pub(crate) fn left_out(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(word)) = error.get(kind) else { return None };
    let mut given = std::env::args().skip(1);
    // A flag belongs to its command.
    let command = given.find(|one| !one.starts_with('-')).unwrap_or_default();
    let is_meant = |one: &&str| *one == *word || *one == format!("{command} {word}");
    let mut missing = FEATURES.iter().filter(|feature| !feature.is_built);
    let feature = missing.find(|feature| feature.words.iter().any(is_meant))?;
    Some(without(word, feature.name))
}

/// Returns the error for something that needs a feature which is not built.
pub(crate) fn without(what: &str, feature: &str) -> String {
    format!(
        "`{what}` is not in this build: build endstop-cli with `--features {feature}` \
         (`endstop --version --verbose` lists the features)"
    )
}

//! The part of a decoded response that all wire formats have in common.

use crate::bounded::ITEMS_CAP;
use crate::errors::ErrorBody;
use crate::redact::excerpt;
use crate::signal::finish::Finish;
use endstop_core::{ErrorClass, NanoUsd, Part, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What every format gathers.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) model: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<NanoUsd>,
    /// The last finish value that was not null.
    pub(crate) finish: Option<String>,
    /// The protocol's own end was seen, or the body is a whole JSON document.
    pub(crate) terminated: bool,
    /// An error that the body carries.
    pub(crate) error: Option<ErrorBody>,
    /// What could not be read.
    pub(crate) broken: Option<Broken>,
    /// The mean token probability.
    pub(crate) confidence: Option<f64>,
}

impl Common {
    /// Keeps the first model and id that are named.
    pub(crate) fn named(&mut self, model: Option<&str>, id: Option<&str>) {
        if self.model.is_none() {
            self.model = model.map(str::to_owned);
        }
        if self.id.is_none() {
            self.id = id.map(str::to_owned);
        }
    }

    /// Reads a piece of what is said. An object or a list that does not read is no piece to pass
    /// over: with it a call or the answer would be lost.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&mut self, raw: &'a RawValue) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(e) => {
                if raw.get().starts_with(['{', '[']) {
                    self.broken.get_or_insert_with(|| Broken::json(&e, raw.get()));
                }
                None
            }
        }
    }

    /// Whether a turn that has so many parts may have another.
    pub(crate) fn room(&mut self, parts: usize) -> bool {
        if parts >= ITEMS_CAP {
            self.broken.get_or_insert_with(|| {
                Broken::unreadable(format!("the turn has more than {ITEMS_CAP} parts"))
            });
        }
        parts < ITEMS_CAP
    }
}

/// A body that could not be read.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// What it looks like.
    pub(crate) value: String,
}

impl Broken {
    pub(crate) fn unreadable(message: String) -> Broken {
        Broken { class: ErrorClass::ServerError, message, value: String::new() }
    }

    pub(crate) fn json(e: &serde_json::Error, text: &str) -> Broken {
        Broken {
            class: if is_cut(e, text) {
                ErrorClass::IncompleteStream
            } else {
                ErrorClass::ServerError
            },
            // The parser quotes what it found.
            message: excerpt(&format!("the response is not the JSON it should be: {e}")),
            value: excerpt(text),
        }
    }
}

/// The text ends too early. A number that ends behind its sign, point or exponent is a syntax
/// error for the parser, and no object ends so.
pub(super) fn is_cut(e: &serde_json::Error, text: &str) -> bool {
    e.is_eof() || e.is_syntax() && text.trim_end().ends_with(['-', '+', '.', 'e', 'E'])
}

/// What a format says was said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) parts: Vec<Part>,
    /// What the finish value means in this format.
    pub(crate) finish: Finish,
    /// The field that carries it.
    pub(crate) field: &'static str,
    pub(crate) matched_stop: Option<String>,
    /// This API answers a matched stop string as a natural stop.
    pub(crate) stop_ambiguous: bool,
    /// More that the provider said about the ending.
    pub(crate) metadata: Map<String, Value>,
}

//! Reads requests of `/api/chat`, which differ from those of Chat Completions in few places.

use crate::codec::openai_chat::read as chat;
use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{Any, Messages, Object, Tools};
use crate::codec::request::members::{Member, Members};
use crate::codec::request::read::{RequestHead, RequestReader};
use crate::dialect::WireFormat;
use crate::route::Delivery;

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("stream", Any),
    ("format", Any),
    ("think", Any),
    ("keep_alive", Any),
    ("truncate", Any),
    ("logprobs", Any),
    ("top_logprobs", Any),
    ("options", Object(OPTIONS)),
];

const OPTIONS: &[Member] = &[
    ("num_ctx", Any),
    ("num_keep", Any),
    ("num_batch", Any),
    ("num_gpu", Any),
    ("num_thread", Any),
    ("main_gpu", Any),
    ("use_mmap", Any),
    ("temperature", Any),
    ("seed", Any),
    ("top_k", Any),
    ("top_p", Any),
    ("min_p", Any),
    ("typical_p", Any),
    ("repeat_last_n", Any),
    ("repeat_penalty", Any),
    ("presence_penalty", Any),
    ("frequency_penalty", Any),
    ("penalize_newline", Any),
    ("mirostat", Any),
    ("mirostat_tau", Any),
    ("mirostat_eta", Any),
    ("stop", Any),
];

/// The reader of requests.
pub(super) static READER: RequestReader = RequestReader {
    format: WireFormat::Ollama,
    cap: CapPlace::within(&["options"], &["num_predict"]),
    members: Members { rows: MEMBERS, also_in_snake_case: false },
    streams_by_default: true,
    streamed: Delivery::Lines,
    text_type: Some("text"),
    matches_results_by_name: true,
    head,
    message: chat::read_message,
};

fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let chat = chat::head(fields);
    RequestHead {
        // `format` is `json` or a schema.
        schema: chat.schema || fields.has("format"),
        usage_omitted: false,
        ..chat
    }
}

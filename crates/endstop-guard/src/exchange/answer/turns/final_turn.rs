//! A whole answer with one text, in each format and delivery.

use super::final_text::FinalText;
use super::{anthropic, chat, cohere, converse, gemini, ollama, responses};
use crate::exchange::answer::deliver::{content_type, converse_frame, sse};
use crate::exchange::answer::reply::{Answer, Reply, Stamp};
use crate::exchange::route::Delivery;
use endstop_wire::WireFormat;
use endstop_wire::stream::eventstream::invoke_frame;
use serde_json::Value;

/// Returns a whole answer with this text as the model's last turn. Its usage is 0, and its model the
/// one that was asked for.
///
/// Returns `None` if the client expects more than a text ([`Reply::structured`]), or if the model's
/// own format inside InvokeModel is not Anthropic's: refuse such a call.
pub fn final_turn(reply: &Reply, text: &str, stamp: Stamp<'_>) -> Option<Answer> {
    // A parser that expects JSON fails on prose, or asks again.
    if reply.structured.is_some() {
        return None;
    }
    let usage = reply.usage_requested;
    let turn = FinalText { model: &reply.model, text, id: stamp.id, at: stamp.unix_seconds, usage };
    let body = match reply.format {
        WireFormat::OpenAiChat => match reply.delivery {
            Delivery::Whole => whole(&chat::body(turn)),
            _ => chat::stream(turn).into_bytes(),
        },
        WireFormat::OpenAiResponses => match reply.delivery {
            Delivery::Whole => whole(&responses::body(turn)),
            _ => responses::events(turn).iter().map(sse).collect::<String>().into_bytes(),
        },
        WireFormat::Anthropic => match reply.delivery {
            Delivery::Whole => whole(&anthropic::body(turn)),
            _ => anthropic::events(turn).iter().map(sse).collect::<String>().into_bytes(),
        },
        // Inside InvokeModel a body is the model's own.
        WireFormat::BedrockInvoke if reply.shape == WireFormat::Anthropic => match reply.delivery {
            Delivery::Whole => whole(&anthropic::body(turn)),
            _ => invoke_frames(turn),
        },
        WireFormat::Gemini => match reply.delivery {
            Delivery::Whole => whole(&gemini::body(turn)),
            Delivery::Array => format!("[{}]", gemini::body(turn)).into_bytes(),
            // Google's servers end lines with CR LF.
            _ => format!("data: {}\r\n\r\n", gemini::body(turn)).into_bytes(),
        },
        WireFormat::BedrockConverse => match reply.delivery {
            Delivery::Whole => whole(&converse::body(turn)),
            _ => converse::events(turn).iter().flat_map(converse_frame).collect(),
        },
        WireFormat::CohereV2 => match reply.delivery {
            Delivery::Whole => whole(&cohere::body(turn)),
            _ => cohere::stream(turn).into_bytes(),
        },
        WireFormat::Ollama => match reply.delivery {
            Delivery::Whole => whole(&ollama::body(turn)),
            _ => ollama::lines(turn).into_bytes(),
        },
        _ => return None,
    };
    let headers =
        vec![("content-type", content_type(reply.delivery)), ("cache-control", "no-cache")];
    Some(Answer { status: 200, headers, body })
}

fn whole(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

/// Returns Anthropic's events inside Bedrock's frames, which leave out the names of the events.
fn invoke_frames(turn: FinalText<'_>) -> Vec<u8> {
    let events = anthropic::events(turn);
    events.iter().flat_map(|(_, data)| invoke_frame(&data.to_string())).collect()
}

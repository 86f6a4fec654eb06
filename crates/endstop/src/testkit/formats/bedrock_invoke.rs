//! Encodes a scripted turn of an Anthropic model in Bedrock's InvokeModel: Anthropic's own events,
//! each as base64 in a binary frame.

use super::anthropic;
use crate::testkit::Turn;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

pub(super) fn events(turn: &Turn) -> Vec<Vec<u8>> {
    anthropic::events(turn)
        .iter()
        // Only the data is in the frame; its `type` names the event.
        .filter_map(|event| event.split_once("data: "))
        .map(|(_, data)| json!({"bytes": STANDARD.encode(data.trim()), "p": "abcd"}))
        .map(|chunk| super::parts::message("chunk", &chunk))
        .collect()
}

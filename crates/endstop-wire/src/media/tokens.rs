//! The rules by which models count the tokens of images.
//!
//! ```
//! use endstop_wire::{dialect::dialect, media::image_tokens};
//! let tokens = |api, model| image_tokens(dialect(api).unwrap(), model).of_size(Some((1024, 1024)));
//! assert_eq!(tokens("openai-chat", "gpt-4o"), 765);
//! assert_eq!(tokens("openai-chat", "gpt-4o-mini"), 25_501);
//! assert_eq!(tokens("gemini", "gemini-2.5-pro"), 1032);
//! ```
//!
//! The numbers are those of the providers' documentation. A model that is not in the table gets the
//! largest rule that may apply.

use crate::dialect::{Dialect, WireFormat};
use endstop_core::ImageTokens;

/// OpenAI: a model name's beginning, and its rule. The first match counts.
const OPENAI: &[(&str, ImageTokens)] = &[
    ("gpt-4o-mini", tiles(2833, 5667)),
    ("gpt-4o", tiles(85, 170)),
    ("chatgpt-4o", tiles(85, 170)),
    ("gpt-4.1-mini", patches(1620, 1536)),
    ("gpt-4.1-nano", patches(2460, 1536)),
    ("gpt-4.1", tiles(85, 170)),
    ("gpt-4.5", tiles(85, 170)),
    ("gpt-4-turbo", tiles(85, 170)),
    ("gpt-4-vision", tiles(85, 170)),
    ("o4-mini", patches(1720, 1536)),
    ("o1", tiles(75, 150)),
    ("o3", tiles(75, 150)),
    ("computer-use-preview", tiles(65, 129)),
    ("gpt-5-mini", patches(1620, 1536)),
    ("gpt-5-nano", patches(2460, 1536)),
    ("gpt-5.4-mini", patches(1620, 1536)),
    ("gpt-5.4-nano", patches(2460, 1536)),
    // The newest models take up to 10,000 patches.
    ("gpt-5.", patches(1000, 10_000)),
    ("gpt-5", tiles(70, 140)),
];

/// Claude models whose images are scaled to 1568 pixels. Newer ones take 2576.
const SMALL_CLAUDE: &[&str] = &[
    "claude-3",
    "claude-haiku-4-5",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2025",
    "claude-opus-4-5",
    "claude-opus-4-6",
    "claude-opus-4@",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2025",
    "claude-sonnet-4-5",
    "claude-sonnet-4-6",
    "claude-sonnet-4@",
];

const fn tiles(base: u64, tile: u64) -> ImageTokens {
    ImageTokens::Tiles { base, tile }
}

/// Patches of 32 pixels, of which an image has at most `most`.
const fn patches(per_thousand: u64, most: u64) -> ImageTokens {
    ImageTokens::Patches { side: 32, per_thousand, most: (most * per_thousand).div_ceil(1000) }
}

/// Returns the rule by which a model counts the tokens of images.
pub fn image_tokens(dialect: &Dialect, model: &str) -> ImageTokens {
    let model = model.to_lowercase();
    let name = model.rsplit('/').next().unwrap_or_default();
    if let Some(at) = name.find("claude") {
        return claude(&name[at..]);
    }
    if let Some(at) = name.find("gemini-") {
        return gemini(&name[at..]);
    }
    if let Some((_, rule)) = OPENAI.iter().find(|(start, _)| name.starts_with(start)) {
        return *rule;
    }
    match dialect.family {
        WireFormat::Anthropic | WireFormat::BedrockInvoke => claude(name),
        // The name of a deployment may hide any of OpenAI's models.
        WireFormat::OpenAiResponses => ImageTokens::Unknown,
        WireFormat::OpenAiChat if matches!(dialect.name, "openai-chat" | "azure-openai-chat") => {
            ImageTokens::Unknown
        }
        WireFormat::OpenAiChat
        | WireFormat::Gemini
        | WireFormat::CohereV2
        | WireFormat::CohereV1
        | WireFormat::Ollama
        | WireFormat::BedrockConverse => ImageTokens::Open,
    }
}

/// Claude: a token for each patch of 28 pixels. The documentation of older models has a token for
/// 750 pixels instead, which is 4.6 % more.
fn claude(name: &str) -> ImageTokens {
    let small = SMALL_CLAUDE.iter().any(|start| name.starts_with(start));
    ImageTokens::Patches { side: 28, per_thousand: 1046, most: if small { 1600 } else { 4784 } }
}

/// Gemini 1 and 2 crop an image; newer models use at most 1120 tokens at their default resolution.
fn gemini(name: &str) -> ImageTokens {
    let version = name.trim_start_matches("gemini-");
    if version.starts_with("1.") || version.starts_with("2.") {
        ImageTokens::Crops { tokens: 258 }
    } else {
        ImageTokens::Flat(1120)
    }
}

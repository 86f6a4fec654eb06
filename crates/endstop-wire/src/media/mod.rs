//! Images and documents: which of them a model and its wire format take, and how many tokens an image
//! costs.
//!
//! ```
//! use endstop_core::{Attachment, Image};
//! use endstop_wire::{dialect::dialect, media::MediaSupport};
//! let gif = Attachment::from(Image::from_bytes(b"GIF89a\x01\0\x01\0", "image/gif").unwrap());
//! assert!(MediaSupport::of(dialect("openai-chat").unwrap(), "gpt-5").check(&gif).is_ok());
//! let problem = MediaSupport::of(dialect("gemini").unwrap(), "gemini-3-pro").check(&gif);
//! assert_eq!(problem.unwrap_err().to_string(), "the API takes no image/gif");
//! ```
//!
//! Content that cannot be sent is replaced in the request by a line of text that states the reason, and
//! stays in the conversation: another model may read it.

mod lower;
mod tokens;

use crate::dialect::{Dialect, WireFormat};
use endstop_core::{Attachment, Document, Image};

pub use tokens::image_tokens;

const MIB: usize = 1 << 20;

/// The reason why an image or a document cannot be sent, for the user and for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedMedia(String);

impl std::error::Error for UnsupportedMedia {}

impl std::fmt::Display for UnsupportedMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl UnsupportedMedia {
    /// Creates an error with this reason.
    pub fn new(reason: impl Into<String>) -> UnsupportedMedia {
        UnsupportedMedia(reason.into())
    }
}

/// The images and documents that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaSupport {
    /// The media types of images; empty if the model or the API takes none.
    images: &'static [&'static str],
    /// The reason if `images` is empty.
    blind: &'static str,
    /// The most bytes of an image in base64.
    most_image: usize,
    /// The most pixels of a side of an image.
    most_side: u32,
    /// The most bytes of a document in base64; `None` if the API takes no documents.
    most_document: Option<usize>,
    /// `true` if the format has attachments in the results of tools. Otherwise they follow the
    /// results in a message of the user.
    in_results: bool,
}

const ALL: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Beginnings of the names of models that read only text.
const TEXT_ONLY: &[&str] = &[
    "gpt-3.5",
    "gpt-4-0",
    "gpt-4-32k",
    "gpt-oss",
    "o1-mini",
    "o1-preview",
    "o3-mini",
    "claude-2",
    "claude-instant",
    "deepseek-chat",
    "deepseek-reasoner",
    "deepseek-r1",
    "deepseek-v3",
    "codestral",
    "devstral",
    "ministral-3b-2410",
    "ministral-8b-2410",
    "mistral-7b",
    "mixtral",
    "command-r",
    "command-a-03",
    "llama-3.1",
    "llama-3.3",
    "llama3.1",
    "llama3.3",
    "llama-3-",
    "llama3:",
    "qwen3-coder",
    "qwen2.5-coder",
    "qwen3:",
    "kimi-k2-",
    "grok-3",
    "grok-code",
    "glm-4.5-air",
    "glm-4.6",
    "phi-4-mini",
];

impl MediaSupport {
    /// Returns what a model takes over this API. A model that is not known to read only text counts
    /// as one that sees.
    pub fn of(dialect: &Dialect, model: &str) -> MediaSupport {
        MediaSupport::of_api(dialect.family, dialect.name, model)
    }

    /// Returns what a model takes in the original dialect of a format.
    pub(crate) fn of_format(format: WireFormat, model: &str) -> MediaSupport {
        MediaSupport::of_api(format, format.as_str(), model)
    }

    fn of_api(format: WireFormat, dialect: &str, model: &str) -> MediaSupport {
        let model = model.to_lowercase();
        let name = model.rsplit('/').next().unwrap_or_default();
        let support = MediaSupport::of_sight(format, dialect, name);
        // Bedrock's ids begin with a region and a vendor.
        let begins = |part: &str| TEXT_ONLY.iter().any(|start| part.starts_with(start));
        let vendors = name.match_indices('.').any(|(at, _)| begins(&name[at + 1..]));
        let sees = !(begins(name) || vendors || name == "gpt-4");
        let cohere = format == WireFormat::CohereV2;
        if sees && (!cohere || name.contains("vision")) {
            return support;
        }
        MediaSupport { images: &[], blind: "the model reads only text", ..support }
    }

    /// Returns what a model takes that sees.
    fn of_sight(format: WireFormat, dialect: &str, name: &str) -> MediaSupport {
        let base = MediaSupport {
            images: ALL,
            blind: "the API takes no images",
            most_image: 20 * MIB,
            most_side: u32::MAX,
            most_document: None,
            in_results: false,
        };
        match format {
            WireFormat::Anthropic => MediaSupport {
                most_image: 5 * MIB,
                most_side: 8000,
                most_document: Some(32 * MIB),
                in_results: true,
                ..base
            },
            WireFormat::BedrockInvoke | WireFormat::BedrockConverse => MediaSupport {
                most_image: 5 * MIB,
                most_side: 8000,
                most_document: Some(6 * MIB),
                in_results: true,
                ..base
            },
            WireFormat::Gemini => MediaSupport {
                images: &["image/png", "image/jpeg", "image/webp"],
                most_document: Some(20 * MIB),
                // Older models have no attachments in a function's response.
                in_results: !(name.starts_with("gemini-1") || name.starts_with("gemini-2")),
                ..base
            },
            WireFormat::OpenAiResponses => MediaSupport {
                most_image: 50 * MIB,
                most_document: Some(50 * MIB),
                in_results: true,
                ..base
            },
            WireFormat::OpenAiChat => {
                let openai = matches!(dialect, "openai-chat" | "azure-openai-chat" | "openrouter");
                MediaSupport {
                    most_image: if openai { 50 * MIB } else { base.most_image },
                    most_document: openai.then_some(50 * MIB),
                    ..base
                }
            }
            WireFormat::CohereV2 | WireFormat::CohereV1 => base,
            WireFormat::Ollama => MediaSupport { most_image: 100 * MIB, ..base },
        }
    }

    /// Checks if an image or a document can be sent.
    ///
    /// # Errors
    /// The reason why not, for the user and for the model.
    pub fn check(&self, content: &Attachment) -> Result<(), UnsupportedMedia> {
        match content {
            Attachment::Image(image) => self.check_image(image, content),
            Attachment::Document(document) => self.check_document(document, content),
            _ => Err("the API does not take it".to_owned()),
        }
        .map_err(UnsupportedMedia)
    }

    fn check_image(&self, image: &Image, content: &Attachment) -> Result<(), String> {
        if self.images.is_empty() {
            return Err(self.blind.to_owned());
        }
        let Image::Base64 { media_type, data } = image else { return Ok(()) };
        let usual = if media_type == "image/jpg" { "image/jpeg" } else { media_type.as_str() };
        if !self.images.contains(&usual) {
            return Err(format!("the API takes no {media_type}"));
        }
        too_long("images", data, self.most_image, content)?;
        match image.size().filter(|_| self.most_side < u32::MAX) {
            Some((width, height)) if width.max(height) > self.most_side => Err(format!(
                "the API takes images of at most {most}x{most} pixels",
                most = self.most_side
            )),
            _ => Ok(()),
        }
    }

    fn check_document(&self, document: &Document, content: &Attachment) -> Result<(), String> {
        match self.most_document {
            None => Err("the API takes no documents".to_owned()),
            // A page is an image for the model.
            Some(_) if self.images.is_empty() => Err(self.blind.to_owned()),
            Some(most) => too_long("documents", &document.data, most, content),
        }
    }
}

fn too_long(what: &str, data: &str, most: usize, content: &Attachment) -> Result<(), String> {
    if data.len() <= most {
        return Ok(());
    }
    let (is, most) = (content.file_size(), most / 4 * 3);
    Err(format!("the API takes {what} of at most {most} bytes, and this has {is}"))
}

//! Upper bounds on the tokens that providers bill for images and documents.
//!
//! ```
//! use endstop_core::ImageTokens;
//! // gpt-4o: 85 tokens, and 170 for each tile of 512 pixels.
//! assert_eq!(ImageTokens::Tiles { base: 85, tile: 170 }.of_size(Some((2048, 4096))), 1105);
//! // Claude: a token for each patch of 28 pixels, at most 1568.
//! let claude = ImageTokens::Patches { side: 28, per_thousand: 1000, most: 1568 };
//! assert_eq!(claude.of_size(Some((1000, 1000))), 1296);
//! assert_eq!(claude.of_size(None), 1568); // a URL
//! ```
//!
//! A ceiling on cost or tokens is checked before the call, so the number must never be too small.
//! Sizes are those of the file; no formula charges more for an image that was scaled down.

use super::attachment::{Attachment, Document, Image, decoded};
use serde::{Deserialize, Serialize};

/// The most tiles of 512 pixels after scaling: 2048 by 768 pixels.
const MOST_TILES: u64 = 8;

/// Side in pixels that is assumed for an image of unknown size: above the limits of providers.
const UNKNOWN_SIDE: u32 = 10_000;

/// Size in pixels that is assumed for the image of a page.
const PAGE: (u32, u32) = (2000, 2800);

/// Tokens of a page of text in a document, in addition to those of its image.
const PAGE_TEXT: u64 = 3000;

/// The rule by which a model's provider counts the tokens of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageTokens {
    /// The same number for each image.
    Flat(u64),
    /// OpenAI's older models: a base, and a number for each tile of 512 pixels, after scaling to at
    /// most 2048 pixels, and the shortest side to 768.
    Tiles {
        /// Tokens of each image.
        base: u64,
        /// Tokens of each tile.
        tile: u64,
    },
    /// Claude, and OpenAI's newer models: a number for each square patch.
    Patches {
        /// Side of a patch in pixels.
        side: u32,
        /// Tokens of a thousand patches.
        per_thousand: u64,
        /// The most tokens of an image; a larger image is scaled down.
        most: u64,
    },
    /// Gemini 1 and 2: a number for each crop of 256 to 768 pixels.
    Crops {
        /// Tokens of each crop.
        tokens: u64,
    },
    /// An open model, or one of a provider without a published rule: the most that the rules of
    /// common vision encoders give.
    Open,
    /// An unknown model, which may be any: the most that any of the known rules gives.
    Unknown,
}

impl Default for ImageTokens {
    /// A number for every image, for runs whose driver sets no rule.
    fn default() -> ImageTokens {
        ImageTokens::Flat(4096)
    }
}

impl ImageTokens {
    /// Returns the most tokens of an image of this size in pixels; `None` if it is unknown.
    pub fn of_size(self, size: Option<(u32, u32)>) -> u64 {
        let (width, height) = size.unwrap_or((UNKNOWN_SIDE, UNKNOWN_SIDE));
        match self {
            ImageTokens::Flat(tokens) => tokens,
            ImageTokens::Tiles { base, tile } => {
                // A square has fewer tiles than a wide image.
                let tiles = if size.is_some() { tiles(width, height) } else { MOST_TILES };
                base.saturating_add(tile.saturating_mul(tiles))
            }
            ImageTokens::Patches { side, per_thousand, most } => {
                let (across, down) = (width.div_ceil(side.max(1)), height.div_ceil(side.max(1)));
                let patches = u64::from(across) * u64::from(down);
                patches.saturating_mul(per_thousand).div_ceil(1000).min(most)
            }
            ImageTokens::Crops { tokens } => tokens.saturating_mul(crops(width, height)),
            ImageTokens::Open => {
                // Encoders with small patches limit the size of the image.
                let (large, small) = ((28, 16_384), (14, 4160));
                let patches = [large, small].map(|(side, most)| {
                    ImageTokens::Patches { side, per_thousand: 1000, most }.of_size(size)
                });
                let crops = ImageTokens::Crops { tokens: 258 }.of_size(size);
                patches.into_iter().fold(crops, u64::max)
            }
            ImageTokens::Unknown => {
                let tiles = ImageTokens::Tiles { base: 2833, tile: 5667 }.of_size(size);
                tiles.max(ImageTokens::Open.of_size(size))
            }
        }
    }

    /// Returns the most tokens of an image.
    pub fn of_image(self, image: &Image) -> u64 {
        match self {
            // Without a look into the data.
            ImageTokens::Flat(tokens) => tokens,
            _ => self.of_size(image.size()),
        }
    }

    /// Returns the tokens of a document: an estimate, because its pages are compressed. It is the
    /// larger of a token for each byte of the file, and an image and 3000 tokens of text for each
    /// page. Pages in compressed object streams cannot be counted; such a file counts a page for each
    /// of its streams, because a page with content has at least one, and a stream is never inside an
    /// object stream.
    pub fn of_document(self, document: &Document) -> u64 {
        let bytes = (document.data.len() / 4 * 3) as u64;
        let Some(file) = decoded(&document.data, usize::MAX) else { return bytes };
        let page = self.of_size(Some(PAGE)).saturating_add(PAGE_TEXT);
        bytes.max(pages(&file).saturating_mul(page))
    }

    pub(crate) fn of_attachment(self, attachment: &Attachment) -> u64 {
        match attachment {
            Attachment::Image(image) => self.of_image(image),
            Attachment::Document(document) => self.of_document(document),
        }
    }
}

/// Returns the tiles of 512 pixels of an image, at most eight.
fn tiles(width: u32, height: u32) -> u64 {
    let (short, long) = (width.min(height).max(1), width.max(height).max(1));
    let fit = (2048.0 / f64::from(long)).min(1.0);
    let (short, long) = (f64::from(short) * fit, f64::from(long) * fit);
    let count = |scale: f64| {
        // Pixels are whole, so a side that is scaled to just above a border may be billed as one more.
        let side = |pixels: f64| ((pixels * scale).ceil() / 512.0).ceil().max(1.0) as u64;
        side(short).saturating_mul(side(long)).min(MOST_TILES)
    };
    // The documentation does not say if small images are scaled up, so both counts are considered.
    let scale = 768.0 / short;
    count(scale.min(1.0)).max(count(scale))
}

/// Returns the crops of an image.
fn crops(width: u32, height: u32) -> u64 {
    if width <= 384 && height <= 384 {
        return 1;
    }
    // In 64 bits, because the sides in a forged header may be anything.
    let (width, height) = (u64::from(width), u64::from(height));
    let side = (width.min(height) * 2 / 3).clamp(256, 768);
    width.div_ceil(side) * height.div_ceil(side)
}

/// Returns the number of pages of a PDF, or more: those that are visible without decompressing it or,
/// if objects are compressed, the number of streams.
fn pages(file: &[u8]) -> u64 {
    let page = memchr::memmem::Finder::new(b"/Type");
    let visible = page.find_iter(file).filter(|at| {
        let rest = file[at + 5..].trim_ascii_start();
        rest.strip_prefix(b"/Page").is_some_and(|rest| rest.first() != Some(&b's'))
    });
    let visible = visible.count() as u64;
    let has = |word: &[u8]| memchr::memmem::find(file, word).is_some();
    // A file without a `trailer` has its references in a stream, and so may have its objects there
    // under an escaped name.
    if has(b"trailer") && !has(b"ObjStm") {
        return visible;
    }
    visible.max(memchr::memmem::find_iter(file, b"endstream").count() as u64)
}

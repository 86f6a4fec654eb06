//! Images and documents in messages and in results of tools, checked by the first bytes of their data.
//!
//! ```text
//! sniffed_type(b"GIF89a…")                     // Some("image/gif")
//! size_of(b"GIF89a\x80\x02\xe0\x01…")             // Some((640, 480))
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The media type of a PDF document.
const PDF: &str = "application/pdf";

/// Bytes that usually contain the size of an image. A JPEG with large metadata needs more.
const HEADER: usize = 3 * 4096;

/// An image, inline or by URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// Inline data.
    Base64 {
        /// Media type, for example `image/png`.
        media_type: String,
        /// The data in base64.
        data: String,
    },
    /// A URL that the provider fetches.
    Url(String),
}

/// A document, for example a PDF.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Document {
    /// Media type, for example `application/pdf`.
    pub media_type: String,
    /// The data in base64.
    pub data: String,
    /// File name that the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image or a document in the result of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Attachment {
    /// An image.
    Image(Image),
    /// A document.
    Document(Document),
}

/// The reason why data is not an image or a document of the stated type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaError {
    /// The media type is not supported.
    UnknownType(String),
    /// The data has another type, or none that is known.
    WrongType {
        /// `image` or `document`.
        what: &'static str,
        /// The stated media type.
        stated: String,
        /// The media type of the data, if it is known.
        found: Option<&'static str>,
    },
    /// The data is not base64.
    NotBase64,
    /// The data begins like no supported image or document.
    Unrecognized,
}

impl fmt::Display for MediaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediaError::UnknownType(stated) => write!(
                f,
                "unknown media type `{stated}`: expected image/png, image/jpeg, image/gif, image/webp or application/pdf"
            ),
            MediaError::WrongType { what, stated, found: Some(found) } => {
                write!(f, "invalid {what}: the data is {found}, not {stated}")
            }
            MediaError::WrongType { what, stated, found: None } => {
                write!(f, "invalid {what}: the data is not {stated}")
            }
            MediaError::NotBase64 => {
                f.write_str("invalid image or document: the data is not base64")
            }
            MediaError::Unrecognized => f.write_str(
                "unknown file type: expected a PNG, JPEG, GIF or WebP image, or a PDF document",
            ),
        }
    }
}

impl std::error::Error for MediaError {}

impl Image {
    /// Creates an image from the bytes of a PNG, JPEG, GIF or WebP file.
    ///
    /// # Errors
    /// The media type is not one of those, or the bytes are not of that type.
    pub fn from_bytes(bytes: &[u8], media_type: &str) -> Result<Image, MediaError> {
        let media_type = usual(media_type).to_owned();
        check_type("image", &media_type, bytes)?;
        Ok(Image::Base64 { media_type, data: STANDARD.encode(bytes) })
    }

    /// Returns the width and the height in pixels; `None` for a URL, or if the header of the data is
    /// damaged.
    pub fn size(&self) -> Option<(u32, u32)> {
        let Image::Base64 { data, .. } = self else { return None };
        // Only the beginning at first, because the data may be megabytes and the size is in its
        // header.
        size_of(&decoded(data, HEADER)?)
            .or_else(|| size_of(&decoded(data, usize::MAX)?))
            .filter(|(width, height)| *width > 0 && *height > 0)
    }

    /// Returns an error if inline data is not an image of its media type.
    ///
    /// # Errors
    /// Names the type of the data.
    pub fn check(&self) -> Result<(), MediaError> {
        match self {
            Image::Base64 { media_type, data } => check_data("image", media_type, data),
            Image::Url(_) => Ok(()),
        }
    }
}

impl Document {
    /// Creates a document from the bytes of a PDF file.
    ///
    /// # Errors
    /// The media type is not `application/pdf`, or the bytes are not of that type.
    pub fn from_bytes(bytes: &[u8], media_type: &str) -> Result<Document, MediaError> {
        check_type("document", media_type, bytes)?;
        Ok(Document { media_type: media_type.to_owned(), data: STANDARD.encode(bytes), name: None })
    }

    /// Sets the file name that the model reads.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Document {
        self.name = Some(name.into());
        self
    }

    /// Returns an error if the data is not a document of its media type.
    ///
    /// # Errors
    /// Names the type of the data.
    pub fn check(&self) -> Result<(), MediaError> {
        check_data("document", &self.media_type, &self.data)
    }
}

impl Attachment {
    /// Creates an image or a document from the bytes of a file.
    ///
    /// # Errors
    /// The media type is not supported, or the bytes are not of that type.
    pub fn from_bytes(bytes: &[u8], media_type: &str) -> Result<Attachment, MediaError> {
        if media_type == PDF {
            Document::from_bytes(bytes, media_type).map(Attachment::Document)
        } else {
            Image::from_bytes(bytes, media_type).map(Attachment::Image)
        }
    }

    /// Creates an image or a document from the bytes of a file, whose first bytes determine the media
    /// type.
    ///
    /// ```
    /// use endstop_core::{Attachment, MediaError};
    /// let gif = Attachment::detect(b"GIF89a\x80\x02\xe0\x01")?;
    /// assert_eq!(gif.to_string(), "image: image/gif, 640x480 pixels, 10 bytes");
    /// assert_eq!(Attachment::detect(b"<html>"), Err(MediaError::Unrecognized));
    /// # Ok::<(), MediaError>(())
    /// ```
    ///
    /// # Errors
    /// The bytes are not a PNG, JPEG, GIF or WebP image, or a PDF document.
    pub fn detect(bytes: &[u8]) -> Result<Attachment, MediaError> {
        let media_type = sniffed_type(bytes).ok_or(MediaError::Unrecognized)?;
        Attachment::from_bytes(bytes, media_type)
    }

    /// Creates an image or a document from base64.
    ///
    /// # Errors
    /// Those of [`from_bytes`](Self::from_bytes), or the data is not base64.
    pub fn from_base64(data: &str, media_type: &str) -> Result<Attachment, MediaError> {
        let bytes = STANDARD.decode(data).map_err(|_| MediaError::NotBase64)?;
        Attachment::from_bytes(&bytes, media_type)
    }

    /// Returns an error if the data is not of its media type.
    ///
    /// # Errors
    /// Names the type of the data.
    pub fn check(&self) -> Result<(), MediaError> {
        match self {
            Attachment::Image(image) => image.check(),
            Attachment::Document(document) => document.check(),
        }
    }

    /// Returns the number of bytes of the file; 0 for a URL.
    pub fn file_size(&self) -> usize {
        match self {
            Attachment::Image(Image::Base64 { data, .. })
            | Attachment::Document(Document { data, .. }) => {
                // Computed from the length, because decoding the data only to count it would be
                // slow.
                let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
                (data.len() / 4 * 3).saturating_sub(padding)
            }
            Attachment::Image(Image::Url(_)) => 0,
        }
    }
}

impl From<Image> for Attachment {
    fn from(image: Image) -> Attachment {
        Attachment::Image(image)
    }
}

impl From<Document> for Attachment {
    fn from(document: Document) -> Attachment {
        Attachment::Document(document)
    }
}

/// Describes the content in a line of text, for models that cannot read it.
impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attachment::Image(Image::Url(url)) => write!(f, "image: {url}"),
            Attachment::Image(image @ Image::Base64 { media_type, .. }) => {
                write!(f, "image: {media_type}, ")?;
                if let Some((width, height)) = image.size() {
                    write!(f, "{width}x{height} pixels, ")?;
                }
                write!(f, "{} bytes", self.file_size())
            }
            Attachment::Document(Document { media_type, name, .. }) => {
                f.write_str("document: ")?;
                if let Some(name) = name {
                    write!(f, "{name}, ")?;
                }
                write!(f, "{media_type}, {} bytes", self.file_size())
            }
        }
    }
}

/// Returns the registered name of a media type.
fn usual(media_type: &str) -> &str {
    // A frequent mistake, which providers reject.
    if media_type == "image/jpg" { "image/jpeg" } else { media_type }
}

fn check_data(what: &'static str, media_type: &str, data: &str) -> Result<(), MediaError> {
    let bytes = STANDARD.decode(data).map_err(|_| MediaError::NotBase64)?;
    check_type(what, usual(media_type), &bytes)
}

fn check_type(what: &'static str, stated: &str, bytes: &[u8]) -> Result<(), MediaError> {
    let known = if what == "image" { IMAGES } else { &[PDF] };
    if !known.contains(&stated) {
        return Err(MediaError::UnknownType(stated.to_owned()));
    }
    let found = sniffed_type(bytes);
    if found == Some(stated) {
        return Ok(());
    }
    Err(MediaError::WrongType { what, stated: stated.to_owned(), found })
}

/// Decodes the first bytes of base64.
pub(super) fn decoded(data: &str, bytes: usize) -> Option<Vec<u8>> {
    // Whole groups of four characters, because a part of a group does not decode.
    let end = (bytes / 3).saturating_mul(4).min(data.len());
    STANDARD.decode(data.as_bytes().get(..end)?).ok()
}

/// The media types of images.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the media type that the first bytes of a file announce.
fn sniffed_type(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else if bytes.starts_with(b"%PDF-") {
        Some("application/pdf")
    } else {
        None
    }
}

/// Returns the width and the height of an image in pixels.
fn size_of(bytes: &[u8]) -> Option<(u32, u32)> {
    match sniffed_type(bytes)? {
        "image/png" => Some((big(bytes, 16, 4)?, big(bytes, 20, 4)?)),
        "image/gif" => Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?)),
        "image/jpeg" => jpeg(bytes),
        "image/webp" => webp(bytes),
        _ => None,
    }
}

/// Reads the frame header of a JPEG file, which follows any number of other segments.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        // Any number of fill bytes may precede a marker.
        while *bytes.get(at)? == 0xff && *bytes.get(at + 1)? == 0xff {
            at += 1;
        }
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Frame headers. C4, C8 and CC are tables and extensions.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            // Markers without a length.
            0x01 | 0xd0..=0xd7 => at += 2,
            // The image data, or the end: there is no frame header.
            0xd9 | 0xda => return None,
            _ => at += 2 + usize::try_from(big(bytes, at + 2, 2)?).ok()?.max(2),
        }
    }
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        b"VP8L" => {
            let packed = little(bytes, 21, 4)?;
            Some(((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1))
        }
        // The two highest bits are a scaling factor.
        b"VP8 " => Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff)),
        _ => None,
    }
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    Some(digits.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(at..at.checked_add(length)?)?;
    Some(digits.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

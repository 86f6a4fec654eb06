//! Images and documents: their parts of a message, their size, and their tokens.
//!
//! ```
//! use endstop_core::Image;
//! let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x06\0\0\0";
//! let image = Image::from_bytes(png, "image/png")?;
//! assert_eq!(image.size(), Some((2, 3)));
//! let error = Image::from_bytes(png, "image/jpeg").unwrap_err();
//! assert_eq!(error.to_string(), "invalid image: the data is image/png, not image/jpeg");
//! # Ok::<(), endstop_core::MediaError>(())
//! ```

mod attachment;
mod tokens;

pub use attachment::{Attachment, Document, Image, MediaError};
pub use tokens::ImageTokens;

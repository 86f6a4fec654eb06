//! The result of a tool call.
//!
//! ```
//! use endstop::tool::{Json, ToolOutput};
//! assert_eq!(ToolOutput::from("42"), ToolOutput::ok("42"));
//! assert!(ToolOutput::error("no such file").is_error());
//! assert_eq!(ToolOutput::from(Json([1, 2])).content, "[1,2]");
//! ```

use super::error::ToolError;
use super::finite;
use endstop_core::{Attachment, Document, Image, MediaError, ToolReport, ToolStatus};
use serde::Serialize;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: String,
    /// The status of the call: `Ok`, `Error`, `Denied` or `Timeout`.
    pub status: ToolStatus,
    /// Images and documents for the model, after the text.
    pub attachments: Vec<Attachment>,
    /// The reason to halt the run, if it must halt.
    pub halt: Option<String>,
    /// `true` if compaction must not change the result.
    pub pinned: bool,
}

impl Default for ToolOutput {
    /// An empty success.
    fn default() -> ToolOutput {
        ToolOutput {
            content: String::new(),
            status: ToolStatus::Ok,
            attachments: Vec::new(),
            halt: None,
            pinned: false,
        }
    }
}

impl ToolOutput {
    /// Creates the result of a successful call.
    #[doc(alias = "text")]
    pub fn ok(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), ..ToolOutput::default() }
    }

    /// Creates the result of a failed call; the model receives the message.
    #[doc(alias = "err")]
    pub fn error(content: impl Into<String>) -> ToolOutput {
        ToolOutput { status: ToolStatus::Error, ..ToolOutput::ok(content) }
    }

    /// Creates a result that halts the run.
    pub fn halt(reason: impl Into<String>) -> ToolOutput {
        let reason = reason.into();
        ToolOutput { halt: Some(reason.clone()), ..ToolOutput::ok(reason) }
    }

    /// Creates a successful result with the JSON of a value.
    ///
    /// # Errors
    /// JSON cannot express the value: a number is NaN or infinite, or a map has keys other than
    /// strings and numbers.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<ToolOutput, ToolError> {
        // serde_json would write `null` for NaN, which the model would take for a missing value.
        finite::check(value)?;
        Ok(ToolOutput::ok(serde_json::to_string(value)?))
    }

    /// Creates a successful result with the image or PDF document of a file.
    ///
    /// A model that cannot read it, or a provider whose API cannot carry it, receives a line of text
    /// that states so.
    ///
    /// ```
    /// use endstop::tool::ToolOutput;
    /// let gif = b"GIF89a\x80\x02\xe0\x01";
    /// let output = ToolOutput::file(gif, "image/gif")?;
    /// assert_eq!(output.content, "[image: image/gif, 640x480 pixels, 10 bytes]");
    /// assert!(ToolOutput::file(gif, "image/png").is_err()); // they are not
    /// # Ok::<(), endstop::MediaError>(())
    /// ```
    ///
    /// # Errors
    /// The bytes are not of the media type, or that is not supported: PNG, JPEG, GIF, WebP, PDF.
    #[doc(alias = "image")]
    pub fn file(bytes: &[u8], media_type: &str) -> Result<ToolOutput, MediaError> {
        Ok(ToolOutput::default().with(Attachment::from_bytes(bytes, media_type)?))
    }

    /// Appends a line of text, an image or a document. The text names an image or a document in
    /// brackets where it belongs, and the content itself follows the text.
    ///
    /// ```
    /// use endstop::Image;
    /// use endstop::tool::{ToolError, ToolOutput};
    /// fn compare(before: &[u8], after: &[u8]) -> Result<ToolOutput, ToolError> {
    ///     Ok(ToolOutput::ok("Before:")
    ///         .with(Image::from_bytes(before, "image/png")?)
    ///         .with("After:")
    ///         .with(Image::from_bytes(after, "image/png")?))
    /// }
    /// # assert!(compare(b"", b"").is_err());
    /// ```
    #[must_use]
    pub fn with(mut self, part: impl Into<OutputPart>) -> ToolOutput {
        let line = match part.into() {
            OutputPart::Text(text) => text,
            OutputPart::Attachment(attachment) => {
                let name = format!("[{attachment}]");
                self.attachments.push(attachment);
                name
            }
        };
        if !self.content.is_empty() {
            self.content.push('\n');
        }
        self.content.push_str(&line);
        self
    }

    /// `true` if the call failed, was denied or timed out.
    pub fn is_error(&self) -> bool {
        self.status.is_error()
    }

    /// Pins the result: compaction neither drops nor changes it.
    #[must_use]
    pub fn pin(mut self) -> ToolOutput {
        self.pinned = true;
        self
    }

    /// Returns the report for the kernel. `stopped` is `true` if the call was asked to stop.
    pub(crate) fn into_report(mut self, stopped: bool) -> ToolReport {
        // A tool that finished its work despite the stop keeps its result.
        let status = if stopped && self.is_error() { ToolStatus::Aborted } else { self.status };
        // A provider would refuse the request with the damaged data, in this turn and all others.
        let wrong = self.attachments.extract_if(.., |one| one.check().is_err());
        for problem in wrong.filter_map(|one| one.check().err()) {
            self.content.push_str("\n[not shown: ");
            self.content.push_str(&problem.to_string());
            self.content.push(']');
        }
        ToolReport {
            attachments: self.attachments,
            halt: self.halt,
            pinned: self.pinned,
            ..ToolReport::new(status, self.content)
        }
    }
}

/// A part of the output of a tool: text, an image or a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputPart {
    /// Text.
    Text(String),
    /// An image or a document.
    Attachment(Attachment),
}

impl From<&str> for OutputPart {
    fn from(text: &str) -> OutputPart {
        OutputPart::Text(text.to_owned())
    }
}

impl From<String> for OutputPart {
    fn from(text: String) -> OutputPart {
        OutputPart::Text(text)
    }
}

impl From<Image> for OutputPart {
    fn from(image: Image) -> OutputPart {
        OutputPart::Attachment(image.into())
    }
}

impl From<Document> for OutputPart {
    fn from(document: Document) -> OutputPart {
        OutputPart::Attachment(document.into())
    }
}

impl From<Attachment> for OutputPart {
    fn from(attachment: Attachment) -> OutputPart {
        OutputPart::Attachment(attachment)
    }
}

/// A value whose JSON is the output of a tool.
///
/// ```
/// use endstop::tool::{Json, tool_fn};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Deserialize, JsonSchema)]
/// struct Lookup { city: String }
/// #[derive(Serialize)]
/// struct Weather { celsius: f64, rain: bool }
///
/// let weather = tool_fn("weather", "Returns the weather.", |args: Lookup, _| async move {
///     Json(Weather { celsius: 21.5, rain: args.city == "Bergen" })
/// });
/// # let _ = weather;
/// ```
///
/// A value that JSON cannot express, such as NaN, becomes an error for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(
    /// The value, which the model receives as JSON.
    pub T,
);

/// Types that the closure of a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a tool",
    label = "not an output of a tool",
    note = "return a string, `Json(value)` for any `value: Serialize`, an `Image`, a `ToolOutput`, or a `Result` of one of these",
    note = "for a closure with `?`, use `endstop::tool::try_tool_fn`, whose error type is `ToolError`"
)]
pub trait IntoToolOutput {
    /// Converts the value.
    fn into_tool_output(self) -> ToolOutput;
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> ToolOutput {
        self
    }
}

impl IntoToolOutput for ToolError {
    fn into_tool_output(self) -> ToolOutput {
        self.into()
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

impl IntoToolOutput for Cow<'_, str> {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

/// A tool that returns nothing says `done`, because some providers reject an empty result.
impl IntoToolOutput for () {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok("done")
    }
}

impl IntoToolOutput for Image {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::default().with(self)
    }
}

impl IntoToolOutput for Document {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::default().with(self)
    }
}

impl IntoToolOutput for Attachment {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::default().with(self)
    }
}

/// Several parts, in order. An empty list says `done`.
impl IntoToolOutput for Vec<OutputPart> {
    fn into_tool_output(self) -> ToolOutput {
        if self.is_empty() {
            return ().into_tool_output();
        }
        self.into_iter().fold(ToolOutput::default(), ToolOutput::with)
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::json(&self.0).unwrap_or_else(ToolOutput::from)
    }
}

/// An error may be any type that can be displayed; a [`ToolError`] keeps its variant.
impl<T: IntoToolOutput, E: fmt::Display + 'static> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> ToolOutput {
        match self {
            Ok(output) => output.into_tool_output(),
            Err(error) => of_error(error),
        }
    }
}

/// Returns the output for an error of any type. One implementation for all types cannot treat
/// [`ToolError`] differently at compile time, so this asks for the type at run time.
fn of_error<E: fmt::Display + 'static>(error: E) -> ToolOutput {
    let mut error = Some(error);
    let own = (&mut error as &mut dyn Any).downcast_mut::<Option<ToolError>>();
    match own.and_then(Option::take) {
        Some(own) => own.into(),
        None => ToolOutput::error(error.map(|error| error.to_string()).unwrap_or_default()),
    }
}

impl From<String> for ToolOutput {
    fn from(content: String) -> ToolOutput {
        ToolOutput::ok(content)
    }
}

impl From<&str> for ToolOutput {
    fn from(content: &str) -> ToolOutput {
        ToolOutput::ok(content)
    }
}

impl From<ToolError> for ToolOutput {
    fn from(error: ToolError) -> ToolOutput {
        match error {
            ToolError::Failed(message) => ToolOutput::error(message),
            ToolError::Denied(message) => {
                ToolOutput { status: ToolStatus::Denied, ..ToolOutput::ok(message) }
            }
            ToolError::Timeout(message) => {
                ToolOutput { status: ToolStatus::Timeout, ..ToolOutput::ok(message) }
            }
            ToolError::Halt(reason) => ToolOutput::halt(reason),
        }
    }
}

impl<T: Serialize> From<Json<T>> for ToolOutput {
    fn from(value: Json<T>) -> ToolOutput {
        value.into_tool_output()
    }
}

impl<T: IntoToolOutput, E: fmt::Display + 'static> From<Result<T, E>> for ToolOutput {
    fn from(result: Result<T, E>) -> ToolOutput {
        result.into_tool_output()
    }
}

//! The input of a run, and the check of a conversation that the user supplied.
//!
//! ```text
//! check_history(&messages)?; // providers would accept it
//! ```

use super::start_error::StartError;
use crate::provider::{ModelParams, Provider};
use endstop_core::{Attachment, BranchPoint, Message, MessageId, Part, Role, history};
use std::borrow::Cow;

/// The longest id of a run, in bytes.
const LONGEST_ID: usize = 64;

/// The conversation of a run: its messages and the epoch of the provider's encoded state.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) epoch: u64,
    /// The run that the conversation was taken from, if the next run branches from it.
    pub(crate) fork: Option<Box<Fork>>,
}

/// What a run that branches from another one takes over in addition to the conversation.
#[derive(Clone)]
pub(crate) struct Fork {
    pub(crate) point: BranchPoint,
    pub(crate) task: String,
    pub(crate) task_message: Option<MessageId>,
    /// Number of secrets that were cut out of the conversation when it was journalled.
    pub(crate) redacted: u64,
}

impl Conversation {
    pub(crate) fn new(messages: Vec<Message>, epoch: u64) -> Conversation {
        Conversation { messages, epoch, fork: None }
    }
}

/// The input of a run: text, or several parts such as text, images and documents.
///
/// ```
/// use endstop::{Image, MediaError, RunInput};
/// let input: RunInput = "What is the capital of France?".into();
/// fn describe(png: &[u8]) -> Result<RunInput, MediaError> {
///     Ok(RunInput::new("Describe this.").with(Image::from_bytes(png, "image/png")?))
/// }
/// # let _ = (input, describe(b""));
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RunInput {
    parts: Vec<Part>,
    pub(in crate::agent) params: ModelParams,
    pub(in crate::agent) id: Option<String>,
}

impl RunInput {
    /// Creates an input of text.
    pub fn new(text: impl Into<String>) -> RunInput {
        RunInput { parts: vec![Part::Text { text: text.into() }], ..RunInput::default() }
    }

    /// Adds an image or a document. A run refuses one that the model or its API does not take, and
    /// data that is not of its media type.
    pub fn with(mut self, attachment: impl Into<Attachment>) -> RunInput {
        self.parts.push(attachment.into().into_part());
        self
    }

    /// Sets parameters of this run's requests. Those that are set replace the agent's.
    pub fn params(mut self, params: ModelParams) -> RunInput {
        self.params = params;
        self
    }

    /// Sets the id of the run, for a program that must know it before the run starts. It must be
    /// unique within the journal; [`new_run_id`](crate::agent::new_run_id) returns such an id.
    pub fn id(mut self, id: impl Into<String>) -> RunInput {
        self.id = Some(id.into());
        self
    }

    /// Returns the id that was set, if it is valid.
    pub(in crate::agent) fn take_id(&mut self) -> Result<Option<String>, StartError> {
        let Some(id) = self.id.take() else { return Ok(None) };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        // Ids are part of file names and addresses.
        if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(plain) {
            return Err(StartError::InvalidId(id));
        }
        Ok(Some(id))
    }

    pub(in crate::agent) fn into_message(
        self,
        provider: &dyn Provider,
    ) -> Result<Message, StartError> {
        for attachment in self.parts.iter().filter_map(Part::attachment) {
            attachment.check()?;
            provider.check_attachment(&attachment).map_err(|source| {
                let attachment = attachment.to_string();
                StartError::UnsupportedMedia { attachment, source }
            })?;
        }
        let input = Message::new(MessageId(1), Role::User, self.parts);
        match history::problem(std::slice::from_ref(&input)) {
            None => Ok(input),
            Some(problem) if problem.name == "empty_message" => Err(StartError::BlankInput),
            Some(problem) => Err(StartError::Input(problem)),
        }
    }
}

impl From<&str> for RunInput {
    fn from(text: &str) -> RunInput {
        RunInput::new(text)
    }
}

impl From<String> for RunInput {
    fn from(text: String) -> RunInput {
        RunInput::new(text)
    }
}

impl From<&String> for RunInput {
    fn from(text: &String) -> RunInput {
        RunInput::new(text)
    }
}

impl From<Cow<'_, str>> for RunInput {
    fn from(text: Cow<'_, str>) -> RunInput {
        RunInput::new(text)
    }
}

impl From<Vec<Part>> for RunInput {
    fn from(parts: Vec<Part>) -> RunInput {
        RunInput { parts, ..RunInput::default() }
    }
}

/// Numbers the messages that have no number yet.
pub(in crate::agent) fn number(messages: &mut [Message]) {
    let mut last = messages.iter().map(|message| message.id.0).max().unwrap_or(0);
    for message in messages.iter_mut().filter(|message| message.id == MessageId::NEW) {
        // Saturating: `check_history` refuses such a number.
        last = last.saturating_add(1);
        message.id = MessageId(last);
    }
}

/// Returns an error if providers would refuse the conversation.
pub(in crate::agent) fn check_history(messages: &[Message]) -> Result<(), StartError> {
    if let Some(problem) = history::problem(messages).filter(|_| !messages.is_empty()) {
        return Err(StartError::Conversation(problem));
    }
    for (at, message) in messages.iter().enumerate() {
        let results = message.tool_results().flat_map(|result| result.attachments.clone());
        for attachment in message.parts.iter().filter_map(Part::attachment).chain(results) {
            // A provider would refuse every request with the damaged data.
            attachment
                .check()
                .map_err(|source| StartError::DamagedMedia { message: at, source })?;
        }
    }
    Ok(())
}

//! The background calls of a run: those that run, and the results that no model call has read.
//! `background.rs` starts and ends them.

use super::open_calls::earliest;
use crate::kernel::effect_id::EffectId;
use crate::media::Attachment;
use crate::message::{Part, ToolCall, ToolResult};
use std::time::Duration;

/// The background calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Number of the last handle.
    pub(crate) handles: u32,
    pub(crate) open: Vec<Work>,
    /// Results that no model call has read.
    pub(crate) ended: Vec<Ended>,
}

/// A call that runs in the background.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) id: EffectId,
    pub(crate) handle: String,
    pub(crate) call: ToolCall,
    pub(crate) started: Duration,
    pub(crate) deadline: Option<Duration>,
    /// The time limit that the call exceeded. If set, the call was asked to stop, and is abandoned at
    /// `deadline`.
    pub(crate) timed_out: Option<Duration>,
}

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) handle: String,
    pub(crate) call: ToolCall,
    pub(crate) result: ToolResult,
    pub(crate) ran: Duration,
    /// `true` if the hook has passed the result, or need not see it.
    pub(crate) passed: bool,
}

impl Background {
    /// `true` if a call runs under this id.
    pub(crate) fn runs(&self, id: EffectId) -> bool {
        self.open.iter().any(|work| work.id == id)
    }

    /// `true` while a call runs.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// `true` if there is a result that no model call has read.
    pub(crate) fn has_results(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The ids of the calls that run.
    pub(crate) fn running(&self) -> Vec<EffectId> {
        self.open.iter().map(|work| work.id).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.open.iter().fold(None, |next, work| earliest(next, work.deadline))
    }
}

impl Ended {
    /// Withholds the result, because no hook has passed it.
    pub(crate) fn withhold(&mut self) {
        self.result.content = format!(
            "the call had ended ({}), but the run was stopped before a hook had passed its result.",
            self.result.status.as_str()
        );
        self.result.attachments.clear();
        self.passed = true;
    }

    /// Returns the message to the model.
    pub(crate) fn into_message(self) -> (String, Vec<Part>) {
        let Ended { handle, result, ran, .. } = self;
        let ToolResult { name, status, content, attachments, .. } = result;
        let ran = Duration::from_millis(ran.as_millis() as u64);
        let text = format!(
            "Background call {handle} (`{name}`) has ended: {}, after {ran:?}. This is the result of a tool, not a message of the user:\n\n{content}",
            status.as_str()
        );
        let mut parts = vec![Part::Text { text: text.clone() }];
        parts.extend(attachments.into_iter().map(|attachment| match attachment {
            Attachment::Image(image) => Part::Image(image),
            Attachment::Document(document) => Part::Document(document),
        }));
        (text, parts)
    }
}

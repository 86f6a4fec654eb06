//! The place of a call: its run and its thread, which its client may name.

use crate::exchange::digest::Fingerprint;
use crate::exchange::run_name::RunName;
use crate::exchange::signs::Signs;
use std::fmt;
use std::sync::Arc;

/// The source of a run's id, from the most certain one to the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RunSource {
    /// The path prefix `/run/NAME`.
    Prefix,
    /// The header `x-endstop-run`.
    Header,
    /// A session id in a header or in the body.
    Session,
    /// The API key and the beginning of the conversation.
    Key,
}

impl RunSource {
    const ALL: [RunSource; 4] =
        [RunSource::Prefix, RunSource::Header, RunSource::Session, RunSource::Key];

    /// The name of the source.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            RunSource::Prefix => "prefix",
            RunSource::Header => "header",
            RunSource::Session => "session",
            RunSource::Key => "key",
        }
    }

    pub(super) fn named(name: &str) -> Option<RunSource> {
        RunSource::ALL.into_iter().find(|source| source.as_str() == name)
    }
}

/// Identifies a run. The id has the characters of a [`RunName`](crate::exchange::RunName), whatever
/// the client sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    source: RunSource,
    id: Arc<str>,
}

impl RunKey {
    pub(super) fn new(source: RunSource, id: &str) -> RunKey {
        RunKey { source, id: id.into() }
    }

    /// The run of the prefix `/run/NAME`.
    pub fn of_prefix(name: &RunName) -> RunKey {
        RunKey::new(RunSource::Prefix, name.as_str())
    }

    /// The source of the id. Equal ids of two sources are two runs.
    pub fn source(&self) -> RunSource {
        self.source
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// Identifies a thread within its run: one conversation, of the main agent or of a sub-agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    pub(super) fn new(kind: &str, id: &impl fmt::Display) -> ThreadId {
        ThreadId(format!("{kind}-{id}").into())
    }

    /// Reads the form that `Display` writes.
    pub(super) fn read(text: &str) -> Option<ThreadId> {
        let is_id = !text.is_empty()
            && text.len() <= 256
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_id.then(|| ThreadId(text.into()))
    }

    /// The id, for example `agent-a74a1c87878960a3b`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The run and the thread of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// The run.
    pub run: RunKey,
    /// The thread.
    pub thread: ThreadId,
    /// Separates the call ids of clients that do not know each other.
    pub(super) scope: Fingerprint,
}

/// A thread as its client names it.
pub(super) struct Named {
    pub(super) thread: ThreadId,
    pub(super) parent: Option<ThreadId>,
    pub(super) sub: bool,
}

/// Returns the thread that the ids of a request name, the most specific id first.
pub(super) fn named(signs: &Signs) -> Option<Named> {
    let session = signs.session.as_ref().map(|id| ThreadId::new("session", id));
    if let Some(id) = &signs.agent {
        // Claude Code names no parent for an agent of the main thread.
        let parent = signs.parent_agent.as_ref().map(|id| ThreadId::new("agent", id));
        return Some(Named {
            thread: ThreadId::new("agent", id),
            parent: parent.or(session),
            sub: true,
        });
    }
    // codex sends the session as well; its sub-agents share it.
    if let Some(id) = &signs.thread {
        let parent = signs.parent_thread.as_ref().map(|id| ThreadId::new("thread", id));
        let sub = signs.subagent || parent.is_some();
        return Some(Named { thread: ThreadId::new("thread", id), parent, sub });
    }
    // A session of opencode is one thread, so a child session is a sub-agent.
    if let Some(id) = &signs.conversation {
        let parent = signs.parent_conversation.as_ref().map(|id| ThreadId::new("session", id));
        let sub = signs.subagent || parent.is_some();
        return Some(Named { thread: ThreadId::new("session", id), parent, sub });
    }
    session.map(|thread| Named { thread, parent: None, sub: signs.subagent })
}

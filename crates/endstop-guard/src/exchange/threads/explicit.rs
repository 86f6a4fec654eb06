//! Threads that a client names itself.

use super::seat::ThreadId;
use crate::exchange::signs::Signs;

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

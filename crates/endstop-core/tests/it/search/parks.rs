//! Parks of a run for an approval, and the death of its process.
//!
//! ```text
//! let event = world.park(0)?; // of the first open effect
//! ```

use super::world::{Open, World};
use endstop_core::*;

/// Returns the call that a question is about, if it asks for approval.
pub(super) fn approval(open: &Open) -> Option<&ToolCall> {
    match open {
        Open::Consult { point: ConsultPoint::Approval { call }, .. } => Some(call),
        _ => None,
    }
}

impl World<'_> {
    /// Returns the park of an open approval.
    pub(super) fn park(&mut self, which: u8) -> Result<EventKind, String> {
        let open = self.open.get(usize::from(which)).ok_or("a park without a question")?;
        let call = approval(open).ok_or("a park without an approval")?;
        self.parked.push(call.id.clone());
        let request = ParkRequest {
            id: open.id(),
            kind: RequestKind::Approval,
            tool: Some(call.name.clone()),
            call_id: Some(call.id.clone()),
            subject: call.arguments.clone(),
            digest: "d1".to_owned(),
            reason: None,
            asked_ms: 1,
            expires_ms: None,
        };
        Ok(EventKind::Parked { request: Box::new(request) })
    }

    /// Returns the resumption after the death of the process: model calls and tools are lost.
    pub(super) fn resume(&mut self) -> EventKind {
        self.resumed = true;
        self.wake = None;
        let is_lost = |open: &Open| matches!(open, Open::Call { .. } | Open::Tool { .. });
        let (lost, open): (Vec<Open>, Vec<Open>) =
            std::mem::take(&mut self.open).into_iter().partition(is_lost);
        self.open = open;
        let ids = lost.iter().map(Open::id).collect();
        for open in lost {
            self.close(open);
        }
        EventKind::Resumed(Box::new(Resumption { lost: ids, ..Resumption::default() }))
    }

    /// Checks that a call for which the run was parked starts at most once.
    pub(super) fn starts_once(&mut self, call: &str) -> Result<(), String> {
        if !self.parked.iter().any(|parked| parked == call) {
            return Ok(());
        }
        if self.started.iter().any(|started| started == call) {
            return Err(format!("the approved call `{call}` started again"));
        }
        self.started.push(call.to_owned());
        Ok(())
    }
}

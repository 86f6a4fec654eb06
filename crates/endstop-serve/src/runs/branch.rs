//! Branches of runs: accepts a request for one, after the run and the turn were checked.
//!
//! ```text
//! match runs.branch(owner, key, id, request)? { Started::New(id) | Started::Known(id) => … }
//! ```

use super::hub::Runs;
use crate::backend::{BackendError, BranchRequest, ErrorKind, Origin, RunRequest, Started};
use endstop::journal::JournalErrorKind;

impl Runs {
    /// Accepts a request for a branch of a run. The agent is that of the run. May block.
    pub(super) fn branch_of(
        &self,
        owner: &str,
        key: Option<&str>,
        id: &str,
        request: BranchRequest,
    ) -> Result<Started, BackendError> {
        let row = self.row(id)?.ok_or_else(BackendError::unknown_run)?;
        let BranchRequest { turn, message, limits, accept_redacted, trace_parent } = request;
        let origin = Origin { run: row.id, turn, message, accept_redacted };
        let known = key.map(|key| self.shared.store.by_key(owner, key)).transpose()?;
        // A repeated request returns its run, also if the other run was removed since.
        if known.flatten().is_none() {
            self.check_origin(&origin)
                .map_err(|problem| BackendError::new(ErrorKind::InvalidRun, problem))?;
        }
        let (agent, task) = (row.request.agent, row.request.task);
        let origin = Some(origin);
        self.create(owner, key, RunRequest { agent, task, limits, origin, trace_parent })
    }

    /// Checks that the run can be branched there.
    fn check_origin(&self, origin: &Origin) -> Result<(), String> {
        let recorded = self.shared.journal.load(&origin.run).map_err(|error| {
            if error.kind == JournalErrorKind::NotFound {
                return "the run has not started, or was removed from the journal".to_owned();
            }
            // The message names files of the machine, which are not for clients.
            (self.shared.report)(&error.to_string());
            "the run cannot be read".to_owned()
        })?;
        origin.check(&recorded)
    }
}

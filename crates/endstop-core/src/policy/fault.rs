//! The failure of a policy that is not written in Rust.
//!
//! ```
//! use endstop_core::policy::PolicyFault;
//! let fault = PolicyFault { evidence: "ValueError: no".into(), diagnostic: "Traceback …".into() };
//! let unwound = std::panic::catch_unwind(|| fault.raise()).unwrap_err();
//! assert_eq!(unwound.downcast_ref::<PolicyFault>().unwrap().evidence, "ValueError: no");
//! ```

use std::panic::resume_unwind;

/// The failure of a policy in another language, such as an exception. It ends the run as
/// `error_during_execution`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// The failure in one line, for the evidence of the outcome.
    pub evidence: String,
    /// Details, for example a traceback, for the diagnostic of the outcome.
    pub diagnostic: String,
}

impl PolicyFault {
    /// Leaves the policy with this failure. The kernel catches it as it catches a panic of a policy
    /// in Rust, but nothing is printed.
    pub fn raise(self) -> ! {
        // Not `panic_any`, which would call the panic hook.
        resume_unwind(Box::new(self))
    }
}

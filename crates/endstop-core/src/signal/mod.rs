//! Termination signals: one type for the reason why the model stopped a turn, read from the
//! finish field of any provider.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason, TerminationSignal};
//! let s = TerminationSignal::new(SignalReason::TokenLimitReached, Confidence::High)
//!     .from_field("finish_reason", "length");
//! assert!(s.should_terminate);
//! assert_eq!(s.provider_specific.original_value, "length");
//! ```
//!
//! Source: the unified termination signals of Burnside. The three reasons that do not end the
//! model's part in the run (`tool_use`, `paused`, `in_progress`) are additions.

mod default_detection;
mod termination_signal;

pub use default_detection::{NoDetection, YesNo, default_detection, known_value};

pub use termination_signal::{
    Confidence, ProviderSpecific, SignalReason, TerminationSignal, calculate_confidence,
    create_signal, is_signal,
};

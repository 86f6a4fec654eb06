//! Finish values and their meaning, and the order in which the facts of a response decide.

pub mod finish;
pub mod precedence;

pub use finish::Finish;

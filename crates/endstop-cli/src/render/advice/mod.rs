//! Advice about endings: the meaning of each ending and the next step. The card, `explain`, `audit`
//! and the endings page of the book share one table, and a test compares the book with it.

mod facts;
mod next;
mod resume;
mod table;

pub(crate) use facts::Facts;
pub(crate) use next::{AFTER_DIVERGENCE, of_demo};
pub(crate) use resume::{Again, in_journal, quoted};
pub(crate) use table::{advice, meaning};

//! The result of the suite for people and programs: text, JSON, JUnit, Markdown, a page, a badge, and the difference of two.

mod badge;
mod baseline;
mod compare;
mod junit;
mod markdown;
mod page;
mod pages;
mod summary;
mod text;

pub use badge::badge;
pub use baseline::{Baseline, Stale};
pub use compare::{Change, compare};
pub use junit::junit;
pub use markdown::markdown;
pub use page::page;
pub use pages::{Page, TABLES, pages};
pub use summary::{level, passed};
pub use text::text;

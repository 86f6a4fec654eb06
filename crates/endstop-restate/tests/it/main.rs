//! Runs that are driven step by step, without an engine.

mod support;

mod crashes;
mod endings;
mod exports;
mod parks;
mod scenarios;
mod stops;
mod stores;

//! Tests the endings that an audit reports for recorded failures.

use crate::common::runs;
use endstop_core::Termination as T;
use endstop_trajectory::Prices;
use endstop_trajectory::audit::{Ended, Session};

fn ended(file: &str) -> Ended {
    Session::of(&runs(file)[0], &Prices::new()).ended
}

#[test]
fn cut_stream_is_not_terminated() {
    let ended = ended("pi/cut_streams.jsonl");
    assert_eq!(ended.native.as_deref(), Some("terminated"));
    assert_eq!(ended.termination, Some(T::ErrorDuringExecution));
}

//! Tests of guard over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::pedantic, reason = "tests")]

mod proxy;

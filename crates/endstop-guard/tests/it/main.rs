//! Tests of guard over real sockets.

mod proxy;

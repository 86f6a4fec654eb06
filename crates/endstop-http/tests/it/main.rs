//! The client against servers and proxies on real sockets.

mod bodies;
mod pooling;
mod proxies;
mod refusals;
mod secured;
mod server;

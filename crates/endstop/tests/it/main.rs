//! The tools and the test kit; real processes, real sockets.

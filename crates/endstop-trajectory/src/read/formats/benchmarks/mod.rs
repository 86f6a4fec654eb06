//! Readers of the results of benchmarks and research logs. Each format is a folder: `mod.rs` recognises
//! it in every build, and the other files read it in builds with the feature `benchmarks`.

/// The shape of a row of the table; `None` in a build without the readers of benchmarks.
#[cfg(feature = "benchmarks")]
macro_rules! benchmark {
    ($shape:ident($($parts:tt)*)) => {
        Some($crate::read::format::Shape::$shape($($parts)*))
    };
}

/// As above, in a build without the feature.
#[cfg(not(feature = "benchmarks"))]
macro_rules! benchmark {
    ($shape:ident($($parts:tt)*)) => {
        None
    };
}

pub(crate) mod agentdojo;
pub(crate) mod intercode;
pub(crate) mod malt;
pub(crate) mod react_log;
pub(crate) mod tau2;
pub(crate) mod tau_bench;
pub(crate) mod tothf;

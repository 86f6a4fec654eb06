//! Readers of the results of benchmarks and research logs.

pub(crate) mod agentdojo;
pub(crate) mod intercode;
pub(crate) mod malt;
pub(crate) mod react_log;
pub(crate) mod tau2;
pub(crate) mod tau_bench;
pub(crate) mod tothf;

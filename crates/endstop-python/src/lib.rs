//! Python bindings of Endstop: detection of why a model's turn ended, and runs of other frameworks
//! under the kernel.
//!
//! The bindings own no loop, no socket and no thread. A Python program feeds a `run::Run` with the
//! model's responses, as bytes, and gets frozen objects back. No lock is held while Python code is
//! called: `slot` lends the locked value out instead.
//!
//! The Python half is in `python/endstop`; its `__init__.py` lists the public names.

mod audit;
mod backtest;
mod backtest_report;
mod body;
mod call;
mod content;
mod decoder;
mod detection;
mod ending;
mod errors;
mod exit;
mod json;
mod limits;
mod members;
mod notebook;
mod outcome;
mod outcome_html;
mod policy;
mod price;
mod python_policy;
mod redact;
mod response;
mod run;
mod run_files;
mod run_input;
mod signal;
mod slot;
mod step;
mod turn;
mod usage;
mod verdict;

use pyo3::pymodule;

/// The compiled half of the package `endstop`.
// All shared values are in atomics or in slots, so that a free-threaded interpreter need not switch
// its lock on for this module.
#[pymodule(gil_used = false)]
mod _endstop {
    #[pymodule_export]
    use crate::audit::{Audit, AuditReport};
    #[pymodule_export]
    use crate::backtest::Backtest;
    #[pymodule_export]
    use crate::backtest_report::BacktestReport;
    #[pymodule_export]
    use crate::call::Call;
    #[pymodule_export]
    use crate::decoder::{Delta, StreamDecoder};
    #[pymodule_export]
    use crate::detection::{Detection, api_of, response};
    #[pymodule_export]
    use crate::limits::{default_limits, limit_names};
    #[pymodule_export]
    use crate::members::members;
    #[pymodule_export]
    use crate::outcome::Outcome;
    #[pymodule_export]
    use crate::policy::{Policy, k_of, policy_names};
    #[pymodule_export]
    use crate::price::{Price, price};
    #[pymodule_export]
    use crate::redact::redact;
    #[pymodule_export]
    use crate::response::detect;
    #[pymodule_export]
    use crate::run::{ModelCall, Run};
    #[pymodule_export]
    use crate::run_files::run_files;
    #[pymodule_export]
    use crate::signal::{ModelError, Signal};
    #[pymodule_export]
    use crate::step::{Context, Step};
    #[pymodule_export]
    use crate::turn::Turn;
    #[pymodule_export]
    use crate::usage::Usage;
    #[pymodule_export]
    use crate::verdict::Verdict;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::exit::register(module.py())
    }

    /// Version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

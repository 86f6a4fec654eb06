//! Python bindings of Endstop: detection of why a model's turn ended, and runs of other frameworks
//! under the kernel.
//!
//! The bindings own no loop, no socket and no thread. A Python program feeds a `run::Run` with the
//! model's responses, as bytes, and gets frozen objects back. No lock is held while Python code is
//! called: `slot` lends the locked value out instead.
//!
//! The Python half is in `python/endstop`; its `__init__.py` lists the public names.

mod errors;
mod exit;
mod fields;
mod html;
mod json;
mod limits;
mod outcome;
mod policy;
mod price;
mod recorded;
mod redact;
mod response;
mod run;
mod slot;
mod turn;

use pyo3::pymodule;

/// The compiled half of the package `endstop`.
// All shared values are in atomics or in slots, so that a free-threaded interpreter need not switch
// its lock on for this module.
#[pymodule(gil_used = false)]
mod _endstop {
    #[pymodule_export]
    use crate::fields::{fields, members};
    #[pymodule_export]
    use crate::limits::{default_limits, limit_names};
    #[pymodule_export]
    use crate::outcome::Outcome;
    #[pymodule_export]
    use crate::policy::step::{Context, Step};
    #[pymodule_export]
    use crate::policy::verdict::Verdict;
    #[pymodule_export]
    use crate::policy::{Policy, k_of, policy_names};
    #[pymodule_export]
    use crate::price::{Price, price};
    #[pymodule_export]
    use crate::recorded::audit::{Audit, AuditReport};
    #[pymodule_export]
    use crate::recorded::backtest::Backtest;
    #[pymodule_export]
    use crate::recorded::backtest_report::BacktestReport;
    #[pymodule_export]
    use crate::recorded::run_files::run_files;
    #[pymodule_export]
    use crate::redact::redact;
    #[pymodule_export]
    use crate::response::decoder::{Delta, StreamDecoder};
    #[pymodule_export]
    use crate::response::detect;
    #[pymodule_export]
    use crate::response::detection::{Detection, api_of, response};
    #[pymodule_export]
    use crate::run::Run;
    #[pymodule_export]
    use crate::run::calls::ModelCall;
    #[pymodule_export]
    use crate::turn::{Call, ModelError, Signal, Turn, Usage};

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        let base = module.py().get_type::<crate::run::calls::Calls>();
        // Not by `add`, which makes the name a public one.
        pyo3::types::PyAnyMethods::setattr(module.as_any(), "_Calls", base)?;
        crate::exit::register(module.py())
    }

    /// Version of the package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name that Python packages use")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

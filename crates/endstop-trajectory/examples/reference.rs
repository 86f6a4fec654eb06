//! Evaluates the reference policies on files of runs, and prints the results in the format of the
//! reference implementation.
//!
//! ```text
//! cargo run --release -p endstop-trajectory --example reference -- runs/ > results.json
//! ```

use endstop_trajectory::backtest::{Backtest, Candidate, Engine};

#[expect(clippy::print_stdout, reason = "an example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<_> = std::env::args_os().skip(1).map(Into::into).collect();
    let done =
        Engine::default().run(&paths, || Backtest::new(&Candidate::reference()?), &|_| {})?;
    println!("{:#}", done.backtest.finish().reference_results());
    Ok(())
}

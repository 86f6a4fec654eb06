//! Converts recorded runs of any format to ATIF 1.8, one document per line.
//!
//! ```text
//! cargo run -p endstop-trajectory --example atif -- PATH… > runs.jsonl
//! ```
//!
//! Problems are written to standard error.
#![allow(clippy::print_stderr, reason = "a program for people")]

use endstop_trajectory::read::{Options, for_each};
use endstop_trajectory::write;
use std::io::{self, BufWriter, Write};

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for path in std::env::args().skip(1) {
        let mut failed = Ok(());
        let read = for_each(path, &Options::default(), &mut |run| match run {
            Ok(run) => {
                if failed.is_ok() {
                    failed = write::atif(&run, &mut out).and_then(|()| out.write_all(b"\n"));
                }
            }
            Err(problem) => eprintln!("{problem}"),
        });
        if let Err(error) = read {
            eprintln!("{error}");
        }
        failed?;
    }
    out.flush()
}

//! Writes the recommended or calibrated setting of a backtest to a file.

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use endstop::WatchMode;
use endstop_report::backtest::{Report, settings};

/// Writes the calibrated setting if a calibration was requested, else the recommended one.
pub(crate) fn write(report: &Report, file: &NewFile, mode: WatchMode) -> Result<()> {
    // The day in UTC, because the file may be read anywhere.
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let place = file.path().display();
    let text = settings(report, mode, &today)
        .map_err(|nothing| Failure::usage(format!("--write {place}: {nothing}")))?;
    file.write(&text)?;
    output::note(&format!("written: {place}"));
    Ok(())
}

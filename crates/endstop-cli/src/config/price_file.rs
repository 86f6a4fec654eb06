//! The prices that apply to runs, and the file that `endstop prices update` writes.

use super::prices::check_name;
use super::settings::Settings;
use super::trust::file::regular;
use super::trust::layers::user_path;
use super::trust::{owner, shown};
use crate::failure::{Failure, Result};
use endstop::wire::catalog::prices::{PriceBook, PriceSource, parse_price};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Largest file of prices in bytes. That of all models of LiteLLM has 300 kB.
const MOST: u64 = 16 << 20;

/// The file that `endstop prices update` writes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PriceFile {
    /// The list that they come from.
    pub(crate) from: String,
    /// Date on which it was read, in UTC.
    pub(crate) date: String,
    /// Prices as `--price` takes them, by PROVIDER/MODEL.
    pub(crate) prices: BTreeMap<String, String>,
}

impl PriceFile {
    /// Returns the path: next to the user's own settings.
    pub(crate) fn path() -> Option<PathBuf> {
        Some(user_path()?.with_file_name("prices.json"))
    }

    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or another user may have written it.
    pub(crate) fn read() -> Result<Option<PriceFile>> {
        let Some(path) = PriceFile::path() else { return Ok(None) };
        let name = shown(&path.display().to_string());
        let wrong = |problem: String| {
            Failure::usage(format!(
                "{name}: {problem}; `endstop prices update --from FILE` writes it again"
            ))
        };
        let (bytes, metadata) = match regular(&path, MOST) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        if let Some(problem) = owner::problem(&metadata, 0o002) {
            return Err(wrong(format!("prices decide when a ceiling is reached: {problem}")));
        }
        let file: PriceFile =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        for (model, price) in &file.prices {
            let row = |problem: String| wrong(shown(&format!("`{model}`: {problem}")));
            check_name(model).map_err(row)?;
            parse_price(price).map_err(|error| row(error.to_string()))?;
        }
        Ok(Some(file))
    }
}

/// Returns all prices that the user gave: those of the settings over those of the file, and the bound for models
/// without one.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn price_book(settings: &Settings) -> Result<PriceBook> {
    let mut book = PriceBook::new();
    for (model, price) in PriceFile::read()?.unwrap_or_default().prices {
        // Checked when it was read.
        if let Ok(price) = parse_price(&price) {
            book = book.with(&model, price);
        }
    }
    for (model, price) in &settings.prices {
        book = book.with(model, *price);
    }
    Ok(match settings.unknown_price {
        Some(price) => book.with_unknown(price),
        None => book,
    })
}

/// Sets the price of the model from the user's own prices, unless it is set or the catalogue decides.
///
/// # Errors
/// The file of prices cannot be used.
pub(crate) fn with_own_price(mut settings: Settings) -> Result<Settings> {
    if settings.price.is_some() || settings.replay {
        return Ok(settings);
    }
    let book = price_book(&settings)?;
    let (provider, model) =
        settings.model.as_deref().and_then(|model| model.split_once('/')).unwrap_or_default();
    // The catalogue has no prices of other servers.
    settings.price = if settings.base_url.is_some() {
        book.own(provider, model).or(settings.unknown_price)
    } else {
        let found = book.lookup(provider, model);
        found.filter(|found| found.source == PriceSource::User).map(|found| found.price)
    };
    Ok(settings)
}

//! Parser for prices on the command line, such as `in=3,out=15`.

use endstop_core::{NanoUsd, Price};
use std::fmt;

/// Parses a price from the command line, in dollars per million tokens:
/// `in=3,out=15[,cached=0.3][,cache_write=3.75][,cache_write_1h=6]`.
///
/// ```
/// use endstop_wire::catalog::prices::parse_price;
/// assert_eq!(parse_price("in=3,out=15").unwrap().output.to_usd(), 15.0);
/// assert_eq!(
///     parse_price("in=3,out=-1").unwrap_err().to_string(),
///     "price: `out`: `-1` is not an amount of dollars, such as 3 or 0.25",
/// );
/// ```
pub fn parse_price(text: &str) -> Result<Price, PriceError> {
    let mut found: [Option<NanoUsd>; FIELDS.len()] = [None; FIELDS.len()];
    for part in text.split(',').map(str::trim) {
        let (name, amount) =
            part.split_once('=').ok_or_else(|| PriceError::NotAField(part.to_owned()))?;
        let (name, amount) = (name.trim(), amount.trim());
        let Some(at) = FIELDS.iter().position(|field| *field == name) else {
            return Err(PriceError::UnknownField(name.to_owned()));
        };
        let bad =
            |problem| PriceError::Amount { field: FIELDS[at], value: amount.to_owned(), problem };
        if found[at].is_some() {
            return Err(PriceError::Twice(FIELDS[at]));
        }
        found[at] = Some(nano_usd(amount).map_err(bad)?);
    }
    // A missing `cached` or `cache_write` price stays `None`, which bills those tokens as input.
    let [input, output, cached_input, cache_write, cache_write_1h] = found;
    Ok(Price {
        input: input.ok_or(PriceError::Missing(FIELDS[0]))?,
        output: output.ok_or(PriceError::Missing(FIELDS[1]))?,
        cached_input,
        cache_write,
        cache_write_1h,
        ..Price::default()
    })
}

const FIELDS: [&str; 5] = ["in", "out", "cached", "cache_write", "cache_write_1h"];

/// Error for a price that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriceError {
    /// A part is not `field=amount`.
    NotAField(String),
    /// The field does not exist.
    UnknownField(String),
    /// A field occurs twice.
    Twice(&'static str),
    /// A required field is missing.
    Missing(&'static str),
    /// The amount of a field cannot be parsed.
    Amount {
        /// Name of the field.
        field: &'static str,
        /// The given value.
        value: String,
        /// Problem with the value.
        problem: AmountProblem,
    },
}

/// Problem with an amount of dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AmountProblem {
    /// Anything but digits with an optional decimal point.
    NotANumber,
    /// More than fits into a count of nano-dollars.
    TooLarge,
}

impl fmt::Display for PriceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("price: ")?;
        match self {
            PriceError::NotAField(part) => write!(
                f,
                "`{part}` is not `field=dollars`; write in=3,out=15[,cached=0.3][,cache_write=3.75][,cache_write_1h=6]"
            ),
            PriceError::UnknownField(name) => {
                write!(f, "unknown field `{name}`: expected one of {}", FIELDS.join(", "))
            }
            PriceError::Twice(field) => write!(f, "`{field}` is given twice"),
            PriceError::Missing(field) => write!(f, "`{field}` is missing"),
            PriceError::Amount { field, value, problem } => {
                write!(f, "`{field}`: `{value}` is ")?;
                f.write_str(match problem {
                    AmountProblem::NotANumber => "not an amount of dollars, such as 3 or 0.25",
                    AmountProblem::TooLarge => "too large",
                })
            }
        }
    }
}

impl std::error::Error for PriceError {}

/// Parses `12.34` exactly. Fractions of a nano-dollar are rounded up, because prices are upper
/// bounds.
pub(super) fn nano_usd(text: &str) -> Result<NanoUsd, AmountProblem> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err(AmountProblem::NotANumber);
    }
    // Only ASCII digits are left, so any byte position is a character boundary.
    let (nanos, rest) = part.split_at(part.len().min(9));
    let nanos = format!("{nanos:0<9}").parse::<u64>();
    let rounded_up = u64::from(rest.bytes().any(|b| b != b'0'));
    whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(1_000_000_000))
        .and_then(|whole| whole.checked_add(nanos.ok()?))
        .and_then(|whole| whole.checked_add(rounded_up))
        .map(NanoUsd)
        .ok_or(AmountProblem::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_is_parsed_exactly() {
        let price = parse_price(" in=3, out=15.5 ,cached=0.3,cache_write=3.75").unwrap();
        assert_eq!(price.input, NanoUsd(3_000_000_000));
        assert_eq!(price.output, NanoUsd(15_500_000_000));
        assert_eq!(price.cached_input, Some(NanoUsd(300_000_000)));
        assert_eq!(price.cache_write, Some(NanoUsd(3_750_000_000)));
        assert_eq!(parse_price("in=0,out=0").unwrap(), Price::default());
        assert_eq!(nano_usd("0.0000000001"), Ok(NanoUsd(1)));
        assert_eq!(nano_usd("0.0000000010"), Ok(NanoUsd(1)));
        assert_eq!(nano_usd("18446744073.709551615"), Ok(NanoUsd(u64::MAX)));
    }

    #[test]
    fn invalid_price_names_field() {
        for (text, said) in [
            (
                "",
                "price: `` is not `field=dollars`; write in=3,out=15[,cached=0.3][,cache_write=3.75][,cache_write_1h=6]",
            ),
            ("in=3", "price: `out` is missing"),
            ("out=3", "price: `in` is missing"),
            ("in=3,out=1,in=2", "price: `in` is given twice"),
            (
                "in=3,output=1",
                "price: unknown field `output`: expected one of in, out, cached, cache_write, cache_write_1h",
            ),
            ("in=3,out=", "price: `out`: `` is not an amount of dollars, such as 3 or 0.25"),
            ("in=$3,out=1", "price: `in`: `$3` is not an amount of dollars, such as 3 or 0.25"),
            ("in=1e3,out=1", "price: `in`: `1e3` is not an amount of dollars, such as 3 or 0.25"),
            ("in=3.,out=1", "price: `in`: `3.` is not an amount of dollars, such as 3 or 0.25"),
            ("in=NaN,out=1", "price: `in`: `NaN` is not an amount of dollars, such as 3 or 0.25"),
            ("in=1,out=2,cached=99999999999", "price: `cached`: `99999999999` is too large"),
            (
                "in=18446744073.7095516151,out=1",
                "price: `in`: `18446744073.7095516151` is too large",
            ),
        ] {
            assert_eq!(parse_price(text).unwrap_err().to_string(), said);
        }
    }
}

//! The setting of prompt caching.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The use of prompt caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Caching {
    /// Requests carry no marks and no key. A provider that caches by itself still does.
    #[serde(rename = "off")]
    Off,
    /// Requests carry what the provider takes, for its default lifetime of about five minutes.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// The same for a lifetime of an hour, which some providers offer at a higher price.
    #[serde(rename = "1h")]
    OneHour,
}

impl Caching {
    /// Every setting.
    pub const ALL: &[Caching] = &[Caching::Off, Caching::Auto, Caching::OneHour];

    /// Returns the setting with this name: `off`, `auto` or `1h`.
    pub fn named(name: &str) -> Option<Caching> {
        Caching::ALL.iter().copied().find(|setting| setting.as_str() == name)
    }

    /// Returns the name of the setting.
    pub const fn as_str(self) -> &'static str {
        match self {
            Caching::Off => "off",
            Caching::Auto => "auto",
            Caching::OneHour => "1h",
        }
    }
}

impl fmt::Display for Caching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

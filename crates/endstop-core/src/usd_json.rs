//! Money in JSON: a number of dollars.
//!
//! ```text
//! #[serde(rename = "cost_usd", with = "usd", default)]
//! pub cost: NanoUsd,
//! ```

/// Money as a number of dollars.
pub(crate) mod usd {
    use crate::usage::NanoUsd;
    use serde::de::{Error as _, Unexpected};
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        money: &NanoUsd,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        money.to_usd().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<NanoUsd, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        if !(0.0..=u64::MAX as f64 / 1e9).contains(&usd) {
            return Err(D::Error::invalid_value(
                Unexpected::Float(usd),
                &"a non-negative amount of dollars",
            ));
        }
        Ok(NanoUsd::from_usd(usd))
    }
}

/// Money as a number of dollars, or `null`.
pub(crate) mod optional_usd {
    use super::usd;
    use crate::usage::NanoUsd;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[derive(Deserialize)]
    struct Usd(#[serde(with = "usd")] NanoUsd);

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        money: &Option<NanoUsd>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        money.map(NanoUsd::to_usd).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<NanoUsd>, D::Error> {
        Ok(Option::<Usd>::deserialize(deserializer)?.map(|money| money.0))
    }
}

//! The parameter `cache`, for the API and the model of a request.

use super::{ModelParams, ParamError};
use crate::caching::{CachePlan, Caching, Support, has_marks, plan};
use crate::dialect::Dialect;

impl ModelParams {
    /// Returns what requests carry for prompt caching.
    pub(super) fn caching(&self, dialect: &Dialect, model: &str) -> Result<CachePlan, ParamError> {
        let support = Support::of(dialect, model);
        let setting = self.cache.unwrap_or_default();
        let hour = setting == Caching::OneHour;
        if hour && !support.hour() {
            let api = dialect.name;
            return Err(ParamError::Invalid {
                param: "cache".to_owned(),
                problem: format!(
                    "expected off or auto: {api} has no lifetime of an hour for the model `{model}`"
                ),
            });
        }
        if hour && has_marks(&self.extra) {
            return Err(ParamError::Conflict(
                "`cache` contradicts the cache marks in `extra`; remove one of them".to_owned(),
            ));
        }
        Ok(plan(setting, support, &self.extra))
    }
}

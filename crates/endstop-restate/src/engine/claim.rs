//! Checks that all workers share one store: the first worker names its store, and others must name
//! the same.

use restate_sdk::prelude::*;

/// The key of the only object.
pub(crate) const KEY: &str = "store";

const ID: &str = "id";

/// The virtual object that has the name of the store.
pub(crate) struct EndstopStore;

#[restate_sdk::object]
impl EndstopStore {
    /// Returns the store of the first worker.
    #[handler]
    async fn claim(&self, ctx: ObjectContext<'_>, id: String) -> HandlerResult<String> {
        if let Some(first) = ctx.get::<String>(ID).await? {
            return Ok(first);
        }
        ctx.set(ID, id.clone());
        Ok(id)
    }
}

//! Shared and boxed tools are tools.
//!
//! ```
//! use endstop::tool::{ReadFile, Shell, Tool};
//! use std::sync::Arc;
//! let tools: [Arc<dyn Tool>; 2] = [Arc::new(Shell::default()), Arc::new(ReadFile::default())];
//! # use endstop::{Agent, testkit::ScriptedModel};
//! let agent = Agent::builder(ScriptedModel::new([])).tools(tools).build();
//! # assert!(agent.is_ok());
//! ```

use super::{Tool, ToolContext, ToolFuture};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

macro_rules! forward {
    ($($pointer:ty)*) => {$(
        impl<T: Tool + ?Sized> Tool for $pointer {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn description(&self) -> &str {
                (**self).description()
            }
            fn schema(&self) -> Value {
                (**self).schema()
            }
            fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
                (**self).call(arguments, context)
            }
            fn parallel_safe(&self) -> bool {
                (**self).parallel_safe()
            }
            fn runs_code(&self) -> bool {
                (**self).runs_code()
            }
            fn repeatable(&self) -> bool {
                (**self).repeatable()
            }
            fn exempt_from_no_progress(&self) -> bool {
                (**self).exempt_from_no_progress()
            }
            fn background(&self) -> bool {
                (**self).background()
            }
            fn touches_machine(&self) -> bool {
                (**self).touches_machine()
            }
            fn timeout(&self) -> Option<Duration> {
                (**self).timeout()
            }
            fn timeout_argument(&self) -> Option<&str> {
                (**self).timeout_argument()
            }
        }
    )*};
}

forward!(Arc<T> Box<T>);

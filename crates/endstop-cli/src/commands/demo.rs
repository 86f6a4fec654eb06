//! demo
use crate::args::DemoArgs;
use crate::{Failure, Result};
pub(crate) fn run(_: &DemoArgs, _: bool) -> Result {
    Err(Failure::usage("no demo yet"))
}

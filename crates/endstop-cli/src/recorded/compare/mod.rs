//! Reads recorded runs for `endstop compare`.

mod policy;
mod reading;

pub(crate) use reading::{Compared, policies, sets};

//! Tables of providers, models and prices.

pub mod models;
pub mod prices;
pub mod providers;

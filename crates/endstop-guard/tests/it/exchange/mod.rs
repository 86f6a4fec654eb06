//! The pure part: routes, requests, threads, answers and caps.

mod client;
mod places;
mod routes;
mod samples;

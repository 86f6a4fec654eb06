//! The pure part: routes, requests, threads, answers and caps.

mod answers;
mod caps;
mod client;
mod hostile;
mod places;
mod routes;
mod samples;
mod tails;

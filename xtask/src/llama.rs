//! A real small model: fetched once into a cache, served by a real llama-server on loopback.

pub(crate) fn run(_args: &[String]) -> Result<(), String> {
    Err("not written yet".to_owned())
}

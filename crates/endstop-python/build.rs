//! Lets the module link on macOS, where it finds Python's symbols only when it is loaded.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // maturin passes these arguments as well; `cargo build --workspace` does not.
    if env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "macos") {
        println!("cargo::rustc-cdylib-link-arg=-undefined");
        println!("cargo::rustc-cdylib-link-arg=dynamic_lookup");
    }
}

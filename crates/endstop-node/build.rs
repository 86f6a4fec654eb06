//! Lets the module link on macOS and Windows, where it finds Node's symbols only when it is loaded.

fn main() {
    napi_build::setup();
}

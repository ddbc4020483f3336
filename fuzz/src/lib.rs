//! What the fuzz targets check. `cargo test` replays the kept corpus through the same functions:
//! the tests of `longhaul-wire`, `longhaul-session` and `longhaul-relay` include these files.

pub mod relay;
pub mod session;
pub mod wire;

//! What the fuzz targets check. `cargo test` replays the kept corpus through the same functions:
//! the tests of `longhaul-wire` and `longhaul-session` include these files.

pub mod session;
pub mod wire;

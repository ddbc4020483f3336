//! Name and version of this implementation.

/// What each end calls itself.
pub(crate) const IMPLEMENTATION: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

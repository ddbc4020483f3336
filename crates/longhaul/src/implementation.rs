//! Name and version of this implementation.

/// Name that each end gives itself.
pub(crate) const IMPLEMENTATION: &str = concat!("longhaul/", env!("CARGO_PKG_VERSION"));

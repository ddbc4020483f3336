//! The C interface of a client of gateways: include/longhaul_relay.h describes it.
//!
//! It needs nothing of Longhaul but the relay and its client side. The crate's own code is the
//! translation between the two languages (`words`) and a blocking `connect` (`blocking`).

mod blocking;
mod dial;
mod route;
mod words;

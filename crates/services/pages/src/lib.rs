//! Pages about a service for who watches it: metrics and more, over HTTP, on a thread of their own.
//!
//! It keeps few connections, each for a short time, and none that asks for nothing from those who ask. What
//! is on the pages is up to the service; nobody has to prove anything to read them.
//!
//! ```
//! use longhaul_pages::{Pages, metrics_page};
//! use prometheus_client::{metrics::counter::ConstCounter, registry::Registry};
//!
//! let pages = Pages::start("127.0.0.1:0".parse()?, |_| {
//!     axum::Router::new().route("/metrics", axum::routing::get(async || {
//!         let mut registry = Registry::with_prefix("example");
//!         registry.register("done", "Things that were done", ConstCounter::new(7u64));
//!         metrics_page(&registry)
//!     }))
//! })?;
//! println!("http://{}/metrics", pages.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod metrics;
mod pages;

pub use metrics::{encode, metrics_page};
pub use pages::Pages;

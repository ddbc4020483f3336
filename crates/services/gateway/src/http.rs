//! Status and metrics over HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use longhaul_pages::metrics_page;
use longhaul_sys::threads;
use tokio::sync::oneshot;

use crate::status::Status;
use crate::status_source::StatusSource;

/// Metrics are for all who reach the address; clients and targets are named on this host only.
pub(crate) fn router(source: StatusSource, from: SocketAddr) -> Router {
    let metrics = source.clone();
    let router = Router::new().route(
        "/metrics",
        get(async move || status(metrics).await.map(|all| metrics_page(&all.metrics()))),
    );
    if !from.ip().to_canonical().is_loopback() {
        return router;
    }
    router.route("/status", get(async move || status(source).await.map(axum::Json)))
}

/// Runs what takes moments on a thread of its own: tokio panics where its own cannot be had.
async fn status(source: StatusSource) -> Result<Status, (StatusCode, String)> {
    let (done, all) = oneshot::channel();
    // One who left does not take it.
    let asked = threads::spawn("gateway-status", move || drop(done.send(source.status())));
    let failed = |error: String| (StatusCode::SERVICE_UNAVAILABLE, error);
    asked.map_err(|error| failed(error.to_string()))?;
    all.await.map_err(|error| failed(error.to_string()))
}

//! REST, described by OpenAPI 3.1 at `/openapi.json`.
//!
//! Handlers translate times and names to ticks and numbers, have the [`Service`] decide, and read
//! its view. None holds the view across an await.

mod accept;
mod auth;
mod bookings;
mod candidate_paths;
mod connection_table;
mod description;
mod feeds;
mod input;
mod limited;
mod network;
mod ownership;
mod planning;
mod problem;
mod quotes;
mod reasons;
mod recur;
mod translate;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use tokio::sync::{oneshot, watch};

pub use self::auth::Tokens;
pub use self::description::document;
use self::problem::ProblemResponse;
use longhaul_sys::threads;

use crate::service::Service;

/// State that the handlers share.
#[derive(Clone)]
pub(crate) struct Site {
    service: Service,
    tokens: Arc<Tokens>,
    quotes: Arc<Mutex<quotes::Quotes>>,
    /// Requests under way, and among them those who watch.
    requests: limited::Counts,
    watchers: limited::Counts,
    rates: limited::Rates,
    /// Origin of the times of rate limits.
    started: Instant,
    /// True once those who watch must go.
    closing: watch::Receiver<bool>,
}

/// A server that runs on threads of its own.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Serves at `listener`.
    ///
    /// # Errors
    /// The operating system has no threads or no events for us.
    pub fn start(listener: TcpListener, service: Service, tokens: Tokens) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        // tokio panics without its threads.
        threads::check(WORKERS + 1)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("rest")
            .enable_io()
            .enable_time()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let (close, closing) = watch::channel(false);
        let limits = service.config().limits.clone();
        let (tokens, quotes) = (Arc::new(tokens), Arc::default());
        let (requests, watchers, rates) = Default::default();
        let (started, late) = (Instant::now(), closing.clone());
        let site = Site { service, tokens, quotes, requests, watchers, rates, started, closing };
        let thread = threads::spawn("server", move || {
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tokio::spawn(async move {
                    // That the server was dropped means the same.
                    let _ = stopped.await;
                    close.send_replace(true);
                });
                accept::serve(listener, router(site), limits, late).await;
                Ok(())
            })
        })?;
        Ok(Self { address, stop, thread })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers what has begun, and ends; who does not send the rest of a request in time is left.
    ///
    /// # Errors
    /// What made it end before.
    pub fn stop(self) -> std::io::Result<()> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the server panicked")))
    }
}

fn router(site: Site) -> Router {
    Router::new()
        .route("/v1/health", get(network::health))
        .route("/v1/topology", get(network::topology))
        .route("/v1/links", post(network::add_link))
        .route("/v1/links/{name}/availability", get(network::availability))
        .route("/v1/plan", post(planning::plan))
        .route("/v1/bookings", get(bookings::list).post(bookings::book))
        .route(
            "/v1/bookings/{id}",
            get(bookings::show).patch(bookings::modify).delete(bookings::cancel),
        )
        .route("/v1/bookings/{id}/commit", post(bookings::commit))
        .route("/v1/bookings/{id}/extend", post(bookings::extend))
        .route("/v1/bookings/{id}/release", post(bookings::release))
        .route("/v1/bookings/{id}/explain", get(planning::explain))
        .route("/v1/quotes/take", post(bookings::take))
        .route("/v1/series/{id}", delete(bookings::cancel_series))
        .route("/v1/replan", post(bookings::replan))
        .route("/v1/watch", get(feeds::watch))
        .route("/v1/usage", get(feeds::usage))
        .route("/v1/audit", get(feeds::audit))
        .route("/v1/calendar.ics", get(feeds::calendar))
        .route("/metrics", get(feeds::metrics))
        .route("/openapi.json", get(description::describe))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(site.clone(), timed))
        .layer(DefaultBodyLimit::max(input::BODY_MAX))
        .with_state(site)
}

async fn timed(State(site): State<Site>, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let status = site.service.status();
    let about_itself = request.uri().path() == "/v1/health";
    let response = match request.uri().path().starts_with("/v1/") && !about_itself {
        true if status.standby => ProblemResponse::standby(&status).into_response(),
        _ => next.run(request).await,
    };
    site.service.metrics().answered(begin.elapsed());
    response
}

async fn nothing() -> ProblemResponse {
    ProblemResponse::not_found(
        "no-such-page",
        "there is nothing here; /openapi.json tells what is where",
    )
}

async fn not_so() -> ProblemResponse {
    let detail = "this address does not take this method; /openapi.json tells which it takes";
    ProblemResponse::new(StatusCode::METHOD_NOT_ALLOWED, "method", "Not with this method", detail)
}

/// Translating and encoding is light work.
const WORKERS: usize = 2;

//! Connections: their admission, their time, and their end.

use longhaul_sys::sync::lock;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::connection_table::ConnectionTable;
use crate::service::config::Limits;

/// All connections. One whose sender is dropped has to go.
#[derive(Debug)]
pub(super) struct Connections(Mutex<ConnectionTable<oneshot::Sender<()>>>);

/// An admitted connection. Its place in the table is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    connections: Arc<Connections>,
    id: u64,
}

/// A connection that stays, since a known token asks on it.
#[derive(Debug)]
pub(super) struct Staying(Arc<Admitted>);

impl Connections {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ConnectionTable::new(most))))
    }

    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<(Arc<Admitted>, oneshot::Receiver<()>)> {
        let (kept, gone) = oneshot::channel();
        let id = self.lock().admit(address, kept)?;
        Some((Arc::new(Admitted { connections: self.clone(), id }), gone))
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable<oneshot::Sender<()>>> {
        lock(&self.0)
    }
}

impl Admitted {
    /// Keeps the connection while a request goes on; `None` if it is about to be closed.
    pub(super) fn stay(self: &Arc<Self>) -> Option<Staying> {
        self.connections.lock().begin(self.id).then(|| Staying(self.clone()))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.connections.lock().leave(self.id);
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        self.0.connections.lock().end(self.0.id);
    }
}

/// Serves connections until `closing` is true; what has begun then has a few seconds.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    mut closing: watch::Receiver<bool>,
) {
    let table = Connections::new(limits.connections.min(files_max() / 2).max(1));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            // That the server is gone means the same.
            _ = closing.wait_for(|closing| *closing) => break,
        };
        match accepted {
            Ok((stream, from)) => {
                if let Some((admitted, gone)) = table.admit(from.ip()) {
                    let (router, limits, closing) =
                        (router.clone(), limits.clone(), closing.clone());
                    connections.spawn(connection(stream, router, limits, admitted, gone, closing));
                }
            }
            // A client that went again.
            Err(error) if of_one_connection(&error) => {}
            // Descriptors or memory are used up.
            Err(_) => {
                table.lock().make_room();
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let done = async { while connections.join_next().await.is_some() {} };
    // A client that does not send the rest of a request in time is left.
    let _ = tokio::time::timeout(GRACE, done).await;
}

/// One connection, with whatever is asked on it.
async fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    admitted: Arc<Admitted>,
    gone: oneshot::Receiver<()>,
    mut closing: watch::Receiver<bool>,
) {
    // Without these it works too, only slower or with more patience.
    let _ = stream.set_nodelay(true);
    let stalled = u32::try_from(limits.stalled.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(&stream, stalled);
    let routes = TowerToHyperService::new(router);
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(admitted.clone());
        routes.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_MAX);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // What a client did wrong is its own affair.
        _ = served.as_mut() => return,
        // Others need the place.
        _ = gone => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    // A connection that was only opened would be waited for as if a request were under way.
    if !has_asked.load(Ordering::Relaxed) {
        return;
    }
    served.as_mut().graceful_shutdown();
    let _ = served.await;
}

fn of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Files that this process may have open.
fn files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Longest time a stop waits for requests that are half sent and answers that are half read.
const GRACE: Duration = Duration::from_secs(5);
/// Before the next is accepted when there is no room for it.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a head, and of a body that was read ahead.
const HEAD_MAX: usize = 64 * 1024;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use longhaul_sys::threads;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The pages. Their thread ends when this is dropped.
#[derive(Debug)]
pub struct Pages {
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Pages {
    /// Answers at `address` by what `router` has for a client of that address.
    ///
    /// # Errors
    /// It cannot be had, or there is no thread.
    pub fn start(
        address: SocketAddr,
        router: impl Fn(SocketAddr) -> Router + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || serve(&runtime, listener, router, stopped);
        let thread = threads::spawn("pages", serve)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where they are.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Nobody is left to take its failure.
            let _ = thread.join();
        }
    }
}

fn serve(
    runtime: &Runtime,
    listener: TcpListener,
    router: impl Fn(SocketAddr) -> Router,
    stopped: oneshot::Receiver<Infallible>,
) {
    runtime.block_on(async {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        tokio::select! {
            _ = stopped => {}
            () = accept(listener, router) => {}
        }
    });
}

async fn accept(listener: tokio::net::TcpListener, router: impl Fn(SocketAddr) -> Router) {
    let mut places: VecDeque<Place> = VecDeque::new();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        places.retain(|place| !place.task.is_finished());
        if places.len() >= CONNECTIONS {
            // One that asks for nothing gives way to those who come.
            let idle = places.iter().position(|place| !place.asks.load(Ordering::Relaxed));
            match idle.and_then(|idle| places.remove(idle)) {
                Some(place) => place.task.abort(),
                None => continue,
            }
        }
        let asks = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(answer(stream, router(from), asks.clone()));
        places.push_back(Place { asks, task });
    }
}

/// A connection.
#[derive(Debug)]
struct Place {
    /// A request is being answered.
    asks: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

async fn answer(stream: TcpStream, router: Router, asks: Arc<AtomicBool>) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        let (answer, asks) = (router.call(request), asks.clone());
        async move {
            asks.store(true, Ordering::Relaxed);
            let answer = answer.await;
            asks.store(false, Ordering::Relaxed);
            answer
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_MAX);
    let served = http.serve_connection(TokioIo::new(stream), service);
    // A client's faults are its own affair.
    let _ = tokio::time::timeout(ALL, served).await;
}

/// Enough for those who look.
const CONNECTIONS: usize = 16;
/// Time for the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// Time for a connection in all.
const ALL: Duration = Duration::from_secs(30);
/// Before the next is accepted when there is no descriptor for it.
const PAUSE: Duration = Duration::from_millis(100);
const HEAD_MAX: usize = 16 << 10;

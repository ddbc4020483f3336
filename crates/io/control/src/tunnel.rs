//! Connections that travel in frames inside one pair of ordered streams, such as those of ssh
//! (docs/protocol.md section 10).
//!
//! Both ends of such a connection see a TCP socket of their own host: the thread of a [`Tunnel`] has its
//! other end, and puts what it reads there into frames. Flow control is by connection, so the thread never
//! waits for one of them, and what one does not read holds up none of the others.

mod pump;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use longhaul_sys::wait::Waker;
use longhaul_wire::{Full, MAX_SSH_DATA, MAX_SSH_PORTS};

use pump::{End, Pump};

/// One end of a pair of streams that carry connections.
pub struct Tunnel {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Something that a client sends through a tunnel.
#[derive(Debug)]
pub enum Arrival {
    /// A connection, as one to the port that the server listens at.
    Connection(TcpStream),
    /// UDP ports at which its lanes begin.
    Ports(Vec<u16>),
}

struct Shared {
    waker: Waker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    orders: Vec<Order>,
    closing: bool,
    /// Why nothing goes through it any more.
    over: Option<String>,
}

/// A wish of the client for its thread.
enum Order {
    Connection(TcpStream),
    Ports(Vec<u16>),
    Report(Vec<u8>),
}

impl Tunnel {
    /// The client's end, which reads frames from `input` and writes them to `output`.
    ///
    /// # Errors
    /// The streams cannot be used without waiting, or this host has no thread left.
    pub fn client(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        Self::start((input, output), End::Client, || {})
    }

    /// The client's end at a host that was asked to be one of another server: its frames come by the `input`
    /// from who asked, behind whose end `ended` is called.
    ///
    /// # Errors
    /// As of [`Self::client`].
    pub fn of_asked(
        input: OwnedFd,
        output: OwnedFd,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start((input, output), End::Client, ended)
    }

    /// The server's end. Connections go to `arrived`; `ended` is called when `input` has ended.
    ///
    /// # Errors
    /// As of [`Self::client`].
    pub fn server(
        input: OwnedFd,
        output: OwnedFd,
        arrived: impl FnMut(Arrival) + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start((input, output), End::Server(Box::new(arrived)), ended)
    }

    /// The same, whose connections go on to that port of this host.
    ///
    /// # Errors
    /// As of [`Self::client`].
    pub fn to_port(
        input: OwnedFd,
        output: OwnedFd,
        port: u16,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start((input, output), End::Port(port), ended)
    }

    fn start(
        streams: (OwnedFd, OwnedFd),
        end: End,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { waker: Waker::new()?, state: Mutex::default() });
        let pump = Pump::new(streams, end, shared.clone())?;
        let work = move || {
            pump.run();
            ended();
        };
        let thread = Some(threads::spawn("tunnel", work)?);
        Ok(Self { shared, thread })
    }

    /// A connection to the server.
    ///
    /// # Errors
    /// Nothing goes through any more, and why; or those of sockets.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let (near, far) = pair()?;
        self.order(Order::Connection(far))?;
        Ok(near)
    }

    /// Says at which UDP ports of this host lanes begin.
    ///
    /// # Errors
    /// Nothing goes through any more, and why; or there are too many.
    pub fn announce(&self, ports: Vec<u16>) -> io::Result<()> {
        if ports.len() > MAX_SSH_PORTS {
            return Err(io::Error::other(Full));
        }
        self.order(Order::Ports(ports))
    }

    /// Says something to who asked, in the order of the calls. Waits where much has not gone yet.
    ///
    /// # Errors
    /// Nothing goes through any more, and why.
    pub fn report(&self, bytes: &[u8]) -> io::Result<()> {
        for bytes in bytes.chunks(MAX_SSH_DATA) {
            while lock(&self.shared.state).orders.len() >= ORDERS_MAX {
                std::thread::sleep(MOMENT);
            }
            self.order(Order::Report(bytes.to_vec()))?;
        }
        Ok(())
    }

    fn order(&self, order: Order) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        if let Some(reason) = &state.over {
            return Err(io::Error::other(reason.clone()));
        }
        state.orders.push(order);
        drop(state);
        self.shared.waker.wake();
        Ok(())
    }

    /// Lets go of both streams as soon as all that was sent is on its way, after a second at most.
    /// Returns at once; dropping waits for it.
    pub fn close(&self) {
        lock(&self.shared.state).closing = true;
        self.shared.waker.wake();
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Both ends of a TCP connection within this host. Others who connect meanwhile are sent away.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let own = near.local_addr()?;
    loop {
        let (far, from) = listener.accept()?;
        if from == own {
            return Ok((near, far));
        }
    }
}

/// Orders that wait before who reports does.
const ORDERS_MAX: usize = 16;
const MOMENT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;

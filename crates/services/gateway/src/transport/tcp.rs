//! TCP by the kernel (Phoebus section 4.1).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use longhaul_sys::tcp::{self, TcpOptions, TcpState};
use longhaul_units::{Bytes, Duration, Rate};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{Direction, Listener, Segment, SegmentSettings, Statistics, Transport};

/// The transport `tcp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn judge(&self, settings: &SegmentSettings) -> io::Result<Option<String>> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        apply(&socket, settings)?;
        let Some(wanted) = buffer(settings) else { return Ok(None) };
        let memory = tcp::memory(&socket)?;
        // The kernel gives twice what is asked for, and uses half of it for its own account.
        let given = memory.send_max.min(memory.receive_max) / 2;
        Ok((given < wanted.into()).then(|| {
            format!(
                "{} of each buffer are wanted, and this host gives {}: net.core.wmem_max and \
                 rmem_max limit those who are not CAP_NET_ADMIN",
                Bytes::new(wanted.into()),
                Bytes::new(given)
            )
        }))
    }

    fn listen(
        &self,
        address: SocketAddr,
        settings: &SegmentSettings,
    ) -> io::Result<Box<dyn Listener>> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            // One listener, one family: an address is what it looks like.
            socket.set_only_v6(true)?;
        }
        // The kernel hands buffers and congestion control on to what is accepted.
        apply(&socket, settings)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Box::new(TcpListener { socket }))
    }

    fn dial(
        &self,
        address: SocketAddr,
        settings: &SegmentSettings,
    ) -> io::Result<Box<dyn Segment>> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
        apply(&socket, settings)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(error)
            }
            _ => Ok(Box::new(TcpSegment {
                socket,
                connected: false,
                settings: settings.clone(),
                is_limited: false,
            })),
        }
    }
}

/// Sets what every segment has, and what is wished for it.
fn apply(socket: &Socket, settings: &SegmentSettings) -> io::Result<()> {
    let mut options = TcpOptions::default();
    options.nodelay = true;
    // A connection that did not end cleanly ends as a reset, also when this process is killed.
    options.reset_on_close = true;
    options.keep_alive = Some(IDLE_BEFORE_PROBE);
    options.congestion_control = settings.congestion_control.clone();
    options.buffer = buffer(settings);
    options.pacing_rate = settings.rate;
    options.apply(socket)
}

/// The buffers to be set: those that the operator wants, or a bandwidth-delay product for which the
/// kernel's own sizing does not suffice.
fn buffer(settings: &SegmentSettings) -> Option<u32> {
    let needed = settings.bandwidth_delay_product();
    let most = buffer_limits();
    let needed = needed.filter(|needed| *needed > most.send_max.min(most.receive_max));
    let needed = needed.map(|needed| u32::try_from(needed).unwrap_or(u32::MAX).min(BUFFER_MAX));
    settings.buffer.or(needed)
}

fn buffer_limits() -> tcp::SocketMemory {
    static LIMITS: OnceLock<tcp::SocketMemory> = OnceLock::new();
    *LIMITS.get_or_init(tcp::buffer_limits)
}

#[derive(Debug)]
struct TcpListener {
    socket: Socket,
}

impl Listener for TcpListener {
    fn accept(&self) -> io::Result<Option<(Box<dyn Segment>, SocketAddr)>> {
        let (socket, peer) = match self.socket.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_transient(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(true)?;
        let peer = peer.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let segment = TcpSegment {
            socket,
            connected: true,
            settings: SegmentSettings::default(),
            is_limited: false,
        };
        Ok(Some((Box::new(segment), peer)))
    }

    fn change(&self, settings: &SegmentSettings) -> io::Result<()> {
        apply(&self.socket, settings)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        address(self.socket.local_addr()?)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Nothing waits, or what waited is gone: the next one may be fine.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}

#[derive(Debug)]
struct TcpSegment {
    socket: Socket,
    connected: bool,
    settings: SegmentSettings,
    /// Its buffers are held below what the settings have.
    is_limited: bool,
}

impl Segment for TcpSegment {
    fn connected(&mut self) -> io::Result<bool> {
        if self.connected {
            return Ok(true);
        }
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => self.connected = true,
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => return Err(error),
        }
        Ok(self.connected)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        address(self.socket.local_addr()?)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        ready(rustix::io::read(&self.socket, buffer))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        ready(rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL))
    }

    fn shut_down(&mut self, direction: Direction) -> io::Result<()> {
        let shut = self.socket.shutdown(match direction {
            Direction::Reading => Shutdown::Read,
            Direction::Writing => Shutdown::Write,
        });
        match shut {
            // A connection that broke has a better reason.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                Err(self.socket.take_error()?.unwrap_or(error))
            }
            shut => shut,
        }
    }

    fn end_is_acknowledged(&mut self) -> io::Result<bool> {
        // A reset closes the connection, too.
        self.check()?;
        Ok(tcp::info(&self.socket)?.end_is_acknowledged())
    }

    fn change(&mut self, settings: &SegmentSettings) -> io::Result<()> {
        let mut now = settings.clone();
        if self.is_limited {
            (now.buffer, now.rtt) = (None, None);
        }
        apply(&self.socket, &now)?;
        self.settings = settings.clone();
        Ok(())
    }

    fn pace(&mut self, rate: Rate) -> io::Result<()> {
        let mut options = TcpOptions::default();
        options.pacing_rate = Some(rate);
        options.apply(&self.socket)
    }

    fn limit_memory(&mut self, bytes: Option<u64>) -> io::Result<()> {
        let Some(bytes) = bytes else {
            if std::mem::take(&mut self.is_limited) {
                // An older kernel keeps the limit until the session ends.
                let _ = tcp::limit_memory(&self.socket, None);
                apply(&self.socket, &self.settings)?;
            }
            return Ok(());
        };
        let wanted = buffer(&self.settings).map_or(u64::MAX, |bytes| 2 * u64::from(bytes));
        let bytes = u32::try_from(bytes.min(wanted)).unwrap_or(u32::MAX);
        tcp::limit_memory(&self.socket, Some(bytes))?;
        self.is_limited = true;
        Ok(())
    }

    fn memory_max(&self) -> u64 {
        match buffer(&self.settings) {
            // Two of them, each doubled by the kernel.
            Some(bytes) => 4 * u64::from(bytes),
            None => buffer_limits().receive_max + buffer_limits().send_max,
        }
    }

    fn transport(&self) -> &'static str {
        Tcp.name()
    }

    fn congestion_control(&self) -> io::Result<String> {
        tcp::congestion_control(&self.socket)
    }

    fn statistics(&self) -> io::Result<Statistics> {
        let info = tcp::info(&self.socket)?;
        if info.state == TcpState::CLOSE {
            // The kernel closes it also when both ends have come, with data that nobody has read yet.
            return Err(io::ErrorKind::NotConnected.into());
        }
        let memory = tcp::memory(&self.socket)?;
        Ok(Statistics {
            memory: memory.held,
            buffers: [memory.receive_max, memory.send_max],
            rtt: info.rtt,
            bytes_sent: info.bytes_acknowledged,
            bytes_received: info.bytes_received,
            bytes_resent: info.bytes_resent,
            silence: if info.is_waiting() { info.since_acknowledgement } else { Duration::ZERO },
        })
    }

    fn check(&mut self) -> io::Result<()> {
        // The socket's error is asked for only where it is closed: on a path that is dark for a while
        // it has one which passes.
        match tcp::info(&self.socket)?.state {
            TcpState::CLOSE => self.socket.take_error()?.map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    fn payload_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

fn address(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// `None` where the kernel says that the call would block.
pub(crate) fn ready(outcome: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// With three probes a third of it apart a silent peer is given up after a minute.
const IDLE_BEFORE_PROBE: Duration = Duration::from_secs(30);
/// A C `int` counts the kernel's bytes, which are twice these.
const BUFFER_MAX: u32 = 1 << 30;
/// As many connections as the kernel lets wait by default.
const BACKLOG: i32 = 4096;

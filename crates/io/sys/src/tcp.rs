//! TCP by the kernel: options of a connection and what the kernel knows of it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use longhaul_units::Rate;
use socket2::{SockRef, TcpKeepalive};

use crate::sockopt;

/// Options of a connection, or of a listener for the connections it accepts. The default asks
/// for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpOptions {
    /// The congestion control by name; [`crate::host::Machine`] lists those allowed.
    pub congestion_control: Option<String>,
    /// Send small writes at once.
    pub nodelay: bool,
    /// Give up when sent data stays unacknowledged for this long (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Not ready for writing while more than these bytes wait unsent: bounds what is committed to
    /// one of several connections (`TCP_NOTSENT_LOWAT`).
    pub unsent_max: Option<u32>,
    /// Most payload bytes of a segment, in both directions where it is set before the socket connects.
    pub segment_max: Option<u32>,
    /// Bytes that may wait in each direction, in place of what the kernel thinks right; beyond the
    /// limits of `net.core` where the process has `CAP_NET_ADMIN`.
    pub buffer: Option<u32>,
    /// Most that the kernel sends, payload bits per second (`SO_MAX_PACING_RATE`).
    pub pacing_rate: Option<Rate>,
    /// Notice that an idle peer is gone: it is asked after this long without a packet, then three
    /// times, a third of it apart.
    pub keep_alive: Option<Duration>,
    /// Reset the connection when it is closed, also when the process is killed, instead of ending
    /// it as if everything had been sent (`SO_LINGER` of 0 s).
    pub reset_on_close: bool,
}

impl TcpOptions {
    /// Sets the options on `socket`.
    ///
    /// # Errors
    /// `NotFound` for a congestion control that the kernel does not have, `PermissionDenied` for
    /// one that is not for everybody.
    pub fn apply(&self, socket: impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(&socket);
        if let Some(name) = &self.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if self.nodelay {
            socket.set_tcp_nodelay(true)?;
        }
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        if let Some(bytes) = self.segment_max {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            sockopt::set_int(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes)?;
        }
        if let Some(bytes) = self.unsent_max {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(rate) = self.pacing_rate {
            // 32 bits are what kernels before 5.0 take; all take 64.
            let rate = (rate.as_bps() / 8).max(1).to_ne_bytes();
            sockopt::set_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)?;
        }
        if let Some(idle) = self.keep_alive {
            let probes = TcpKeepalive::new()
                .with_time(idle)
                .with_interval((idle / 3).max(Duration::from_secs(1)))
                .with_retries(3);
            socket.set_tcp_keepalive(&probes)?;
        }
        if self.reset_on_close {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        if let Some(bytes) = self.buffer {
            // The kernel doubles it, to have room for its own accounts.
            set_buffers(socket.as_fd(), bytes)?;
        }
        Ok(())
    }
}

/// Kernel memory of a socket, as it accounts for it itself (`SO_MEMINFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Bytes that it holds now: received, to be sent, and reserved.
    pub held: u64,
    /// Most bytes that may wait to be read.
    pub receive_max: u64,
    /// Most bytes that may wait to be sent or acknowledged.
    pub send_max: u64,
}

/// Reads `SO_MEMINFO`; one system call.
pub fn memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    let mut bytes = [0; 36];
    sockopt::bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes)?;
    Ok(parse_memory(&bytes))
}

fn parse_memory(bytes: &[u8; 36]) -> SocketMemory {
    let (words, _) = bytes.as_chunks::<4>();
    let word = |index: usize| u64::from(u32::from_ne_bytes(words[index]));
    // What is reserved falls below zero while the kernel borrows from itself.
    let reserved = i64::from(i32::from_ne_bytes(words[4]));
    // SK_MEMINFO_RMEM_ALLOC, _FWD_ALLOC, _WMEM_QUEUED and _BACKLOG of include/uapi/linux/sock_diag.h.
    let held = (word(0) + word(5) + word(7)).saturating_add_signed(reserved);
    SocketMemory { held, receive_max: word(1), send_max: word(3) }
}

/// Limits what the kernel may hold for `socket` to about `bytes` in each direction; `None` leaves it
/// to the kernel again, where that can be taken back (Linux 5.15).
pub fn limit_memory(socket: impl AsFd, bytes: Option<u32>) -> io::Result<()> {
    let fd = socket.as_fd();
    let Some(bytes) = bytes else {
        return sockopt::set_int(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0);
    };
    // The kernel doubles what it is given, and has a least value of its own.
    set_buffers(fd, bytes / 2)
}

/// Sets both buffers, beyond the limits of `net.core` where the process has `CAP_NET_ADMIN`.
fn set_buffers(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // It is doubled in a C `int`.
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
    for (by_force, plain) in
        [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)]
    {
        let set = |name| sockopt::set_int(fd, libc::SOL_SOCKET, name, bytes);
        set(by_force).or_else(|_| set(plain))?;
    }
    Ok(())
}

/// Most bytes that the kernel lets a connection hold in each direction while it sizes its buffers
/// itself (`net.ipv4.tcp_rmem` and `tcp_wmem`).
pub fn buffer_limits() -> SocketMemory {
    let last = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        text.split_whitespace().last().and_then(|bytes| bytes.parse().ok())
    };
    SocketMemory {
        held: 0,
        receive_max: last("tcp_rmem").unwrap_or(6 << 20),
        send_max: last("tcp_wmem").unwrap_or(4 << 20),
    }
}

/// The name of the congestion control that drives `socket`.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// State of a connection in the kernel (`TCP_INFO`). Counters are of the connection's life, and
/// zero where the kernel is too old to keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// Phase of the connection's life.
    pub state: TcpState,
    /// Time since the last acknowledgement came.
    pub since_acknowledgement: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// The least round-trip time of late.
    pub rtt_min: Duration,
    /// Payload bytes of a segment sent.
    pub segment: u32,
    /// Congestion window in segments.
    pub congestion_window: u32,
    /// Number of timeouts that had the oldest segment sent again since anything was acknowledged.
    pub timeouts: u32,
    /// Each segment has a timestamp in its header (RFC 7323).
    pub timestamps: bool,
    /// Segments sent that are not acknowledged.
    pub unacknowledged: u32,
    /// Segments sent again.
    pub segments_resent: u32,
    /// Segments sent, with those sent again.
    pub segments_sent: u32,
    /// Bytes sent again.
    pub bytes_resent: u64,
    /// Bytes acknowledged by the peer.
    pub bytes_acknowledged: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Bytes written that were never sent.
    pub bytes_unsent: u32,
    /// Goodput of late, as the sender measured it.
    pub delivery_rate: Rate,
    /// The rate it paces at; [`Rate::MAX`] when it does not.
    pub pacing_rate: Rate,
    /// Time with data to send.
    pub busy: Duration,
    /// Of that, time held up by the peer's receive window: the receiver was the bottleneck.
    pub limited_by_receiver: Duration,
    /// Of that, time held up by the own send buffer.
    pub limited_by_send_buffer: Duration,
}

impl TcpInfo {
    /// Everything that was sent, the end included, is in the peer's kernel.
    pub const fn end_is_acknowledged(&self) -> bool {
        matches!(self.state, TcpState::FIN_WAIT_2 | TcpState::TIME_WAIT | TcpState::CLOSE)
    }

    /// Bytes wait for the peer: sent and not acknowledged, or not sent.
    pub const fn is_waiting(&self) -> bool {
        self.unacknowledged > 0 || self.bytes_unsent > 0
    }
}

/// Phase of a connection's life, as include/net/tcp_states.h numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpState(pub u8);

impl TcpState {
    /// Both directions are open.
    pub const ESTABLISHED: Self = Self(1);
    /// This side's end is acknowledged, the peer's has not come.
    pub const FIN_WAIT_2: Self = Self(5);
    /// Both directions ended; the kernel answers late packets.
    pub const TIME_WAIT: Self = Self(6);
    /// Over.
    pub const CLOSE: Self = Self(7);
}

/// Reads `TCP_INFO`; one system call.
pub fn info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut bytes = [0; INFO_LEN];
    sockopt::bytes(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    Ok(parse(&bytes))
}

/// Picks from `struct tcp_info` of include/uapi/linux/tcp.h, which only ever grows at its end.
fn parse(bytes: &[u8; INFO_LEN]) -> TcpInfo {
    let u32_at = |offset: usize| {
        let mut value = [0; 4];
        value.copy_from_slice(&bytes[offset..offset + 4]);
        u32::from_ne_bytes(value)
    };
    let u64_at = |offset: usize| {
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[offset..offset + 8]);
        u64::from_ne_bytes(value)
    };
    let micros = |value: u64| Duration::from_micros(value);
    let rate = |bytes: u64| Rate::from_bps(bytes.saturating_mul(8));
    TcpInfo {
        state: TcpState(bytes[0]),
        since_acknowledgement: Duration::from_millis(u32_at(56).into()),
        timeouts: bytes[2].into(),
        timestamps: bytes[5] & TIMESTAMPS != 0,
        segment: u32_at(16),
        unacknowledged: u32_at(24),
        rtt: micros(u32_at(68).into()),
        rtt_variation: micros(u32_at(72).into()),
        congestion_window: u32_at(80),
        segments_resent: u32_at(100),
        pacing_rate: rate(u64_at(104)),
        bytes_acknowledged: u64_at(120),
        bytes_received: u64_at(128),
        segments_sent: u32_at(136),
        bytes_unsent: u32_at(144),
        rtt_min: match u32_at(148) {
            NO_SAMPLE => Duration::ZERO,
            value => micros(value.into()),
        },
        delivery_rate: rate(u64_at(160)),
        busy: micros(u64_at(168)),
        limited_by_receiver: micros(u64_at(176)),
        limited_by_send_buffer: micros(u64_at(184)),
        bytes_resent: u64_at(208),
    }
}

/// Payload bytes of a segment that every host takes (RFC 9293, section 3.7.1).
pub const SEGMENT_LEAST: u32 = 536;
/// `TCPI_OPT_TIMESTAMPS` of `tcpi_options`.
const TIMESTAMPS: u8 = 1;

/// `tcpi_min_rtt` before the first sample.
const NO_SAMPLE: u32 = u32::MAX;

/// Up to `tcpi_bytes_retrans`, of Linux 4.19.
const INFO_LEN: usize = 216;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn options_are_set_and_inherited() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reno = TcpOptions {
            congestion_control: Some("reno".into()),
            nodelay: true,
            user_timeout: Some(Duration::from_secs(7)),
            unsent_max: Some(65536),
            segment_max: Some(1_000),
            buffer: Some(100_000),
            pacing_rate: Some(Rate::from_mbps(80)),
            keep_alive: Some(Duration::from_secs(30)),
            reset_on_close: true,
        };
        reno.apply(&listener).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        reno.apply(&client).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for stream in [&client, &accepted] {
            assert_eq!(congestion_control(stream).unwrap(), "reno");
            assert!(stream.nodelay().unwrap());
            let socket = SockRef::from(stream);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(7)));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
            assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        }
        // Each tells the other.
        assert!([&client, &accepted].iter().all(|end| info(end).unwrap().segment <= 1_000));
        assert_eq!(SockRef::from(&client).tcp_notsent_lowat().unwrap(), 65536);
        assert_eq!(SockRef::from(&client).recv_buffer_size().unwrap(), 200_000);
    }

    #[test]
    fn a_connection_holds_no_more_than_it_may() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for end in [&client, &accepted] {
            limit_memory(end, Some(100_000)).unwrap();
            let memory = memory(end).unwrap();
            assert_eq!((memory.receive_max, memory.send_max), (100_000, 100_000));
        }
        client.set_nonblocking(true).unwrap();
        while client.write(&[7; 10_000]).is_ok() {}
        let held = memory(&client).unwrap().held + memory(&accepted).unwrap().held;
        assert!((50_000..400_000).contains(&held), "{held}");
        assert!(buffer_limits().receive_max > 100_000 && buffer_limits().send_max > 100_000);
    }

    #[test]
    fn reserved_memory_below_zero_is_no_huge_amount() {
        let mut bytes = [0; 36];
        bytes[0..4].copy_from_slice(&10_000u32.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-4_000i32).to_ne_bytes());
        assert_eq!(parse_memory(&bytes).held, 6_000);
        bytes[0..4].copy_from_slice(&1_000u32.to_ne_bytes());
        assert_eq!(parse_memory(&bytes).held, 0);
    }

    #[test]
    fn unknown_congestion_control_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = congestion_control(&listener).unwrap();
        let unknown =
            TcpOptions { congestion_control: Some("nosuch".into()), ..Default::default() };
        let error = unknown.apply(&listener).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(congestion_control(&listener).unwrap(), name);
        TcpOptions::default().apply(&listener).unwrap();
    }

    #[test]
    fn info_counts_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        client.write_all(&[7; 10_000]).unwrap();
        accepted.read_exact(&mut [0; 10_000]).unwrap();
        accepted.write_all(b"done").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        let info = info(&client).unwrap();
        assert_eq!((info.bytes_acknowledged, info.bytes_received), (10_001, 4), "SYN counts");
        assert!(info.segment > 500 && info.congestion_window > 0 && info.segments_sent > 1);
        assert!(info.rtt > Duration::ZERO && info.rtt_min < Duration::from_secs(10));
        assert_eq!((info.segments_resent, info.bytes_resent, info.timeouts), (0, 0, 0));
    }

    #[test]
    fn an_end_is_acknowledged_once_the_peer_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(info(&client).unwrap().state, TcpState::ESTABLISHED);
        assert!(!info(&client).unwrap().end_is_acknowledged());
        client.shutdown(std::net::Shutdown::Write).unwrap();
        accepted.read_to_end(&mut Vec::new()).unwrap();
        // The peer's kernel may take a moment.
        while !info(&client).unwrap().end_is_acknowledged() {
            std::thread::yield_now();
        }
        drop(accepted);
    }

    #[test]
    fn a_connection_that_is_dropped_is_reset_where_that_was_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let reset = TcpOptions { reset_on_close: true, ..Default::default() };
        reset.apply(&client).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        drop(client);
        let error = accepted.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn fields_lie_where_the_kernel_puts_them() {
        let mut bytes = [0; INFO_LEN];
        bytes[68..72].copy_from_slice(&1500u32.to_ne_bytes());
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[160..168].copy_from_slice(&125u64.to_ne_bytes());
        bytes[104..112].copy_from_slice(&u64::MAX.to_ne_bytes());
        let info = parse(&bytes);
        assert_eq!(info.rtt, Duration::from_micros(1500));
        assert_eq!(info.rtt_min, Duration::ZERO);
        assert_eq!(info.delivery_rate, Rate::from_kbps(1));
        assert_eq!(info.pacing_rate, Rate::MAX);
    }
}

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use libc::c_int;

use super::address::{Family, RawAddress};
use super::control::ControlWriter;
use super::{PAYLOAD_MAX, SLICES_MAX, UdpSocket, Wait};

/// Where a datagram goes, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The peer; none on a connected socket.
    pub to: Option<SocketAddr>,
    /// The local address to send from; none leaves it to the system. An answer leaves from where
    /// its question arrived ([`super::Received::to`]).
    pub from: Option<IpAddr>,
    /// The traffic class byte (DSCP and ECN); none takes the socket's.
    pub traffic_class: Option<u8>,
}

impl Route {
    /// To the peer of a connected socket.
    pub const CONNECTED: Self = Self { to: None, from: None, traffic_class: None };

    /// To `peer`.
    pub const fn to(peer: SocketAddr) -> Self {
        Self { to: Some(peer), ..Self::CONNECTED }
    }

    /// The same, from `source`.
    pub const fn from(self, source: Option<IpAddr>) -> Self {
        Self { from: source, ..self }
    }

    /// The same, with `class` as traffic class byte.
    pub const fn with_traffic_class(self, class: u8) -> Self {
        Self { traffic_class: Some(class), ..self }
    }
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's send buffer is full; [`UdpSocket::wait_writable`] tells when it is not.
    #[error("the socket's send buffer is full")]
    WouldBlock,
    /// A queue below the socket is full (`ENOBUFS`). Waiting for the socket does not help;
    /// sending slower does. Connected sockets alone hear of it ([`UdpSocket::connect`]), and not of
    /// queues that take a packet to drop another one (fq_codel), nor of what is dropped of a
    /// super-packet that a queue cuts (TBF, if its burst is shorter).
    #[error("a queue of this host's network stack is full")]
    NoBuffers,
    /// A datagram exceeds the MTU of the outgoing device.
    #[error("the datagram is larger than the outgoing device takes")]
    TooLarge,
    /// More bytes, datagrams or slices than one call takes, or datagrams of no bytes.
    #[error("not a valid super-packet")]
    Invalid,
    /// Anything else: no route, no permission, interface down.
    #[error(transparent)]
    Io(io::Error),
}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> Self {
        match error {
            SendError::WouldBlock => Self::from(io::ErrorKind::WouldBlock),
            SendError::NoBuffers => Self::from_raw_os_error(libc::ENOBUFS),
            SendError::TooLarge => Self::from_raw_os_error(libc::EMSGSIZE),
            SendError::Invalid => Self::from(io::ErrorKind::InvalidInput),
            SendError::Io(error) => error,
        }
    }
}

impl UdpSocket {
    /// Sends `payload` as datagrams of `segment` bytes, the last may be shorter; as one datagram
    /// when `segment` is none. Returns the bytes sent: all of them, or whole datagrams from the
    /// front when the socket filled up in the middle and the kernel does not cut.
    ///
    /// At most [`PAYLOAD_MAX`] bytes, [`SLICES_MAX`] slices, and
    /// [`super::Capabilities::segments_max`] datagrams. Slices and datagrams need not coincide.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent then.
    pub fn send(
        &self,
        route: &Route,
        payload: &[IoSlice<'_>],
        segment: Option<u16>,
        wait: Wait,
    ) -> Result<usize, SendError> {
        let total: usize = payload.iter().map(|slice| slice.len()).sum();
        if total > PAYLOAD_MAX || payload.len() > SLICES_MAX {
            return Err(SendError::Invalid);
        }
        let Some(size) = segment.filter(|size| usize::from(*size) < total) else {
            return if segment == Some(0) {
                Err(SendError::Invalid)
            } else {
                self.send_message(route, payload, None, wait).map_err(classify)
            };
        };
        let most = usize::from(self.capabilities.segments_max);
        if size == 0 || total.div_ceil(usize::from(size)) > most {
            return Err(SendError::Invalid);
        }
        if !self.cuts.load(Ordering::Relaxed) {
            return self.send_each(route, payload, size, wait);
        }
        match self.send_message(route, payload, Some(size), wait) {
            // EIO: the device lacks checksum offload, or IPsec is in the way. EINVAL: likewise,
            // or, before Linux 6.14, a segment above the MTU, which sending one by one tells.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                let sent = self.send_each(route, payload, size, wait)?;
                self.cuts.store(false, Ordering::Relaxed);
                Ok(sent)
            }
            result => result.map_err(classify),
        }
    }

    /// One `sendmsg`.
    fn send_message(
        &self,
        route: &Route,
        payload: &[IoSlice<'_>],
        segment: Option<u16>,
        wait: Wait,
    ) -> io::Result<usize> {
        let envelope = Envelope::new(route, segment, self.family);
        // `IoSlice` is guaranteed to have the layout of `iovec`.
        let header = envelope.header(payload.as_ptr().cast(), payload.len());
        self.past_icmp(|| {
            loop {
                // SAFETY: every pointer in `header` is to memory that outlives the call: the caller's
                // slices, and the name and control bytes of `envelope`. `sendmsg` reads only.
                let sent = unsafe { libc::sendmsg(self.raw_fd(), &header, wait.flags()) };
                if sent >= 0 {
                    return Ok(sent as usize);
                }
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        })
    }

    /// Does what the kernel does with `UDP_SEGMENT`, by `sendmmsg` of a few datagrams at a time.
    fn send_each(
        &self,
        route: &Route,
        payload: &[IoSlice<'_>],
        size: u16,
        wait: Wait,
    ) -> Result<usize, SendError> {
        let envelope = Envelope::new(route, None, self.family);
        let mut cutter = Cutter { rest: payload, offset: 0 };
        let mut sent = 0;
        loop {
            let mut vectors = [NO_VECTOR; VECTORS];
            let mut messages: [libc::mmsghdr; MESSAGES] = [EMPTY_MESSAGE; MESSAGES];
            let (mut count, mut used) = (0, 0);
            while count < MESSAGES {
                let Some(taken) = cutter.next(usize::from(size), &mut vectors[used..]) else {
                    break;
                };
                messages[count].msg_hdr = envelope.header(&raw const vectors[used], taken);
                used += taken;
                count += 1;
            }
            match (count, cutter.rest.is_empty()) {
                (0, true) => return Ok(sent),
                // One datagram of more slices than there is room for.
                (0, false) => return Err(SendError::Invalid),
                _ => {}
            }
            let done = match self.send_messages(&mut messages[..count], wait) {
                Ok(done) => done,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(classify(error)),
            };
            sent += messages[..done].iter().map(|message| message.msg_len as usize).sum::<usize>();
            if done < count {
                return Ok(sent);
            }
        }
    }

    /// Sends from the front, as far as the kernel takes them; at least one, or an error.
    fn send_messages(&self, messages: &mut [libc::mmsghdr], wait: Wait) -> io::Result<usize> {
        let mut done = 0;
        while done < messages.len() {
            let rest = &mut messages[done..];
            let sent = self.past_icmp(|| {
                // SAFETY: `rest` is that many headers, made by `send_each` with pointers to the
                // caller's slices, to `vectors` and to `envelope`, all of which outlive the call.
                let sent = unsafe {
                    let count = rest.len() as libc::c_uint;
                    libc::sendmmsg(self.raw_fd(), rest.as_mut_ptr(), count, wait.flags())
                };
                if sent > 0 { Ok(sent as usize) } else { Err(io::Error::last_os_error()) }
            });
            match sent {
                Ok(sent) => done += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    pub(super) fn raw_fd(&self) -> c_int {
        self.socket.as_raw_fd()
    }
}

impl Wait {
    pub(super) fn flags(self) -> c_int {
        match self {
            Self::No => libc::MSG_DONTWAIT,
            Self::UntilReady => 0,
        }
    }
}

/// Name and control messages of an outgoing message.
struct Envelope {
    name: Option<RawAddress>,
    control: ControlWriter,
}

impl Envelope {
    fn new(route: &Route, segment: Option<u16>, family: Family) -> Self {
        let mut control = ControlWriter::new();
        if let Some(size) = segment {
            control.segment(size);
        }
        if let Some(source) = route.from {
            let interface = match route.to {
                Some(SocketAddr::V6(to)) => to.scope_id(),
                _ => 0,
            };
            control.source(source, family, interface);
        }
        if let Some(class) = route.traffic_class {
            let v4 = match route.to {
                Some(to) => to.is_ipv4(),
                None => family == Family::V4,
            };
            control.traffic_class(class, v4);
        }
        Self { name: route.to.map(|to| RawAddress::new(to, family)), control }
    }

    /// A header with `count` vectors at `vectors`; valid while those and `self` live.
    fn header(&self, vectors: *const libc::iovec, count: usize) -> libc::msghdr {
        let mut header = EMPTY_MESSAGE.msg_hdr;
        if let Some(name) = &self.name {
            header.msg_name = name.bytes.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len;
        }
        header.msg_iov = vectors.cast_mut();
        header.msg_iovlen = count as _;
        let control = self.control.as_bytes();
        if !control.is_empty() {
            header.msg_control = control.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len() as _;
        }
        header
    }
}

/// Walks through slices datagram by datagram.
struct Cutter<'a, 'b> {
    rest: &'a [IoSlice<'b>],
    /// Bytes of the first slice that are done.
    offset: usize,
}

impl Cutter<'_, '_> {
    /// Describes the next datagram of up to `size` bytes in `vectors` and returns how many were
    /// used; none at the end, or, without moving on, when it needs more vectors than that.
    fn next(&mut self, size: usize, vectors: &mut [libc::iovec]) -> Option<usize> {
        let (mut rest, mut offset) = (self.rest, self.offset);
        let (mut missing, mut used) = (size, 0);
        while let (Some(slice), true) = (rest.first(), missing > 0) {
            let part = &slice[offset..];
            let take = part.len().min(missing);
            if take > 0 {
                let vector = vectors.get_mut(used)?;
                vector.iov_base = part.as_ptr().cast_mut().cast();
                vector.iov_len = take;
                used += 1;
                missing -= take;
            }
            offset += take;
            if offset == slice.len() {
                (rest, offset) = (&rest[1..], 0);
            }
        }
        (self.rest, self.offset) = (rest, offset);
        (used > 0).then_some(used)
    }
}

fn classify(error: io::Error) -> SendError {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => SendError::WouldBlock,
        Some(libc::ENOBUFS) => SendError::NoBuffers,
        Some(libc::EMSGSIZE) => SendError::TooLarge,
        _ => SendError::Io(error),
    }
}

/// Datagrams and slices per `sendmmsg`: 4 KiB of stack in all.
const MESSAGES: usize = 32;
const VECTORS: usize = 128;

const NO_VECTOR: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

// SAFETY: null pointers, zero lengths and no flags make a valid, empty `mmsghdr`.
const EMPTY_MESSAGE: libc::mmsghdr = unsafe { std::mem::zeroed() };

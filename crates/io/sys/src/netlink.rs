//! Conversations with the kernel by rtnetlink (RFC 3549, include/uapi/linux/rtnetlink.h): requests,
//! what becomes of them, and lists.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netdevice::name_to_index;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::sockopt::set_int;

/// A conversation with the kernel about the devices of the namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    /// Of the next request.
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // No protocol means number 0, which is NETLINK_ROUTE.
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        // An error comes with a text where the kernel has one, and repeats no more than a header.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            set_int(socket.as_fd(), libc::SOL_NETLINK, option, 1)?;
        }
        Ok(Self { socket, sequence: 1 })
    }

    /// The number of a device.
    pub(crate) fn index(&self, device: &str) -> Result<u32, Errno> {
        name_to_index(&self.socket, device)
    }

    /// Sends a request and waits for the kernel's verdict.
    pub(crate) fn ask(&mut self, request: Request) -> io::Result<()> {
        self.ask_all(&mut [request]).remove(0)
    }

    /// Sends requests, each of which is carried out after those before it, whatever became of them;
    /// returns the verdict on each. Up to [`AT_ONCE`] are one call of the kernel.
    pub(crate) fn ask_all(&mut self, requests: &mut [Request]) -> Vec<io::Result<()>> {
        let mut verdicts = Vec::with_capacity(requests.len());
        for part in requests.chunks_mut(AT_ONCE) {
            let mut answers: Vec<_> = part.iter().map(|_| None).collect();
            let broken = self.converse(part, &mut answers).err().unwrap_or(Errno::NOMSG);
            verdicts.extend(answers.into_iter().map(|answer| answer.unwrap_or(Err(broken.into()))));
        }
        verdicts
    }

    /// Until the last verdict is there.
    fn converse(
        &mut self,
        requests: &mut [Request],
        answers: &mut [Option<io::Result<()>>],
    ) -> Result<(), Errno> {
        let first = self.send(requests)?;
        let mut answer = [0; ANSWER_MAX];
        while answers.last().is_some_and(Option::is_none) {
            let (length, _) =
                retry_on_intr(|| recv(&self.socket, &mut answer, RecvFlags::empty()))?;
            let mut rest = &answer[..length];
            while let Some(message) = Message::next(&mut rest) {
                // What was asked before a conversation broke may be answered now.
                if let Some(verdict) =
                    answers.get_mut(message.sequence.wrapping_sub(first) as usize)
                {
                    *verdict = Some(message.verdict());
                }
            }
        }
        Ok(())
    }

    /// Sends a request for a list, and shows each entry to `seen`: what follows its header.
    pub(crate) fn list(&mut self, request: Request, seen: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let sequence = self.send(&mut [request])?;
        let mut answer = vec![0; LIST_MAX];
        loop {
            let (length, _) =
                retry_on_intr(|| recv(&self.socket, &mut answer[..], RecvFlags::empty()))?;
            let mut rest = &answer[..length];
            while let Some(message) = Message::next(&mut rest) {
                match i32::from(message.kind) {
                    _ if message.sequence != sequence => {}
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return message.verdict(),
                    _ => seen(message.body),
                }
            }
        }
    }

    /// Sends requests, and returns the number of the first.
    fn send(&mut self, requests: &mut [Request]) -> Result<u32, Errno> {
        let first = self.sequence;
        let mut bytes = Vec::new();
        for request in requests {
            let length = request.bytes.len() as u32;
            request.bytes[..4].copy_from_slice(&length.to_ne_bytes());
            request.bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend_from_slice(&request.bytes);
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(first)
    }
}

/// Message of the kernel.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    /// Bytes behind its header.
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Takes the first of several.
    fn next(rest: &mut &'a [u8]) -> Option<Self> {
        let header = rest.first_chunk::<HEADER>()?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let [length, sequence] = [0, 8].map(|at| word(header, at));
        let message = Self {
            kind: half(4),
            flags: half(6),
            sequence: sequence?,
            body: rest.get(HEADER..length? as usize)?,
        };
        *rest = rest.get((length? as usize).next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }

    /// Reads an NLMSG_ERROR message, whose error is zero for success.
    fn verdict(&self) -> io::Result<()> {
        let error = word(self.body, 0).filter(|_| i32::from(self.kind) == libc::NLMSG_ERROR);
        match error.ok_or(io::ErrorKind::InvalidData)?.cast_signed() {
            0 => Ok(()),
            error => {
                let error = io::Error::from_raw_os_error(-error);
                Err(match self.words() {
                    Some(words) => io::Error::new(error.kind(), words),
                    None => error,
                })
            }
        }
    }

    /// Why an error is one, behind the error and the request's header.
    fn words(&self) -> Option<String> {
        let more = self.body.get(4 + HEADER..).filter(|_| self.flags & NLM_F_ACK_TLVS != 0)?;
        let text = String::from_utf8_lossy(attribute(more, NLMSGERR_ATTR_MSG)?).into_owned();
        Some(text.trim_end_matches(['\0', '.']).to_owned()).filter(|text| !text.is_empty())
    }
}

/// The number that is at some place.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Contents of an attribute of that kind, in a row of attributes.
pub(crate) fn attribute(mut row: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [a, b, c, d] = *row.first_chunk()?;
        let (length, kind) = (u16::from_ne_bytes([a, b]).into(), u16::from_ne_bytes([c, d]));
        let held = row.get(4..length)?;
        if kind & NLA_TYPE_MASK == wanted {
            return Some(held);
        }
        row = row.get(usize::next_multiple_of(length, 4)..)?;
    }
}

/// A request under construction; length and number are filled in when it is sent.
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    pub(crate) fn new(kind: u16, flags: libc::c_int) -> Self {
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self { bytes }
    }

    pub(crate) fn attribute(&mut self, kind: u16, data: &[u8]) {
        self.nested(kind, |request| request.bytes.extend(data));
    }

    pub(crate) fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.attribute(kind, &v4.octets()),
            IpAddr::V6(v6) => self.attribute(kind, &v6.octets()),
        }
    }

    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    pub(crate) fn text(&mut self, kind: u16, text: &str) {
        self.nested(kind, |request| {
            request.bytes.extend(text.as_bytes());
            request.bytes.push(0);
        });
    }

    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// struct nlmsghdr.
const HEADER: usize = 16;
/// Without the flags of nesting and byte order.
const NLA_TYPE_MASK: u16 = 0x3fff;
/// Of include/uapi/linux/netlink.h, these two.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// The answers to so many requests fit into a socket that nobody has given more room.
const AT_ONCE: usize = 64;
/// An error with what it says.
const ANSWER_MAX: usize = 4096;
/// As much of a list as the kernel tells at once.
const LIST_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut request = Request::new(16, 0);
        request.nested(18, |inner| inner.text(1, "veth"));
        let bytes = &request.bytes[HEADER..];
        assert_eq!(bytes[..8], [16, 0, 18, 0, 9, 0, 1, 0]);
        assert_eq!(&bytes[8..], b"veth\0\0\0\0");
    }

    #[test]
    fn lists_and_attributes_are_taken_apart() {
        let mut message = Request::new(libc::RTM_NEWQDISC, 0);
        message.text(1, "htb");
        message.nested(7 | 0x8000, |inner| inner.number(3, 42));
        message.bytes[0] = message.bytes.len() as u8;
        message.bytes[8] = 9;
        let two = [&message.bytes[..], &message.bytes[..]].concat();
        let mut rest = &two[..];
        for _ in 0..2 {
            let message = Message::next(&mut rest).unwrap();
            assert_eq!((message.kind, message.sequence), (libc::RTM_NEWQDISC, 9));
            let row = message.body;
            assert_eq!(attribute(row, 1), Some(&b"htb\0"[..]));
            assert_eq!(attribute(attribute(row, 7).unwrap(), 3), Some(&42u32.to_ne_bytes()[..]));
            assert_eq!(attribute(row, 2), None);
        }
        assert!(Message::next(&mut rest).is_none());
        assert!(Message::next(&mut &two[..10]).is_none());
    }

    #[test]
    fn verdicts_are_read() {
        let verdict = |kind: i32, flags, body: &[u8]| {
            Message { kind: kind as u16, flags, sequence: 1, body }.verdict()
        };
        assert!(verdict(libc::NLMSG_ERROR, 0, &[0; 20]).is_ok());
        assert!(verdict(libc::NLMSG_ERROR, 0, &[0; 3]).is_err());
        assert!(verdict(libc::NLMSG_DONE, 0, &[0; 20]).is_err());
        let mut refused = (-libc::EEXIST).to_ne_bytes().to_vec();
        refused.extend([0; HEADER]);
        refused.extend([11, 0, 1, 0]);
        refused.extend(b"No way\0\0");
        let error = verdict(libc::NLMSG_ERROR, NLM_F_ACK_TLVS, &refused).unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (io::ErrorKind::AlreadyExists, "No way"));
        let error = verdict(libc::NLMSG_ERROR, 0, &refused).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    }
}

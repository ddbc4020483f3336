//! Both carriers (protocol.md 4, 5, 8) as far as an attacker needs them: one lane, nothing sent
//! again, and whatever he likes in frames and headers.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use longhaul_wire::{Frame, Frames, Protect};

use crate::bytes::Bytes;
use crate::keys::{Carried, Keys};
use crate::tls::{Link, is_early};

/// A frame, a packet or an end that came.
#[derive(Debug)]
pub enum Came {
    Stream {
        offset: u64,
        data: Vec<u8>,
    },
    /// So many bytes of stream 0 may be sent.
    Limit(u64),
    Object {
        object: u32,
        offset: u64,
        payload: Vec<u8>,
    },
    Close(u16, String),
    Ended,
}

pub enum Carrier {
    Udp(Udp),
    Tcp(Tcp),
}

impl Carrier {
    pub fn frames(&mut self, frames: &[u8]) {
        match self {
            Self::Udp(udp) => {
                udp.control(frames);
                if udp.stream_frames.is_empty() {
                    // A server accepts nothing before it is known that UDP fits: PING, and padding.
                    let mut padded = frame(1, &[]);
                    padded.resize(1_200 - 36, 0);
                    udp.control(&padded);
                    udp.stream_frames.push(padded);
                }
                udp.stream_frames.push(frames.to_vec());
            }
            Self::Tcp(tcp) => tcp.record(1, frames),
        }
    }

    pub fn object(&mut self, object: u32, offset: u64, payload: &[u8]) {
        match self {
            Self::Udp(udp) => udp.object(object, offset, payload),
            Self::Tcp(tcp) => tcp.object(object, offset, payload),
        }
    }

    /// Promises memory for so many object bytes in all.
    pub fn credit(&mut self, credit: u64) {
        match self {
            Self::Udp(udp) => udp.credit = credit,
            Self::Tcp(_) => {}
        }
        self.feedback(credit);
    }

    fn feedback(&mut self, credit: u64) {
        match self {
            Self::Udp(udp) => udp.feedback(),
            Self::Tcp(tcp) => tcp.record(1, &feedback(credit, &[0; 4], 0, None)),
        }
    }

    /// Takes everything that has come within `patience`.
    pub fn take(&mut self, patience: Duration) -> Vec<Came> {
        match self {
            Self::Udp(udp) => udp.take(patience),
            Self::Tcp(tcp) => tcp.take(patience),
        }
    }
}

/// A frame of any type.
pub fn frame(kind: u64, body: &[u8]) -> Vec<u8> {
    Bytes::new().varint(kind).sized(body).0
}

/// A STREAM frame.
pub fn stream(stream: u64, offset: u64, last: bool, data: &[u8]) -> Vec<u8> {
    frame(7, &Bytes::new().varint(stream).varint(offset).u8(u8::from(last)).raw(data).0)
}

/// FEEDBACK with what was received; of none on TCP.
fn feedback(credit: u64, times: &[u8; 4], bytes: u64, received: Option<&BTreeSet<u64>>) -> Vec<u8> {
    let empty = BTreeSet::new();
    let received = received.unwrap_or(&empty);
    let largest = received.last().copied().unwrap_or(0);
    let end = received.last().map_or(0, |last| last + 1);
    let from = received.first().copied().unwrap_or(0);
    let mut ranges = Bytes::new().varint(0);
    let (mut run, mut next) = (0, from);
    for &number in received {
        if number != next {
            ranges = ranges.varint(run).varint(number - next);
            run = 0;
        }
        run += 1;
        next = number + 1;
    }
    if run > 0 {
        ranges = ranges.varint(run);
    }
    let body = Bytes::new().varint(largest).raw(times).u32(0).varint(0);
    let body = body.varint(received.len() as u64).varint(bytes);
    // No codepoints, and no drops.
    let body = [0; 5].iter().fold(body, |body, _| body.varint(0));
    let body = body.varint(credit).varint(from).varint(end);
    frame(5, &body.sized(&ranges.0).0)
}

/// Place in an object, for OBJECT packets, and what was sealed.
type Opened = (Option<(u32, u64)>, Vec<u8>);

/// One UDP lane.
pub struct Udp {
    pub socket: UdpSocket,
    /// The peer's address; a server learns it.
    pub to: Option<SocketAddr>,
    pub connection: u32,
    pub protect: Protect,
    pub next: u64,
    pub credit: u64,
    /// Sent in place of FEEDBACK.
    pub lie: Option<Vec<u8>>,
    pub mute: bool,
    send: Keys,
    receive: Keys,
    received: BTreeSet<u64>,
    /// Their IP-layer bytes.
    received_bytes: u64,
    newest_sent: [u8; 4],
    /// Stream frames that were sent. They are sent again when nothing comes: any of them may be lost.
    stream_frames: Vec<Vec<u8>>,
    last_received: Instant,
    again: usize,
}

impl Udp {
    pub fn new(
        socket: UdpSocket,
        to: Option<SocketAddr>,
        secret: &[u8; 32],
        connection: u32,
        protect: Protect,
    ) -> Self {
        let to_client = to.is_none();
        Self {
            socket,
            to,
            connection,
            protect,
            next: 0,
            credit: 0,
            lie: None,
            mute: false,
            send: Keys::new(secret, Carried::Packets, to_client, 0),
            receive: Keys::new(secret, Carried::Packets, !to_client, 0),
            received: BTreeSet::new(),
            received_bytes: 0,
            newest_sent: [0; 4],
            stream_frames: Vec::new(),
            last_received: Instant::now(),
            again: 0,
        }
    }

    fn head(&mut self, kind: u8) -> Bytes {
        let number = self.next;
        self.next += 1;
        Bytes::new().u8(0x40 | kind).u8(0).u16(0).u32(self.connection).u64(number).u32(clock())
    }

    pub fn send(&self, datagram: &[u8]) {
        if let Some(to) = self.to {
            // A peer that is gone receives nothing.
            let _ = self.socket.send_to(datagram, to);
        }
    }

    pub fn control(&mut self, frames: &[u8]) {
        let number = self.next;
        let head = self.head(1);
        let sealed = self.send.seal(number, &head.0, frames);
        self.send(&head.raw(&sealed).0);
    }

    pub fn object(&mut self, object: u32, offset: u64, payload: &[u8]) {
        for (i, piece) in payload.chunks(1_000).enumerate() {
            let number = self.next;
            let head = self.head(2).u32(object).u64(offset.wrapping_add(i as u64 * 1_000));
            let sealed = self.send.seal_object(self.protect, number, &head.0, piece);
            self.send(&head.raw(&sealed).0);
        }
    }

    fn feedback(&mut self) {
        // There is no report of nothing.
        if self.mute || self.received.is_empty() {
            return;
        }
        let report = match &self.lie {
            Some(lie) => lie.clone(),
            None => {
                feedback(self.credit, &self.newest_sent, self.received_bytes, Some(&self.received))
            }
        };
        let state = frame(3, &Bytes::new().varint(0).varint(0).0);
        self.control(&[state, report].concat());
    }

    fn take(&mut self, patience: Duration) -> Vec<Came> {
        let mut came = Vec::new();
        let mut answers = Vec::new();
        let mut buffer = vec![0; 65_536];
        let mut wait = patience;
        while came.len() < 1_000 {
            self.socket.set_read_timeout(Some(wait)).unwrap();
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if is_early(&error) => break,
                Err(_) => continue,
            };
            wait = Duration::from_micros(100);
            let Some((kind, body)) = self.open(&buffer[..len]) else { continue };
            self.to = Some(from);
            match kind {
                Some((object, offset)) => came.push(Came::Object { object, offset, payload: body }),
                None => answers.push(read_frames(&body, &mut came)),
            }
            if self.received.len().is_multiple_of(32) {
                self.feedback();
            }
        }
        let answers = answers.concat();
        if !answers.is_empty() && !self.mute {
            self.control(&answers);
        }
        if came.is_empty() {
            self.send_again();
        } else {
            self.last_received = Instant::now();
        }
        if !came.is_empty() || !answers.is_empty() {
            self.feedback();
        }
        came
    }

    fn send_again(&mut self) {
        if self.last_received.elapsed() < SILENCE || self.again == 20 || self.mute {
            return;
        }
        self.last_received = Instant::now();
        self.again += 1;
        for frames in self.stream_frames.clone() {
            self.control(&frames);
        }
    }

    /// Its place, if it is of an object, and its body.
    fn open(&mut self, datagram: &[u8]) -> Option<Opened> {
        let head = datagram.first_chunk::<20>()?;
        let number = u64::from_be_bytes(head[8..16].try_into().unwrap());
        let opened = if head[0] == 0x42 {
            let (head, rest) = datagram.split_at_checked(32)?;
            let body = self.receive.open_object(self.protect, number, head, rest)?;
            let object = u32::from_be_bytes(head[20..24].try_into().unwrap());
            let offset = u64::from_be_bytes(head[24..32].try_into().unwrap());
            (Some((object, offset)), body)
        } else {
            (None, self.receive.open(number, head, &datagram[20..])?)
        };
        if self.received.last().is_none_or(|last| *last < number) {
            self.newest_sent = head[16..].try_into().unwrap();
        }
        let is_new = self.received.insert(number);
        self.received_bytes += if is_new { datagram.len() as u64 + 28 } else { 0 };
        is_new.then_some(opened)
    }
}

/// Puts what matters in `came`; gives what is to be answered.
fn read_frames(frames: &[u8], came: &mut Vec<Came>) -> Vec<u8> {
    let mut answers = Vec::new();
    for frame_read in Frames::new(frames) {
        match frame_read.expect("the program's frames follow the protocol") {
            Frame::Stream { stream, offset, data, .. } if stream.0 == 0 => {
                came.push(Came::Stream { offset, data: data.to_vec() });
                let limit = offset + data.len() as u64 + (1 << 20);
                answers.extend(frame(9, &Bytes::new().varint(0).varint(limit).0));
            }
            Frame::StreamLimit { stream, limit } if stream.0 == 0 => came.push(Came::Limit(limit)),
            Frame::Challenge(bytes) => answers.extend(frame(15, &bytes)),
            Frame::Close { code, reason } => came.push(Came::Close(code.0, reason.into())),
            Frame::Ping => answers.push(0),
            _ => {}
        }
    }
    answers
}

/// One connection of the TCP carrier.
pub struct Tcp {
    pub link: Link,
    /// Keys to send and to receive with, where TLS has none.
    keys: Option<(Keys, Keys)>,
    sent: u64,
    taken: u64,
    received: Vec<u8>,
}

impl Tcp {
    pub fn new(link: Link, secret: &[u8; 32], to_client: bool) -> Self {
        let keys = |to_client| Keys::new(secret, Carried::Records, to_client, 0);
        let keys = matches!(link, Link::Bare(_)).then(|| (keys(to_client), keys(!to_client)));
        Self { link, keys, sent: 0, taken: 0, received: Vec::new() }
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        // A peer that hung up receives nothing.
        let _ = self.link.write_all(bytes);
        let _ = self.link.flush();
    }

    pub fn record(&mut self, kind: u8, body: &[u8]) {
        let head = Bytes::new().u8(kind).u24(body.len() as u32).0;
        let body = match &self.keys {
            Some((send, _)) => send.seal(self.sent, &head, body),
            None => body.to_vec(),
        };
        self.sent += 1;
        self.raw(&[head, body].concat());
    }

    pub fn object(&mut self, object: u32, offset: u64, payload: &[u8]) {
        let head = Bytes::new().u8(2).u24(payload.len() as u32 + 12).u32(object).u64(offset).0;
        let tag = match &self.keys {
            Some((send, _)) => object_tag(send, &head, self.sent).to_vec(),
            None => Vec::new(),
        };
        self.sent += 1;
        self.raw(&[&head, &tag, payload].concat());
    }

    fn take(&mut self, patience: Duration) -> Vec<Came> {
        let mut came = Vec::new();
        match self.link.receive(patience) {
            Some(bytes) => self.received.extend(bytes),
            None => came.push(Came::Ended),
        }
        while let Some(len) = self.read_record(&mut came) {
            self.received.drain(..len);
            self.taken += 1;
        }
        came
    }

    fn read_record(&self, came: &mut Vec<Came>) -> Option<usize> {
        let bytes = &self.received;
        let head = bytes.first_chunk::<4>()?;
        let len = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        if head[0] == 1 {
            let tag = if self.keys.is_some() { 16 } else { 0 };
            let body = bytes.get(4..4 + len + tag)?;
            let opened = match &self.keys {
                Some((_, receive)) => receive.open(self.taken, head, body).expect("authentic"),
                None => body.to_vec(),
            };
            read_frames(&opened, came);
            return Some(4 + len + tag);
        }
        let tag = if self.keys.is_some() { 8 } else { 0 };
        let payload = bytes.get(16 + tag..4 + len + tag)?;
        if let Some((_, receive)) = &self.keys {
            assert_eq!(object_tag(receive, &bytes[..16], self.taken), bytes[16..24], "authentic");
        }
        came.push(Came::Object {
            object: u32::from_be_bytes(bytes[4..8].try_into().unwrap()),
            offset: u64::from_be_bytes(bytes[8..16].try_into().unwrap()),
            payload: payload.to_vec(),
        });
        Some(4 + len + tag)
    }
}

fn object_tag(keys: &Keys, head: &[u8], number: u64) -> [u8; 8] {
    keys.header_tag(&Bytes::new().raw(head).u64(number).u64(0).0)
}

fn clock() -> u32 {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed().as_micros() as u32
}

/// After so long without a packet, frames that were sent may be lost.
const SILENCE: Duration = Duration::from_millis(400);

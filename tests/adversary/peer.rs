//! A peer that holds the token: it gets through the handshake as everybody does, and then sends
//! what its script wants, or what a tamper function makes of that.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_wire::{Carrier as Carried, Message, MessageReader, Protect};
use socket2::{Domain, Socket, Type};

use crate::bytes::Bytes;
use crate::carrier::{Came, Carrier, Tcp, Udp, stream};
use crate::keys::{TOKEN_KEY, join, key_id, proof};
use crate::oracle::BOUND;
use crate::tls::{CONTROL, DATA, Link};

/// An action that a peer is about to take.
#[derive(Clone, Debug)]
pub enum Action {
    /// Type and body of a message of stream 0.
    Message(Vec<u8>),
    /// Bytes of stream 0 as they are.
    Stream(Vec<u8>),
    Frames(Vec<u8>),
    Object {
        object: u32,
        offset: u64,
        payload: Vec<u8>,
    },
    Control(Vec<u8>),
    Pause(Duration),
    /// From now on nothing, and every connection is closed.
    HangUp,
}

/// Replaces an action that a peer is about to take.
pub type Tamper = Box<dyn FnMut(Action) -> Vec<Action> + Send>;

/// A message, data or an end that a peer receives.
#[derive(Debug)]
pub enum Received {
    Message(Message),
    Object { object: u32, offset: u64, payload: Vec<u8> },
    Close(u16, String),
    Ended,
}

/// Protection and carrier of the data.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub protect: Protect,
    pub carried: Carried,
}

/// Every pair of protection and carrier.
pub const WAYS: [Way; 6] = {
    const fn way(protect: Protect, carried: Carried) -> Way {
        Way { protect, carried }
    }
    [
        way(Protect::Aead, Carried::Udp),
        way(Protect::Integrity, Carried::Udp),
        way(Protect::Clear, Carried::Udp),
        way(Protect::Aead, Carried::Tcp),
        way(Protect::Integrity, Carried::Tcp),
        way(Protect::Clear, Carried::Tcp),
    ]
};

pub struct Peer {
    control: Link,
    pub carrier: Carrier,
    pub tamper: Option<Tamper>,
    sent_to: u64,
    /// Bytes of stream 0 that the program takes.
    limit: u64,
    received_to: u64,
    early: BTreeMap<u64, Vec<u8>>,
    reader: MessageReader,
    controlled: Vec<u8>,
    ready: VecDeque<Received>,
    pub over: bool,
    /// It is the client, which closes at the end.
    pub dialled: bool,
    /// Of a client: the proof that it joins with.
    joins: Option<Joins>,
}

/// The proof by which connections of the TCP carrier join.
struct Joins {
    ends: (Ipv4Addr, SocketAddr),
    way: Way,
    secret: [u8; 32],
    connection: u32,
}

impl Peer {
    /// A client of the program at `server`.
    pub fn dial(server: SocketAddr, way: Way) -> io::Result<Self> {
        Self::dial_from(Ipv4Addr::LOCALHOST, server, way)
    }

    /// The same from an address of its own.
    pub fn dial_from(from: Ipv4Addr, server: SocketAddr, way: Way) -> io::Result<Self> {
        let mut control = Link::client(connect(from, server)?, CONTROL)?;
        let secret = control.secret();
        let hello = hello(&secret, way);
        control.write_all(&control_message(1, &hello))?;
        let (kind, welcome) = read_control(&mut control)?;
        if kind != 2 {
            return Err(io::Error::other(format!("not welcome: {:?}", welcome.utf8_chunks())));
        }
        let connection = u32::from_be_bytes(option(&welcome, 8)?.try_into().unwrap());
        let carrier = match way.carried {
            Carried::Udp | Carried::Either => {
                let port = u16::from_be_bytes(option(&welcome, 9)?.try_into().unwrap());
                let socket = UdpSocket::bind((from, 0))?;
                let to = Some(SocketAddr::new(server.ip(), port));
                Carrier::Udp(Udp::new(socket, to, &secret, connection, way.protect))
            }
            Carried::Tcp => Carrier::Tcp(joined((from, server), way.protect, &secret, connection)?),
        };
        let whole = Self::new(control, carrier, true);
        Ok(Self { joins: Some(Joins { ends: (from, server), way, secret, connection }), ..whole })
    }

    /// Another connection of the TCP carrier, with the right proof.
    pub fn join(&self) -> io::Result<Tcp> {
        let Joins { ends, way, secret, connection } = self.joins.as_ref().unwrap();
        joined(*ends, way.protect, secret, *connection)
    }

    /// The same by a stranger that knows all but the secret.
    pub fn join_without_secret(&self) -> io::Result<Tcp> {
        let Joins { ends, way, connection, .. } = self.joins.as_ref().unwrap();
        joined(*ends, way.protect, &[7; 32], *connection)
    }

    /// The secret of its TLS session.
    pub fn secret(&self) -> [u8; 32] {
        self.control.secret()
    }

    /// Goes on over `tcp`, from the first message on; returns the carrier that was left.
    pub fn take_up(&mut self, tcp: Tcp) -> Carrier {
        (self.sent_to, self.limit, self.received_to) = (0, FIRST_LIMIT, 0);
        self.early.clear();
        self.ready.clear();
        self.reader = MessageReader::new();
        std::mem::replace(&mut self.carrier, Carrier::Tcp(tcp))
    }

    pub fn new(control: Link, carrier: Carrier, dialled: bool) -> Self {
        Self {
            control,
            carrier,
            tamper: None,
            sent_to: 0,
            limit: FIRST_LIMIT,
            received_to: 0,
            early: BTreeMap::new(),
            reader: MessageReader::new(),
            controlled: Vec::new(),
            ready: VecDeque::new(),
            over: false,
            dialled,
            joins: None,
        }
    }

    /// Performs `action`, or what the tamper function makes of it.
    pub fn perform(&mut self, action: Action) {
        let actions = match &mut self.tamper {
            Some(tamper) => tamper(action),
            None => vec![action],
        };
        for action in actions {
            if self.over {
                return;
            }
            self.perform_untampered(action);
        }
    }

    fn perform_untampered(&mut self, action: Action) {
        match action {
            Action::Message(bytes) => self.stream(&Bytes::new().sized(&bytes).0),
            Action::Stream(bytes) => self.stream(&bytes),
            Action::Frames(frames) => self.carrier.frames(&frames),
            Action::Object { object, offset, payload } => {
                self.carrier.object(object, offset, &payload);
            }
            Action::Control(bytes) => {
                let _ = self.control.write_all(&bytes);
            }
            Action::Pause(time) => thread::sleep(time),
            Action::HangUp => self.hang_up(),
        }
    }

    pub fn message(&mut self, message: Bytes) {
        self.perform(Action::Message(message.0));
    }

    /// The same, once the program has room for it on stream 0; true if it has, before `deadline`.
    pub fn message_in_turn(&mut self, message: Bytes, deadline: Instant) -> bool {
        let end = self.sent_to + message.0.len() as u64 + 8;
        while end > self.limit && !self.over && Instant::now() < deadline {
            for came in self.carrier.take(Duration::from_millis(10)) {
                self.sort(came);
            }
            self.read_control();
        }
        let has_room = end <= self.limit && !self.over;
        if has_room {
            self.message(message);
        }
        has_room
    }

    pub fn object(&mut self, object: u32, offset: u64, payload: &[u8]) {
        self.perform(Action::Object { object, offset, payload: payload.to_vec() });
    }

    fn stream(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(1_000) {
            self.carrier.frames(&stream(0, self.sent_to, false, piece));
            self.sent_to += piece.len() as u64;
        }
    }

    /// Ends as protocol.md 7.5 has it.
    pub fn done(&mut self) {
        let last = stream(0, self.sent_to, true, &[]);
        self.perform(Action::Frames(last));
    }

    /// CLOSE on the control connection.
    pub fn close(&mut self, code: u16, reason: &[u8]) {
        let body = Bytes::new().u16(code).raw(reason);
        self.perform(Action::Control(control_message(3, &body.0)));
    }

    pub fn hang_up(&mut self) {
        self.over = true;
        let _ = self.control.socket().shutdown(std::net::Shutdown::Both);
        if let Carrier::Tcp(tcp) = &self.carrier {
            let _ = tcp.link.socket().shutdown(std::net::Shutdown::Both);
        }
    }

    /// Sends nothing more, but PONG if it is `answering`, and takes nothing; true if the program ends
    /// the connection.
    pub fn falls_silent(&mut self, answering: bool) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < BOUND {
            if answering {
                self.read_control();
            } else {
                self.over |= self.control.receive(Duration::from_millis(100)).is_none();
            }
            if self.over {
                return true;
            }
        }
        false
    }

    /// The next that comes before `deadline`.
    pub fn receive(&mut self, deadline: Instant) -> Option<Received> {
        while self.ready.is_empty() && !self.over {
            if Instant::now() > deadline {
                return None;
            }
            for came in self.carrier.take(Duration::from_millis(10)) {
                self.sort(came);
            }
            self.read_control();
        }
        self.ready.pop_front()
    }

    fn sort(&mut self, came: Came) {
        match came {
            Came::Stream { offset, data } => {
                self.early.insert(offset, data);
                while let Some(entry) = self.early.first_entry()
                    && *entry.key() <= self.received_to
                {
                    let (offset, data) = entry.remove_entry();
                    let known = (self.received_to - offset) as usize;
                    if let Some(new) = data.get(known..) {
                        self.received_to += new.len() as u64;
                        self.reader.push(new);
                    }
                    while let Some(message) = self.reader.next_message().unwrap() {
                        self.ready.push_back(Received::Message(message));
                    }
                }
            }
            Came::Limit(limit) => self.limit = self.limit.max(limit),
            Came::Object { object, offset, payload } => {
                self.ready.push_back(Received::Object { object, offset, payload });
            }
            Came::Close(code, reason) => self.ready.push_back(Received::Close(code, reason)),
            Came::Ended => {
                self.over = true;
                self.ready.push_back(Received::Ended);
            }
        }
    }

    fn read_control(&mut self) {
        match self.control.receive(Duration::from_micros(500)) {
            Some(bytes) => self.controlled.extend(bytes),
            None => {
                self.over = true;
                self.ready.push_back(Received::Ended);
            }
        }
        while let Some((kind, body, len)) = cut_control(&self.controlled) {
            match kind {
                3 => {
                    let code = u16::from_be_bytes([body[0], body[1]]);
                    let reason = String::from_utf8_lossy(&body[2..]).into_owned();
                    self.ready.push_back(Received::Close(code, reason));
                }
                // Even a peer that sends nothing else shows that it lives.
                4 => drop(self.control.write_all(&control_message(5, &body))),
                _ => {}
            }
            self.controlled.drain(..len);
        }
    }
}

/// A connection that has joined.
fn joined(
    (from, server): (Ipv4Addr, SocketAddr),
    protect: Protect,
    secret: &[u8; 32],
    connection: u32,
) -> io::Result<Tcp> {
    let data = connect(from, server)?;
    let mut link = match protect {
        Protect::Clear => Link::Bare(data),
        _ => Link::client(data, DATA)?,
    };
    link.write_all(&join(secret, connection, 0))?;
    Ok(Tcp::new(link, secret, false))
}

/// A connection from that address.
pub fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Before the program says more (protocol.md 5.6).
const FIRST_LIMIT: u64 = 256 << 10;

/// The options of an honest HELLO.
pub fn hello(secret: &[u8; 32], way: Way) -> Vec<u8> {
    let proof = proof(&TOKEN_KEY, "client", secret, &[]);
    let protect = 1 + Protect::ALL.iter().position(|one| *one == way.protect).unwrap() as u8;
    let carried = 1 + Carried::ALL.iter().position(|one| *one == way.carried).unwrap() as u8;
    options(&[
        (1, &[0, 1]),
        (2, &key_id(&TOKEN_KEY)),
        (3, &proof),
        (4, &[protect]),
        (5, &[1]),
        (6, &[carried]),
        (7, &[0, 1]),
    ])
}

/// Critical options.
pub fn options(options: &[(u16, &[u8])]) -> Vec<u8> {
    let put = |bytes: Bytes, (kind, value): &(u16, &[u8])| {
        bytes.u16(0x8000 | kind).u16(value.len() as u16).raw(value)
    };
    options.iter().fold(Bytes::new(), put).0
}

pub fn control_message(kind: u8, body: &[u8]) -> Vec<u8> {
    Bytes::new().u8(kind).u24(body.len() as u32).raw(body).0
}

pub fn option(mut body: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    while let Some((head, rest)) = body.split_first_chunk::<4>() {
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if u16::from_be_bytes([head[0], head[1]]) & 0x7fff == wanted {
            return Ok(rest[..len].to_vec());
        }
        body = &rest[len..];
    }
    Err(io::Error::other(format!("option {wanted} is missing")))
}

pub fn read_control(link: &mut Link) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    link.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize];
    link.read_exact(&mut body)?;
    Ok((head[0], body))
}

fn cut_control(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let head = bytes.first_chunk::<4>()?;
    let len = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
    Some((head[0], bytes.get(4..4 + len)?.to_vec(), 4 + len))
}

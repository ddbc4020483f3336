//! Somebody on the path who sees every packet, can send any, and holds no key.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_units::{LaneId, PacketNumber};
use longhaul_wire::{ConnectionId, HEADER_LEN, Header, Kind};

use super::host;
use crate::draw::Draw;
use crate::packet::Datagram;
use crate::scenario::End;
use crate::trace::Checks;

#[derive(Debug)]
pub(super) struct Adversary {
    /// One in so many packets is answered; 0 never.
    activity: u64,
    ipv6: bool,
    draw: Draw,
    /// Packets seen, and the end that they are for.
    seen: VecDeque<(Datagram, End)>,
    /// Bytes that came from and went to each address that never answers.
    accounts: BTreeMap<SocketAddr, Account>,
}

#[derive(Debug, Default)]
struct Account {
    sent: u64,
    received: u64,
}

impl Adversary {
    pub fn new(seed: u64, activity: u64, ipv6: bool) -> Self {
        let draw = Draw::new(seed, 3);
        Self { activity, ipv6, draw, seen: VecDeque::new(), accounts: BTreeMap::new() }
    }

    /// Sees a packet for the host at `to`, before it goes on its way; perhaps sends one of its own
    /// ahead of it.
    pub fn idea(&mut self, packet: &Datagram, to: End) -> Option<Datagram> {
        if self.activity == 0 {
            return None;
        }
        if self.draw.one_in(4) {
            if self.seen.len() == MEMORY {
                self.seen.pop_front();
            }
            self.seen.push_back((packet.clone(), to));
        }
        if !self.draw.one_in(self.activity) {
            return None;
        }
        let spoofed = self.address();
        let header = packet.header()?;
        let idea = match self.draw.below(7) {
            // The same, but ahead of it and from elsewhere.
            0 => Datagram { from: spoofed, ..packet.clone() },
            1 => self.old(to)?,
            2 => Datagram { from: spoofed, ..self.old(to)? },
            // Other lanes, connections and directions have other keys.
            3 => self.old(to.peer())?,
            4 => packet.with_header(&Header { lane: LaneId(header.lane.0 ^ 1), ..header }),
            5 => {
                let connection = ConnectionId(header.connection.0 ^ 1);
                packet.with_header(&Header { connection, ..header })
            }
            _ => self.forgery(packet, &header),
        };
        Some(idea)
    }

    fn old(&mut self, to: End) -> Option<Datagram> {
        let seen: Vec<&(Datagram, End)> = self.seen.iter().filter(|(_, end)| *end == to).collect();
        if seen.is_empty() { None } else { Some(self.draw.pick(&seen).0.clone()) }
    }

    /// Another number, another time, and perhaps garbage for frames; the tag is of before, or of no
    /// key at all.
    fn forgery(&mut self, packet: &Datagram, header: &Header) -> Datagram {
        let number = match self.draw.below(3) {
            0 => header.number.get() + 1 + self.draw.below(1000),
            1 => self.draw.word() >> 2,
            _ => header.number.get().saturating_sub(1 + self.draw.below(1000)),
        };
        let number = PacketNumber::new(number);
        let header = Header { number, send_time: self.draw.word() as u32, ..*header };
        if self.draw.one_in(2) {
            return packet.with_header(&header);
        }
        let mut bytes = vec![0; HEADER_LEN + self.draw.below(1200) as usize];
        bytes.fill_with(|| self.draw.word() as u8);
        let garbage = Datagram { bytes: Arc::from(bytes), ..packet.clone() };
        garbage.with_header(&Header { kind: Kind::Control, ..header })
    }

    /// An address that hears what is sent to it and never answers.
    fn address(&mut self) -> SocketAddr {
        let port = STRANGE_PORTS + self.draw.below(3) as u16;
        SocketAddr::new(host(self.ipv6, 66), port)
    }

    /// Counts what goes to a host from one of the adversary's addresses.
    pub fn count(&mut self, packet: &Datagram) {
        if is_stranger(packet.from) {
            self.accounts.entry(packet.from).or_default().sent += packet.wire_bytes();
        }
    }

    /// Somebody answers to `to`, which is not the peer's present address.
    pub fn receive(&mut self, to: SocketAddr, wire: u64, packet: &Datagram, checks: &mut Checks) {
        if !is_stranger(to) {
            return;
        }
        let account = self.accounts.entry(to).or_default();
        account.received += wire;
        let (sent, received) = (account.sent, account.received);
        checks.require(received <= 3 * sent, || {
            format!("{to}, never proven, was sent {received} bytes for {sent}")
        });
        checks.require(!packet.is_object(), || format!("object bytes went to {to}, never proven"));
    }
}

fn is_stranger(address: SocketAddr) -> bool {
    (STRANGE_PORTS..STRANGE_PORTS + 3).contains(&address.port())
}

/// Packets that the adversary remembers.
const MEMORY: usize = 64;
/// First of the ports that no host uses.
const STRANGE_PORTS: u16 = 666;

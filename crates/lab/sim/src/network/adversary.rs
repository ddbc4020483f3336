//! Somebody on the path who sees every packet, can send any, and holds no key.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_units::LaneId;
use longhaul_wire::{ConnectionId, Header, Protect};

use super::{host, is_object};
use crate::draw::Draw;
use crate::packet::{Body, Packet};
use crate::scenario::End;
use crate::trace::Checks;

#[derive(Debug)]
pub(super) struct Adversary {
    /// One in so many packets is answered; 0 never.
    activity: u64,
    ipv6: bool,
    draw: Draw,
    /// Packets seen, and the end that they are for.
    seen: VecDeque<(Packet, End)>,
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
    pub fn idea(&mut self, packet: Packet, to: End) -> Option<Packet> {
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
        let idea = match self.draw.below(7) {
            // The same, but ahead of it and from elsewhere.
            0 => Packet { from: spoofed, ..packet },
            1 => {
                let (old, _) = self.old(to)?;
                old
            }
            2 => {
                let (old, _) = self.old(to)?;
                Packet { from: spoofed, ..old }
            }
            // Other lanes, connections and directions have other keys.
            3 => {
                let (old, meant) = self.old(to.peer())?;
                Packet { authentic: meant == to, ..old }
            }
            4 => Packet { lane: LaneId(packet.lane.0 ^ 1), authentic: false, ..packet },
            5 => {
                let connection = ConnectionId(packet.connection.0 ^ 1);
                Packet { connection, authentic: false, ..packet }
            }
            _ => self.forgery(packet),
        };
        Some(idea)
    }

    fn old(&mut self, to: End) -> Option<(Packet, End)> {
        let seen: Vec<&(Packet, End)> = self.seen.iter().filter(|(_, end)| *end == to).collect();
        if seen.is_empty() { None } else { Some((*self.draw.pick(&seen)).clone()) }
    }

    fn forgery(&mut self, packet: Packet) -> Packet {
        let number = match self.draw.below(3) {
            0 => packet.number + self.draw.below(1000),
            1 => self.draw.word() >> 2,
            _ => packet.number.saturating_sub(self.draw.below(1000)),
        };
        let mut frames = vec![0; self.draw.below(1200) as usize];
        frames.fill_with(|| self.draw.word() as u8);
        // Garbage that happens to be a header is still nothing but garbage.
        let _ = Header::parse(&frames);
        let body = if self.draw.one_in(2) { Body::Control(Arc::new(frames)) } else { packet.body };
        Packet { number, authentic: false, send_time: self.draw.word() as u32, body, ..packet }
    }

    /// An address that hears what is sent to it and never answers.
    fn address(&mut self) -> SocketAddr {
        let port = STRANGE_PORTS + self.draw.below(3) as u16;
        SocketAddr::new(host(self.ipv6, 66), port)
    }

    /// Counts what goes to a host from one of the adversary's addresses.
    pub fn count(&mut self, packet: &Packet, protect: Protect) {
        if is_stranger(packet.from) {
            self.accounts.entry(packet.from).or_default().sent += packet.wire_bytes(protect);
        }
    }

    /// Somebody answers to `to`, which is not the peer's present address.
    pub fn receive(&mut self, to: SocketAddr, wire: u64, packet: &Packet, checks: &mut Checks) {
        if !is_stranger(to) {
            return;
        }
        let account = self.accounts.entry(to).or_default();
        account.received += wire;
        let (sent, received) = (account.sent, account.received);
        checks.require(received <= 3 * sent, || {
            format!("{to}, never proven, was sent {received} bytes for {sent}")
        });
        checks.require(!is_object(packet), || format!("object bytes went to {to}, never proven"));
    }
}

fn is_stranger(address: SocketAddr) -> bool {
    (STRANGE_PORTS..STRANGE_PORTS + 3).contains(&address.port())
}

/// Packets that the adversary remembers.
const MEMORY: usize = 64;
/// First of the ports that no host uses.
const STRANGE_PORTS: u16 = 666;

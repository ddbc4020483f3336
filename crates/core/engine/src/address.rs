//! Which address the peer of a lane has, and how far it is proven (protocol.md 4.5).

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use longhaul_units::Instant;

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It dialled; it speaks first on every lane.
    Client,
    /// It listened; it answers where authentic packets come from.
    Server,
}

/// Bytes that a client sends before the server's first RESPONSE.
const CLIENT_FIRST_FLIGHT: u64 = 64 << 10;
/// The part of these that is kept for CHALLENGEs: a client whose probes and messages had used up all could
/// never ask again for a RESPONSE that was lost.
const CHALLENGES: u64 = 4 << 10;
/// Multiple of the bytes received that may be sent to an address that is not validated.
const AMPLIFICATION: u64 = 3;
/// First interval between two CHALLENGEs without RESPONSE; doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// CHALLENGEs to an address that data does not go to yet, in 20 s: then it is given up, until an
/// authentic packet comes from there again (RFC 9000, 8.2.4).
const TRIES_MAX: u32 = 8;
/// Addresses of a server that a client remembers.
const PROVEN_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Addresses {
    role: Role,
    /// Where data goes.
    current: Option<Peer>,
    /// Where authentic packets came from lately, being validated to replace `current`.
    candidate: Option<Peer>,
    /// At a client: where the server has answered on this lane, the latest last.
    proven: Vec<SocketAddr>,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    validated: bool,
    sent: u64,
    received: u64,
    challenge: [u8; 8],
    next_challenge: Option<Instant>,
    tries: u32,
}

impl Peer {
    fn new(address: SocketAddr, challenge: [u8; 8], now: Instant) -> Self {
        Self {
            address,
            validated: false,
            sent: 0,
            received: 0,
            challenge,
            next_challenge: Some(now),
            tries: 0,
        }
    }

    fn retry(&self) -> Duration {
        RETRY_FIRST.saturating_mul(1 << self.tries.min(TRIES_MAX)).min(RETRY_MAX)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next_challenge.is_some_and(|at| at <= now)
    }

    fn allowance(&self, role: Role) -> u64 {
        match (self.validated, role) {
            (true, _) => u64::MAX,
            (false, Role::Client) => CLIENT_FIRST_FLIGHT.saturating_sub(self.sent),
            (false, Role::Server) => (self.received * AMPLIFICATION).saturating_sub(self.sent),
        }
    }
}

impl Addresses {
    pub fn new(role: Role, remote: Option<SocketAddr>, challenge: [u8; 8], now: Instant) -> Self {
        let current = remote.map(|address| Peer::new(address, challenge, now));
        Self { role, current, candidate: None, proven: Vec::new() }
    }

    pub fn current(&self) -> Option<SocketAddr> {
        self.current.as_ref().map(|peer| peer.address)
    }

    pub fn is_validated(&self) -> bool {
        self.current.as_ref().is_some_and(|peer| peer.validated)
    }

    /// At a client: goes on to the server at `address`, which has to prove itself unless it has.
    pub fn go_to(&mut self, now: Instant, address: SocketAddr, challenge: [u8; 8]) {
        let mut peer = Peer::new(address, challenge, now);
        if self.proven.contains(&address) {
            peer.validated = true;
            peer.next_challenge = None;
        }
        self.current = Some(peer);
    }

    /// Bytes that may still be sent to the current address, besides CHALLENGEs.
    pub fn allowance(&self) -> u64 {
        let Some(peer) = &self.current else { return 0 };
        let allowance = peer.allowance(self.role);
        match (peer.validated, self.role) {
            (false, Role::Client) => allowance.saturating_sub(CHALLENGES),
            _ => allowance,
        }
    }

    /// Notes authentic bytes from `from`. `newest`: with a number above all before. Returns whether
    /// the packet may be used: a client does not follow a server that moves, and takes what comes from
    /// where it was itself.
    pub fn on_received(
        &mut self,
        now: Instant,
        from: SocketAddr,
        bytes: u64,
        newest: bool,
        challenge: impl FnOnce() -> [u8; 8],
    ) -> bool {
        let Some(current) = &mut self.current else {
            let mut peer = Peer::new(from, challenge(), now);
            peer.received = bytes;
            self.current = Some(peer);
            return true;
        };
        if current.address == from {
            current.received += bytes;
            return true;
        }
        if self.role == Role::Client {
            return self.proven.contains(&from);
        }
        match &mut self.candidate {
            Some(candidate) if candidate.address == from => candidate.received += bytes,
            _ if newest => {
                let mut peer = Peer::new(from, challenge(), now);
                peer.received = bytes;
                self.candidate = Some(peer);
            }
            _ => {}
        }
        true
    }

    /// A RESPONSE came from `from`. Returns whether the address in use was validated or changed.
    pub fn on_response(&mut self, from: SocketAddr, response: [u8; 8]) -> bool {
        let answers =
            |peer: &Peer| peer.address == from && peer.challenge == response && !peer.validated;
        if self.candidate.as_ref().is_some_and(answers) {
            self.current = self.candidate.take();
        } else if !self.current.as_ref().is_some_and(answers) {
            return false;
        }
        if let Some(peer) = &mut self.current {
            peer.validated = true;
            peer.next_challenge = None;
        }
        if self.role == Role::Client {
            self.proven.retain(|address| *address != from);
            if self.proven.len() == PROVEN_MAX {
                self.proven.remove(0);
            }
            self.proven.push(from);
        }
        true
    }

    /// The CHALLENGE to send now and where to.
    pub fn poll_challenge(&mut self, now: Instant, bytes: u64) -> Option<(SocketAddr, [u8; 8])> {
        let role = self.role;
        self.candidate.take_if(|peer| peer.is_due(now) && peer.tries == TRIES_MAX);
        let peers = [self.candidate.as_mut(), self.current.as_mut()];
        for peer in peers.into_iter().flatten() {
            if peer.is_due(now) && peer.allowance(role) >= bytes {
                peer.next_challenge = Some(now + peer.retry());
                peer.tries = peer.tries.saturating_add(1);
                return Some((peer.address, peer.challenge));
            }
        }
        None
    }

    /// Counts bytes sent to `to` against its allowance.
    pub fn on_sent(&mut self, to: SocketAddr, bytes: u64) {
        for peer in [self.candidate.as_mut(), self.current.as_mut()].into_iter().flatten() {
            if peer.address == to {
                peer.sent += bytes;
            }
        }
    }

    /// When the next CHALLENGE is due. An address whose allowance is used up waits for bytes.
    pub fn next_timeout(&self, bytes: u64) -> Option<Instant> {
        [self.candidate.as_ref(), self.current.as_ref()]
            .into_iter()
            .flatten()
            .filter(|peer| peer.allowance(self.role) >= bytes)
            .filter_map(|peer| peer.next_challenge)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_server_answers_a_stranger_sparingly() {
        let mut a = Addresses::new(Role::Server, None, [0; 8], Instant::ZERO);
        assert_eq!(a.allowance(), 0);
        assert!(a.on_received(Instant::ZERO, address(1), 100, true, || [1; 8]));
        assert_eq!(a.allowance(), 300);
        a.on_sent(address(1), 250);
        assert_eq!(a.poll_challenge(Instant::ZERO, 60), None);
        assert!(!a.on_response(address(2), [1; 8]));
        assert!(a.on_response(address(1), [1; 8]));
        assert_eq!(a.allowance(), u64::MAX);
    }

    #[test]
    fn the_address_changes_only_when_the_new_one_answers() {
        let mut a = Addresses::new(Role::Server, None, [0; 8], Instant::ZERO);
        a.on_received(Instant::ZERO, address(1), 100, true, || [1; 8]);
        a.on_response(address(1), [1; 8]);
        a.on_received(Instant::ZERO, address(2), 100, false, || [2; 8]);
        assert_eq!(a.poll_challenge(Instant::ZERO, 60), None);
        a.on_received(Instant::ZERO, address(2), 100, true, || [2; 8]);
        assert_eq!(a.poll_challenge(Instant::ZERO, 60), Some((address(2), [2; 8])));
        assert_eq!(a.current(), Some(address(1)));
        assert!(a.on_response(address(2), [2; 8]));
        assert_eq!(a.current(), Some(address(2)));
        assert!(a.is_validated());
    }

    #[test]
    fn an_address_that_never_answers_is_given_up() {
        let mut a = Addresses::new(Role::Server, None, [0; 8], Instant::ZERO);
        a.on_received(Instant::ZERO, address(1), 100, true, || [1; 8]);
        a.on_response(address(1), [1; 8]);
        a.on_received(Instant::ZERO, address(2), 9000, true, || [2; 8]);
        let mut asked = Vec::new();
        while let Some(due) = a.next_timeout(60) {
            asked.extend(a.poll_challenge(due, 60).map(|(to, _)| (to, due)));
        }
        assert_eq!(asked.len(), TRIES_MAX as usize);
        assert!(asked.iter().all(|(to, _)| *to == address(2)));
        assert!(asked.last().is_some_and(|(_, at)| *at < Instant::ZERO + RETRY_MAX * 5));
        assert_eq!(a.current(), Some(address(1)));
        // It may come again, and answer then.
        a.on_received(Instant::ZERO + RETRY_MAX * 9, address(2), 100, true, || [3; 8]);
        assert!(a.on_response(address(2), [3; 8]));
    }

    #[test]
    fn a_client_does_not_follow() {
        let mut a = Addresses::new(Role::Client, Some(address(1)), [0; 8], Instant::ZERO);
        assert_eq!(a.allowance(), CLIENT_FIRST_FLIGHT - CHALLENGES);
        assert!(!a.on_received(Instant::ZERO, address(2), 10, true, || [1; 8]));
    }

    #[test]
    fn a_client_that_goes_elsewhere_has_that_address_proven_once() {
        let mut a = Addresses::new(Role::Client, Some(address(1)), [1; 8], Instant::ZERO);
        a.poll_challenge(Instant::ZERO, 60);
        assert!(a.on_response(address(1), [1; 8]));
        a.go_to(Instant::ZERO, address(2), [2; 8]);
        assert!(!a.is_validated());
        // Packets in flight still come.
        assert!(a.on_received(Instant::ZERO, address(1), 10, true, || [9; 8]));
        assert_eq!(a.poll_challenge(Instant::ZERO, 60), Some((address(2), [2; 8])));
        assert!(!a.on_response(address(1), [2; 8]), "from elsewhere");
        assert!(a.on_response(address(2), [2; 8]));
        for there in [1, 2, 1] {
            a.go_to(Instant::ZERO, address(there), [3; 8]);
            assert_eq!((a.current(), a.is_validated()), (Some(address(there)), true));
            assert_eq!(a.poll_challenge(Instant::ZERO, 60), None);
        }
    }

    #[test]
    fn a_client_that_used_up_its_first_flight_asks_again_whether_the_server_is_there() {
        let mut a = Addresses::new(Role::Client, Some(address(1)), [7; 8], Instant::ZERO);
        assert!(a.poll_challenge(Instant::ZERO, 60).is_some());
        a.on_sent(address(1), a.allowance());
        assert_eq!(a.allowance(), 0);
        let due = a.next_timeout(60).unwrap();
        assert_eq!(a.poll_challenge(due, 60), Some((address(1), [7; 8])));
    }
}

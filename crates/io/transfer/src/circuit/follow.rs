//! From the wish to the tail: books, opens, follows, leaves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use longhaul_connection::{Silence, Wanted};
use longhaul_engine::Path;
use longhaul_rate_control::{Profile, Trc, Vector};
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_sys::udp::{UdpOptions, UdpSocket};
use longhaul_units::{Duration, Instant, LaneId};
use longhaul_wire::OBJECT_HEADER_LEN;

use super::{CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Shared};
use crate::buffer::lock;
use crate::carrier::Mailbox;
use crate::client::on_link_of;
use crate::connection::{LaneEnd, LaneRules, UdpLanes};
use crate::lane::LaneSocket;
use crate::protection::object_tag_len;
use crate::shared::Shared as Connection;
use crate::source::SourceDriver;

/// What the thread works with.
pub(crate) struct Follower {
    pub options: CircuitOptions,
    pub session: Arc<Session>,
    pub connection: Arc<Connection>,
    pub errand: Errand,
    /// Of the lanes that begin on the circuit.
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// The path over IP.
    pub ip: Arc<Mutex<Path>>,
    /// Where the lanes on the circuit are put.
    pub place: Arc<OnceLock<UdpLanes>>,
    /// The server's lanes over IP, and this host's address towards it.
    pub server: SocketAddr,
    pub local: IpAddr,
    pub idle_timeout: Duration,
    /// When the copy or pipe began.
    pub started: Instant,
    pub shared: Arc<Shared>,
}

/// What goes over the circuit.
pub(crate) enum Errand {
    /// A copy: as many bytes as it turns out to have.
    Copy(Arc<Connection>, Arc<SourceDriver>),
    /// What is sent into a pipe.
    Pipe(Arc<Connection>),
}

impl Errand {
    fn connection(&self) -> &Connection {
        match self {
            Self::Copy(connection, _) | Self::Pipe(connection) => connection,
        }
    }

    /// Data goes over these lanes only; before the first call over none.
    fn deal_to(&self, lanes: Range<u16>) {
        self.connection().direct(|gate| gate.deal_to(lanes));
    }

    /// Whether nothing leaves before the circuit begins.
    fn set_awaits_circuit(&self, awaits: bool) {
        self.connection().direct(|gate| gate.set_awaits_circuit(awaits));
    }

    /// Whether everything was given to the lanes, and these have sent it.
    fn is_sent(&self) -> bool {
        self.connection().is_sent()
    }
}

/// Why following ended.
enum Left {
    /// Everything is sent.
    Sent,
    /// The vector is over.
    Over,
    /// Nothing comes through.
    Dead,
    /// The copy or pipe ended.
    Stopped,
}

impl Follower {
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub fn run(self) {
        let Some(want) = self.await_want() else { return };
        if want == CircuitWant::Bytes(0) {
            return self.errand.deal_to(0..1);
        }
        match self.prepare(want) {
            Ok((sockets, booking)) => self.follow(sockets, &booking),
            Err(why) if self.options.or_ip => {
                self.shared.note(format!("no circuit: {why}; data goes over IP"));
                self.errand.deal_to(0..1);
            }
            Err(why) => self.connection.fail(format!("no circuit: {why}")),
        }
    }

    /// What to book, once known; `None` when the copy or pipe ends before.
    fn await_want(&self) -> Option<CircuitWant> {
        match &self.errand {
            Errand::Copy(connection, source) => {
                let wanted = self.options.want;
                wanted.or_else(|| self.await_size(connection, source).map(CircuitWant::Bytes))
            }
            Errand::Pipe(connection) => {
                let joined = |connection: &Connection| {
                    connection.lock().outgoing_pipe().is_none_or(|pipe| pipe.is_joined())
                };
                // Nobody knows when the other end comes: nothing is booked before.
                while !joined(connection) {
                    if self.shared.pause(GLANCE) {
                        return None;
                    }
                }
                self.options.want
            }
        }
    }

    /// Bytes to be sent.
    fn await_size(&self, connection: &Connection, source: &SourceDriver) -> Option<u64> {
        let mut seen = (Wanted::NotLess(0), clock::now());
        loop {
            let wanted = connection.lock().outgoing_copy().map(|copy| copy.wanted())?;
            if wanted != seen.0 {
                seen = (wanted, clock::now());
            }
            let settled = clock::now() - seen.1 > SIZE_PATIENCE;
            match wanted {
                Wanted::Exactly(bytes) => return Some(bytes),
                Wanted::AtMost(bytes) if settled => return Some(bytes),
                // The scan waits for room: so many files that their sizes are summed beside it.
                Wanted::NotLess(found) if settled && found > 0 => {
                    return Some(source.sum());
                }
                _ => {}
            }
            if self.shared.pause(GLANCE) {
                return None;
            }
        }
    }

    /// Sockets for the lanes, and the booking.
    fn prepare(&self, want: CircuitWant) -> Result<(Vec<LaneEnd>, CircuitBooking), String> {
        if self.session.lanes < 2 {
            return Err("the server grants no lane beside the one over IP".into());
        }
        let mut remote = self.server;
        self.options.remote.inspect(|ip| remote.set_ip(*ip));
        let local = self.options.local.unwrap_or_else(|| match (remote, self.local) {
            (SocketAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (SocketAddr::V6(_), IpAddr::V4(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (_, local) => local,
        });
        let sockets = (1..self.session.lanes).map(|lane| {
            let socket = UdpSocket::bind(on_link_of(local, remote), &UdpOptions::default())?;
            socket.connect(remote)?;
            Ok((LaneId(lane), LaneSocket::Own(socket, remote), Some(remote)))
        });
        let sockets: Vec<LaneEnd> = sockets
            .collect::<std::io::Result<_>>()
            .map_err(|error| format!("cannot send from {local} to {remote}: {error}"))?;
        let datagram = sockets.first().map_or(DATAGRAM_MAX, |(_, socket, _)| socket.datagram_max());
        let want = match want {
            CircuitWant::Bytes(bytes) => {
                let wire = self.wire_bytes(bytes, datagram.min(DATAGRAM_MAX), remote);
                CircuitWant::Bytes(wire)
            }
            other => other,
        };
        let rtt = lock(&self.ip).rtt().smoothed();
        let wish = CircuitWish { want, remote: remote.ip(), rtt };
        let booking = self.options.circuits.book(&wish)?;
        if booking.vector.ranges().is_empty() {
            let _ = self.options.circuits.release(booking.id);
            return Err("what was booked is shorter than the clocks can be told apart".into());
        }
        Ok((sockets, booking))
    }

    /// IP-layer bytes of so many object bytes in datagrams of up to `datagram` bytes.
    fn wire_bytes(&self, bytes: u64, datagram: u16, remote: SocketAddr) -> u64 {
        let ip = if remote.is_ipv6() { 48 } else { 28 };
        let overhead = OBJECT_HEADER_LEN + object_tag_len(self.session.protect);
        let payload = u64::from(datagram).saturating_sub(overhead as u64).max(1);
        let packets = bytes.div_ceil(payload);
        bytes.saturating_add(packets.saturating_mul(overhead as u64 + ip))
    }

    fn follow(&self, sockets: Vec<LaneEnd>, booking: &CircuitBooking) {
        let mut vector = booking.vector.clone();
        // Of a booking that was made before, what is over allows nothing any more.
        let found = clock::now();
        let mut renewed = found;
        if self.options.and_ip && vector.start().is_some_and(|start| start > renewed + LEAD) {
            self.errand.deal_to(0..1);
            if !self.await_start(LEAD, booking, &mut vector, &mut renewed) {
                if self.errand.is_sent() {
                    self.shared.note("everything went over IP before the circuit began".into());
                }
                return;
            }
        }
        // Groups are read and hashed by the time that the circuit opens.
        self.errand.set_awaits_circuit(true);
        self.errand.deal_to(1..self.session.lanes);
        if !self.await_start(Duration::ZERO, booking, &mut vector, &mut renewed) {
            return;
        }
        let opened = clock::now();
        let Profile { repair, feedback, heeds_receiver, .. } = *Profile::CIRCUIT;
        let (rtt, governor) = {
            let ip = lock(&self.ip);
            (ip.rtt().smoothed(), ip.governor().beside(opened, heeds_receiver))
        };
        let trc = Box::new(Trc::new(opened, vector.clone(), PACKET));
        let path = Path::new(opened, trc, governor, rtt, opened.as_nanos());
        let idle_timeout = self.idle_timeout;
        let rules = LaneRules { repair, feedback, idle_timeout, punctual: true };
        let (hub, boxes) = (self.connection.clone(), self.mailboxes.clone());
        let lanes = UdpLanes::start(&self.session, sockets, path, rules, hub, boxes);
        let lanes = match lanes {
            Ok(lanes) => {
                self.errand.set_awaits_circuit(false);
                self.place.get_or_init(|| lanes)
            }
            Err(error) => {
                self.release(booking);
                return self.connection.fail(error.to_string());
            }
        };
        let left = self.watch(lanes, booking, &mut vector, renewed);
        let end = clock::now();
        lanes.go(&self.ip, self.server, || self.way_back());
        if matches!(left, Left::Dead) {
            self.shared.note(format!(
                "nothing came through the circuit for {} s: data went on over IP",
                DEAD.as_secs()
            ));
        }
        let released = match left {
            Left::Over => None,
            Left::Sent | Left::Dead | Left::Stopped => {
                self.release(booking).then(|| clock::now() - self.started)
            }
        };
        self.shared.report(|report| {
            *report = Some(CircuitReport {
                booking: booking.id,
                booked_bytes: booking.bytes,
                allowed_bytes: vector.bytes_within(found, end),
                sent_bytes: 0,
                packets_sent: 0,
                packets_lost: 0,
                ip_bytes: 0,
                opened: opened - self.started,
                left: end - self.started,
                released,
                planned: booking.finish - self.started,
            });
        });
        // What came late is counted, too.
        while !self.shared.pause(RENEWAL) {}
        let (on_circuit, over_ip) = lanes.split();
        self.shared.report(|report| {
            if let Some(report) = report {
                report.sent_bytes = on_circuit.bytes_sent;
                report.packets_sent = on_circuit.packets_sent;
                report.packets_lost = on_circuit.lost;
                report.ip_bytes = over_ip.bytes_sent;
            }
        });
    }

    /// Until so long before the vector begins; `false` if the copy or pipe ended before, and the
    /// circuit was given back.
    fn await_start(
        &self,
        before: Duration,
        booking: &CircuitBooking,
        vector: &mut Vector,
        renewed: &mut Instant,
    ) -> bool {
        while let Some(left) = vector.start().map(|start| start - (clock::now() + before))
            && left > Duration::ZERO
        {
            if self.shared.pause(left.min(RENEWAL)) {
                self.release(booking);
                return false;
            }
            if left > RENEWAL
                && let Ok(newer) = self.options.circuits.renew(booking.id)
            {
                (*vector, *renewed) = (newer, clock::now());
            }
        }
        true
    }

    /// Until the circuit is of no more use.
    fn watch(
        &self,
        lanes: &UdpLanes,
        booking: &CircuitBooking,
        vector: &mut Vector,
        mut renewed: Instant,
    ) -> Left {
        let (mut heard, mut silence) = (0, Silence::since(clock::now()));
        let mut sent_before = false;
        loop {
            if self.shared.pause(GLANCE) {
                return Left::Stopped;
            }
            let now = clock::now();
            // Seen twice: a group may be on its way from one account to the other.
            let sent = self.errand.is_sent();
            if sent && sent_before {
                return Left::Sent;
            }
            sent_before = sent;
            if vector.end().is_none_or(|end| end <= now) {
                return Left::Over;
            }
            // Nothing is answered where nothing is under way: between ranges, or when the sink has no
            // room.
            let (received, idle) = (lanes.received(), lock(lanes.path()).in_flight() == 0);
            if received != heard || idle {
                (heard, silence) = (received, Silence::since(now));
            } else if silence.look(now) > DEAD {
                return Left::Dead;
            }
            if now - renewed > RENEWAL {
                renewed = now;
                // Unreachable for a while, it may be reached again; the vector holds all the same.
                if let Ok(newer) = self.options.circuits.renew(booking.id)
                    && newer != *vector
                {
                    let now = clock::now();
                    let trc = Box::new(Trc::new(now, newer.clone(), PACKET));
                    lock(lanes.path()).set_controller(now, trc);
                    *vector = newer;
                }
            }
        }
    }

    /// A socket on the path over IP, where that of the circuit cannot be used there.
    fn way_back(&self) -> Option<UdpSocket> {
        let remote = self.options.remote.unwrap_or(self.server.ip());
        if self.options.local.is_none() && remote.is_ipv4() == self.server.is_ipv4() {
            return None;
        }
        let socket =
            UdpSocket::bind(on_link_of(self.local, self.server), &UdpOptions::default()).ok()?;
        socket.connect(self.server).ok()?;
        Some(socket)
    }

    fn release(&self, booking: &CircuitBooking) -> bool {
        let released = self.options.circuits.release(booking.id);
        if let Err(why) = &released {
            let id = booking.id;
            self.shared.note(format!("booking {id} is not released, it ends by itself: {why}"));
        }
        released.is_ok()
    }
}

/// How often is looked whether everything is sent: what the circuit idles at most behind that is
/// twice as long.
const GLANCE: Duration = Duration::from_millis(4);
/// Without news for so long the size is as well known as it will be before data flows.
const SIZE_PATIENCE: Duration = Duration::from_millis(500);
/// How often the service is asked whether the plan is still the same, and what time it is there:
/// clocks drift apart by a millisecond or two in that time.
const RENEWAL: Duration = Duration::from_secs(20);
/// A circuit that brings no answer for so long carries nothing: set up late, or not at all.
const DEAD: Duration = Duration::from_secs(3);
/// So long before the circuit begins groups are no longer dealt to the lane over IP: reading and
/// hashing the first of the circuit takes less.
const LEAD: Duration = Duration::from_millis(200);
/// Largest packet on most circuits, for bursts.
const PACKET: u64 = 1500;
/// The largest size that the search for the path MTU tries.
const DATAGRAM_MAX: u16 = 8972;

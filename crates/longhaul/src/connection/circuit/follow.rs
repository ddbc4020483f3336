//! From the wish to the tail: books, opens, follows, leaves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use longhaul_carriers::protection::object_tag_len;
use longhaul_carriers::udp::lane::LaneSocket;
use longhaul_carriers::udp::paths::{ConnectionPaths, Ends, FIRST};
use longhaul_connection::{HostFailure, Outlook, SILENCE, Wanted};
use longhaul_engine::Path;
use longhaul_rate_control::{Profile, Trc, Vector};
use longhaul_session::Session;
use longhaul_sys::clock;
use longhaul_sys::sync::lock;
use longhaul_units::{Duration, Instant, PathId};
use longhaul_wire::OBJECT_HEADER_LEN;

use super::{
    CircuitBooking, CircuitOptions, CircuitReport, CircuitWant, CircuitWish, Circuits, Followed,
    NoCircuit, Shared,
};
use crate::connection::shared::Shared as Connection;
use crate::transfers::source::SourceDriver;

/// What the thread works with.
pub(crate) struct Follower {
    pub options: CircuitOptions,
    pub session: Arc<Session>,
    pub connection: Arc<Connection>,
    pub errand: Errand,
    /// Where the lanes are.
    pub lines: Arc<ConnectionPaths>,
    /// The path over IP.
    pub ip: Ends,
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

    /// What becomes of data from now on.
    fn set_outlook(&self, outlook: Outlook) {
        self.connection().direct(|gate| gate.set_outlook(outlook));
    }

    /// True of a copy that has given something to the lanes.
    fn has_sent(&self) -> bool {
        let mut half = self.connection().lock();
        half.outgoing_copy().is_some_and(|copy| copy.stats().sent_bytes > 0)
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

    pub fn circuits(&self) -> Arc<dyn Circuits> {
        self.options.circuits.clone()
    }

    pub fn run(self) {
        if self.options.and_ip {
            // Before the service is asked: it may be slow to answer, or never do.
            self.errand.set_outlook(Outlook::Open);
        }
        let Some(want) = self.await_want() else { return self.note_if_sent() };
        if want == CircuitWant::Bytes(0) {
            // All that there was to send may be on its way already.
            if self.options.and_ip && self.errand.has_sent() {
                self.note_all_over_ip();
            }
            return self.errand.set_outlook(Outlook::Open);
        }
        match self.prepare(want) {
            Ok((ends, booking)) => self.follow(ends, &booking),
            Err(why) if self.options.or_ip || self.options.and_ip => {
                self.shared.note(format!("no circuit: {why}; data goes over IP"));
                self.errand.set_outlook(Outlook::Open);
            }
            Err(why) => {
                self.connection.fail(HostFailure::NoCircuit(why.to_string()));
            }
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

    /// The addresses of the circuit, and the booking.
    fn prepare(&self, want: CircuitWant) -> Result<(Ends, CircuitBooking), NoCircuit> {
        if self.session.lanes < 2 {
            return Err(NoCircuit::NoLane);
        }
        let mut remote = self.ip.remote;
        self.options.remote.inspect(|ip| remote.set_ip(*ip));
        let local = self.options.local.unwrap_or_else(|| match (remote, self.ip.local) {
            (SocketAddr::V4(_), IpAddr::V6(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (SocketAddr::V6(_), IpAddr::V4(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (_, local) => local,
        });
        let ends = Ends { local, remote };
        let socket = ends.socket();
        let socket = socket.map_err(|error| NoCircuit::NoWay { local, remote, error })?;
        let datagram = LaneSocket::Own(socket, remote).datagram_max();
        let want = match want {
            CircuitWant::Bytes(bytes) => {
                let wire = self.wire_bytes(bytes, datagram.min(DATAGRAM_MAX), remote);
                CircuitWant::Bytes(wire)
            }
            other => other,
        };
        let rtt = self.rtt();
        let wish = CircuitWish { want, remote: remote.ip(), rtt };
        let booking = self.options.circuits.book(&wish)?;
        if booking.vector.ranges().is_empty() {
            let _ = self.options.circuits.release(booking.id);
            return Err(NoCircuit::TooShort);
        }
        Ok((ends, booking))
    }

    /// Round trip over IP.
    fn rtt(&self) -> Duration {
        lock(&self.lines.path(FIRST)).rtt().smoothed()
    }

    /// IP-layer bytes of so many object bytes in datagrams of up to `datagram` bytes.
    fn wire_bytes(&self, bytes: u64, datagram: u16, remote: SocketAddr) -> u64 {
        let ip = if remote.is_ipv6() { 48 } else { 28 };
        let overhead = OBJECT_HEADER_LEN + object_tag_len(self.session.protect);
        let payload = u64::from(datagram).saturating_sub(overhead as u64).max(1);
        let packets = bytes.div_ceil(payload);
        bytes.saturating_add(packets.saturating_mul(overhead as u64 + ip))
    }

    fn follow(&self, ends: Ends, booking: &CircuitBooking) {
        let mut vector = booking.vector.clone();
        // Of a booking that was made before, what is over allows nothing any more.
        let found = clock::now();
        let mut renewed = found;
        if !self.options.and_ip && !self.wait_with_groups(booking, &mut vector, &mut renewed) {
            return;
        }
        if !self.await_start(Duration::ZERO, booking, &mut vector, &mut renewed) {
            return self.note_if_sent();
        }
        let opened = clock::now();
        let circuit = self.lines.add(self.path(opened, vector.clone()), ends);
        if let Err(error) = self.lines.carry_over(circuit) {
            self.release(booking);
            return self.connection.fail(HostFailure::System(error.to_string()));
        }
        self.errand.set_outlook(Outlook::Open);
        let left = self.watch(circuit, booking, &mut vector, renewed);
        let end = clock::now();
        // The path back is as it was, whatever comes there now.
        if let Err(error) = self.lines.carry_over(FIRST) {
            self.connection.fail(HostFailure::System(error.to_string()));
        }
        if matches!(left, Left::Dead) {
            self.shared.note(format!(
                "nothing came through the circuit for {} s: data went on over IP",
                SILENCE.as_secs()
            ));
        }
        let released = match left {
            Left::Over => None,
            Left::Sent | Left::Dead | Left::Stopped => {
                self.release(booking).then(|| clock::now() - self.started)
            }
        };
        let report = CircuitReport {
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
        };
        self.shared.report(Followed { report, circuit });
    }

    /// Says where everything went, if it did before there was a circuit.
    fn note_if_sent(&self) {
        if self.options.and_ip && self.errand.is_sent() {
            self.note_all_over_ip();
        }
    }

    fn note_all_over_ip(&self) {
        self.shared.note("everything went over IP before the circuit began".into());
    }

    /// Until the circuit is about to begin; then groups are read and hashed, and wait in their lanes,
    /// on a path over IP that lets no data through: what a lane asks of a path is not lost on a circuit
    /// that is not set up yet. `false` if the copy or pipe ended before.
    fn wait_with_groups(
        &self,
        booking: &CircuitBooking,
        vector: &mut Vector,
        renewed: &mut Instant,
    ) -> bool {
        if !self.await_start(LEAD, booking, vector, renewed) {
            return false;
        }
        let waiting = self.lines.add(self.path(clock::now(), Vector::default()), self.ip);
        if let Err(error) = self.lines.carry_over(waiting) {
            self.release(booking);
            self.connection.fail(HostFailure::System(error.to_string()));
            return false;
        }
        self.errand.set_outlook(Outlook::Awaited);
        true
    }

    /// Rate control by `vector`.
    fn path(&self, now: Instant, vector: Vector) -> Path {
        let trc = Box::new(Trc::new(now, vector, PACKET));
        let ip = self.lines.path(FIRST);
        let governor = lock(&ip).governor().beside(now, Profile::CIRCUIT.heeds_receiver);
        Path::new(now, trc, governor, self.rtt(), now.as_nanos()).playing(Profile::CIRCUIT)
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
        // The service may have taken longer than the copy.
        if self.shared.pause(Duration::ZERO) {
            self.release(booking);
            return false;
        }
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
        circuit: PathId,
        booking: &CircuitBooking,
        vector: &mut Vector,
        mut renewed: Instant,
    ) -> Left {
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
            if !self.lines.lives(circuit) {
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
                    lock(&self.lines.path(circuit)).set_controller(now, trc);
                    *vector = newer;
                }
            }
        }
    }

    fn release(&self, booking: &CircuitBooking) -> bool {
        let released = self.options.circuits.release(booking.id);
        // One that is just over has nothing left to give back.
        if let Err(why) = &released
            && clock::now() < booking.finish
        {
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
/// So long before the circuit begins groups are dealt: reading and hashing the first ones takes less.
const LEAD: Duration = Duration::from_millis(200);
/// Largest packet on most circuits, for bursts.
const PACKET: u64 = 1500;
/// The largest size that the search for the path MTU tries.
const DATAGRAM_MAX: u16 = 8972;

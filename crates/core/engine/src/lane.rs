mod announced;
mod app_limited;
mod feedback;
mod liveness;
mod moves;
mod peer;
mod receive;
mod refused;
mod settle;
mod state_schedule;
mod streams;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use core::net::SocketAddr;
use core::time::Duration;

use longhaul_rate_control::{DeliveryMeter, HostLimit, ReceiverState};
use longhaul_units::{Extent, Instant, ObjectId, PacketNumber, PathId, Rate, StreamId};
use longhaul_wire::{
    AEAD_TAG_LEN, BASE_DATAGRAM, CloseCode, HEADER_LEN, MAX_REASON, OBJECT_HEADER_LEN,
    ReceiverBounds,
};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::address::Addresses;
use crate::address::Role;
use crate::config::LaneConfig;
use crate::event::{Closed, Event};
use crate::lane_paths::{Carried, LanePaths};
use crate::ledger::Ledger;
use crate::mtu::MtuSearch;
use crate::outbox::{Gone, Outbox};
use crate::path::{Path, Suspension};
use crate::reception::Reception;
use crate::repair::{self, Policy};
use crate::stats::LaneStats;
use announced::Announced;
use app_limited::AppLimited;
use liveness::Liveness;
use moves::Asks;
use peer::Peer;
use state_schedule::StateSchedule;
use streams::Stream;

pub use refused::NotSent;
pub use streams::StreamError;
pub use transmit::{Plan, Transmit, What};

/// One lane of a connection: everything about it but payload, keys, sockets and clocks.
///
/// # Contract
/// Methods are of four kinds. Time never goes backwards between calls.
///
/// - *In*: [`accepts`](Self::accepts) before a packet is opened, then
///   [`handle_objects`](Self::handle_objects) or [`handle_control`](Self::handle_control) once it
///   authenticated; [`handle_timeout`](Self::handle_timeout) when
///   [`next_timeout`](Self::next_timeout) has come.
/// - *Application*: [`offer`](Self::offer), `stream_*`, [`set_credit`](Self::set_credit),
///   [`close`](Self::close), ...
/// - *Out*: after any of the above, [`poll_transmit`](Self::poll_transmit) until it returns `None`,
///   [`poll_event`](Self::poll_event) until `None`, then sleep until
///   [`next_timeout`](Self::next_timeout). A value returned by an out method may change after any
///   in or application call.
/// - *State*: getters, free of side effects.
///
/// The driver sends every packet that [`poll_transmit`](Self::poll_transmit) plans, at once or not
/// at all, and says of those that the local stack refused that they were [`not_sent`](Self::not_sent).
#[derive(Debug)]
pub struct Lane {
    config: LaneConfig,
    rng: Xoshiro256PlusPlus,
    addresses: Addresses,
    mtu: MtuSearch,
    events: VecDeque<Event>,
    state: State,

    // Sending.
    next_number: u64,
    ledger: Ledger,
    outbox: Outbox,
    repair: Box<dyn Policy>,
    paths: LanePaths,
    /// Highest `largest` that the peer reported, for RTT samples from news only.
    reported_largest: Option<u64>,
    liveness: Liveness,
    /// The local stack had refused packets and was offered another one.
    tries: bool,
    /// Time of the last report to the driver that UDP does not fit this path.
    fits_not_reported: Option<Instant>,
    state_schedule: StateSchedule,
    app_limited: AppLimited,
    /// There was something to send, and the peer had suspended it.
    held: bool,
    meter: DeliveryMeter,
    one_way: OneWayMinimum,
    peer: Peer,

    // Receiving.
    /// A packet of the base size, or above, has come: UDP fits, as far as is known here.
    received_base: bool,
    reception: Reception,
    responses: VecDeque<(SocketAddr, [u8; 8])>,
    announced: Announced,

    streams: BTreeMap<StreamId, Stream>,
    asks: Asks,
    stats: LaneStats,
}

/// Where a lane goes.
#[derive(Clone, Copy, Debug)]
pub struct Onward {
    /// The path.
    pub path: PathId,
    /// At a client: the server's address there. A server has followed its client already.
    pub remote: Option<SocketAddr>,
    /// UDP payload that the local interface can send there.
    pub datagram_max: u16,
}

#[derive(Debug)]
enum State {
    Open,
    /// CLOSE is being repeated.
    Closing {
        code: CloseCode,
        reason: String,
        left: u8,
        next: Instant,
    },
    Closed,
}

/// Least difference between the two hosts' clocks seen lately, to tell queueing from clock offset.
#[derive(Debug, Default)]
struct OneWayMinimum {
    current: Option<i64>,
    previous: Option<i64>,
    since: Instant,
}

impl OneWayMinimum {
    /// Difference of `sample` (us) above the minimum of the last 10 to 20 s, which follows clock drift.
    fn above(&mut self, now: Instant, sample: i64) -> i64 {
        if now - self.since > Duration::from_secs(10) {
            self.previous = self.current.take();
            self.since = now;
        }
        let current = self.current.map_or(sample, |c| c.min(sample));
        self.current = Some(current);
        sample - self.previous.map_or(current, |p| p.min(current))
    }
}

impl Lane {
    /// An open lane. A client's sends CHALLENGE and size probes at once.
    pub fn new(now: Instant, config: LaneConfig) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed);
        let challenge = rng.next_u64().to_be_bytes();
        Self {
            addresses: Addresses::new(config.role, config.remote, challenge, now),
            mtu: match config.only_messages {
                true => MtuSearch::none(now),
                false => MtuSearch::of_first_path(now, config.datagram_max),
            },
            events: VecDeque::new(),
            state: State::Open,
            next_number: 0,
            ledger: Ledger::default(),
            outbox: Outbox::default(),
            repair: repair::policy(config.repair),
            paths: LanePaths::new(config.path, config.reordering),
            reported_largest: None,
            liveness: Liveness::new(now),
            tries: false,
            fits_not_reported: None,
            state_schedule: StateSchedule::default(),
            app_limited: AppLimited::new(),
            held: false,
            meter: DeliveryMeter::default(),
            one_way: OneWayMinimum::default(),
            peer: Peer::new(),
            received_base: false,
            reception: Reception::new(config.feedback),
            responses: VecDeque::new(),
            announced: Announced::new(),
            streams: BTreeMap::new(),
            asks: Asks::new(),
            stats: LaneStats::default(),
            config,
            rng,
        }
    }

    // Application.

    /// Takes on object bytes to be sent. They must not overlap bytes offered and not yet delivered.
    /// The driver keeps [`backlog`](Self::backlog) above what one feedback interval needs, and the
    /// sum of extents offered for the first time within [`credit`](Self::credit).
    pub fn offer(&mut self, extent: Extent) {
        self.repair.on_offered();
        self.outbox.offer(extent);
    }

    /// Nothing of `object` is wanted any more, and nothing of it will be offered again. What was offered
    /// and not sent stays here ([`Event::Withdrawn`]). Of an extent of which something was sent the peer
    /// gets to know: what was lost of it is resent until some of it is acknowledged, and then no more
    /// ([`Event::Delivered`]).
    pub fn withdraw(&mut self, object: ObjectId) {
        let Self { outbox, repair, events, .. } = self;
        outbox.withdraw(object, |gone| {
            events.push_back(match gone {
                Gone::Unsent(extent) => Event::Withdrawn(extent),
                Gone::Known(extent) => {
                    repair.on_done(extent);
                    Event::Delivered(extent)
                }
            });
        });
    }

    /// Nothing more will be offered until something is delivered: a round of repair may end.
    pub fn flush(&mut self) {
        self.repair.on_flushed();
    }

    /// Object bytes that the peer may be sent for the first time, in all, as it last announced.
    pub fn credit(&self) -> u64 {
        self.peer.credit()
    }

    /// Announces that this side takes `credit` object bytes in all.
    pub fn set_credit(&mut self, credit: u64) {
        // It goes with the next report; reports flow while there is anything to be limited.
        self.announced.raise_credit(credit);
    }

    /// Announces, now, credit that a waiting peer needs.
    pub fn announce(&mut self) {
        if self.reception.largest.is_some() {
            self.reception.request_report();
            // Elicits an answer, so that a lost announcement is noticed.
            self.liveness.want_ping();
        }
    }

    /// Announces the rate at which this host can receive.
    pub fn set_capacity(&mut self, capacity: Option<Rate>) {
        self.announced.set_capacity(capacity);
    }

    /// Packets found missing since the last call, but for those that the socket dropped and those
    /// that were only late. What this host knows of them goes to [`Lane::add_host_drops`].
    pub fn take_missing(&mut self) -> u64 {
        self.reception.take_unexplained()
    }

    /// So many packets were lost in this host before they came to a socket; they are reported to the peer.
    pub fn add_host_drops(&mut self, packets: u64) {
        self.reception.host_drops += packets;
    }

    /// Tells the peer, now if it is news, what holds this host up.
    pub fn set_bounds(&mut self, bounds: ReceiverBounds) {
        if self.announced.set_bounds(bounds) {
            self.announce();
        }
    }

    /// Announces what this host expects to take, now where it is much less than before; nothing lifts
    /// what was announced (protocol.md 5.4.3).
    pub fn set_limit(&mut self, now: Instant, limit: Option<HostLimit>) {
        if self.announced.set_limit(now, limit) {
            self.announce();
        }
    }

    /// Asks the peer to send no object bytes, new or again, on any lane of the connection, for a while;
    /// a time that is over resumes. Orders count over all lanes; one that is not higher than those
    /// before is passed over (protocol.md 5.11).
    pub fn suspend_peer(&mut self, now: Instant, suspension: Suspension) {
        self.announced.suspend(now, suspension);
    }

    /// Closes the lane: CLOSE is sent, nothing else is any more.
    pub fn close(&mut self, now: Instant, code: CloseCode, reason: &str) {
        if !matches!(self.state, State::Open) {
            return;
        }
        let reason = clip(reason, MAX_REASON).to_string();
        self.events.push_back(Event::Closed(Closed {
            code,
            reason: reason.clone(),
            by_peer: false,
        }));
        self.state = State::Closing { code, reason, left: CLOSE_REPEATS, next: now };
    }

    fn closed_by_peer(&mut self, code: CloseCode, reason: &str) {
        if matches!(self.state, State::Open) {
            let reason = longhaul_units::shown(reason);
            self.events.push_back(Event::Closed(Closed { code, reason, by_peer: true }));
        }
        self.state = State::Closed;
    }

    /// Leaves `path` and goes on over another one, or over one where it has been before. From here on
    /// every method is given that one.
    ///
    /// Packets in flight keep their numbers: their fate is still learnt and repaired, but they teach the
    /// other path nothing. What a path's MTU is, is known again when the lane comes back.
    pub fn leave_path(&mut self, now: Instant, path: &mut Path, onward: Onward) {
        let Onward { path: other, remote, datagram_max } = onward;
        path.on_left(self.config.lane, self.ledger.unsettled_bytes(self.paths.since()));
        let search = match self.config.only_messages {
            true => MtuSearch::none(now),
            false => MtuSearch::new(now, datagram_max),
        };
        let mut left = core::mem::replace(&mut self.mtu, search);
        left.on_left();
        let known = self.paths.go(self.next_number, path.rtt().smoothed(), left, other);
        if let Some(known) = known.filter(|known| known.is_within(datagram_max)) {
            self.mtu = known;
        }
        if let Some(remote) = remote {
            self.addresses.go_to(now, remote, self.rng.next_u64().to_be_bytes());
        }
        self.fits_not_reported = None;
        self.app_limited.on_moved(self.next_number);
        self.config.datagram_max = datagram_max;
        self.meter = DeliveryMeter::default();
        self.one_way = OneWayMinimum::default();
        self.liveness.on_moved(now);
    }

    /// The path that it is on.
    pub fn path(&self) -> PathId {
        self.paths.path()
    }

    /// Each path that it was ever on, and what it has sent over it.
    pub fn all_carried(&self) -> impl Iterator<Item = (PathId, Carried)> + '_ {
        self.paths.all_carried()
    }

    /// Its counts over `path`.
    pub fn carried(&self, path: PathId) -> Carried {
        self.paths.carried(path)
    }

    /// One past the highest packet number received.
    pub fn received_to(&self) -> u64 {
        self.reception.end()
    }

    // Out.

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_transmit`](Self::poll_transmit) has
    /// something to do next, without any input.
    #[must_use]
    pub fn next_timeout(&self, now: Instant, path: &Path) -> Option<Instant> {
        match &self.state {
            State::Closed => return None,
            State::Closing { next, .. } => return Some(*next),
            State::Open => {}
        }
        let mut at = self.idle_at();
        let first = self.first_probe_timeout(path);
        let offered = |at: Instant| at.max(path.refuses_until().unwrap_or(at));
        let mut earlier = |other: Option<Instant>| at = at.min(other.unwrap_or(at));
        earlier(self.fits_not_due());
        earlier(path.next_timeout());
        earlier(self.ask_due(path));
        earlier(self.liveness.probe_timeout(first));
        earlier(self.liveness.ask_again_due(first));
        if self.addresses.current().is_some() {
            if self.control_allowed() {
                earlier(self.objects_due(now, path).map(offered));
            }
            earlier(self.unpaced_due(now, path).map(offered));
        }
        earlier(self.keep_alive_due());
        Some(at)
    }

    /// When there is something of what goes as soon as it is there.
    fn unpaced_due(&self, now: Instant, path: &Path) -> Option<Instant> {
        let address = self.addresses.next_timeout(CONTROL_MIN_WIRE);
        let messages = self.control_allowed().then(|| {
            [self.reception.report_due(), self.state_schedule.due(), self.messages_due(now, path)]
        });
        let probe = self.probe_allowed().then(|| self.mtu.due(self.mtu_retry(path)));
        let messages = messages.into_iter().flatten();
        messages.chain(probe).chain([address, self.base_due(path)]).flatten().min()
    }

    /// Lets timers run that are due.
    pub fn handle_timeout(&mut self, now: Instant, path: &mut Path) {
        path.handle_timeout(now);
        if matches!(self.state, State::Open) {
            if self.idle_at() <= now {
                let Closed { code, reason, .. } = Closed::silent(self.config.idle_timeout);
                self.close(now, code, &reason);
                return;
            }
            if self.fits_not_due().is_some_and(|at| at <= now) {
                self.fits_not_reported = Some(now);
                self.events.push_back(Event::FitsNot(self.fits_not()));
            }
            if self.ask_due(path).is_some_and(|at| at <= now) {
                self.mtu.on_asked();
                self.liveness.want_ping();
            }
            if self.keep_alive_due().is_some_and(|at| at <= now) {
                self.liveness.want_ping();
            }
            let first = self.first_probe_timeout(path);
            if self.liveness.probe_timeout(first).is_some_and(|at| at <= now) {
                self.on_probe_timeout(now, path);
            }
            if self.liveness.ask_again_due(first).is_some_and(|at| at <= now) {
                self.liveness.ask_again(now);
            }
        }
    }

    fn on_probe_timeout(&mut self, now: Instant, path: &mut Path) {
        self.liveness.on_probe_timeout(now);
        self.stats.probe_timeouts += 1;
        self.repair.on_probe_timeout();
        self.paths.on_probe_timeout();
        if !self.config.only_messages {
            self.mtu.on_probe_timeout();
        }
        path.on_probe_timeout(now);
    }

    fn first_probe_timeout(&self, path: &Path) -> Duration {
        path.rtt().probe_timeout(self.config.feedback.interval(path.rtt().smoothed()))
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        self.liveness.keep_alive_due(self.config.idle_timeout)
    }

    /// When the peer is given up. A lane that the client has not opened yet, as it does when a booking
    /// begins, waits: the control connection tells whether there is a client.
    fn idle_at(&self) -> Instant {
        match self.addresses.current() {
            Some(_) => self.liveness.idle_at(self.config.idle_timeout),
            None => Instant::FAR_FUTURE,
        }
    }

    fn mtu_retry(&self, path: &Path) -> Duration {
        path.rtt().probe_timeout(self.config.feedback.most) * 2
    }

    /// Between probes of the base size.
    fn base_apart(&self, path: &Path) -> Duration {
        path.rtt().probe_timeout(self.config.feedback.most)
    }

    /// When a probe of the base size is due, or one of those that find out what else passes.
    fn base_due(&self, path: &Path) -> Option<Instant> {
        self.base_allowed().then(|| self.mtu.base_due(self.base_apart(path))).flatten()
    }

    /// When a small packet is due, so that something becomes known of that probe.
    fn ask_due(&self, path: &Path) -> Option<Instant> {
        self.mtu.ask_due(self.base_apart(path))
    }

    /// Time to report to the driver that UDP does not fit, where that matters: a server without objects to
    /// send has only small packets, and takes no request of a client before.
    fn fits_not_due(&self) -> Option<Instant> {
        let sends = self.config.role == Role::Client || self.outbox.undelivered() > 0;
        let due = self.fits_not_reported.map_or(Instant::ZERO, |at| at + FITS_NOT_APART);
        (sends && self.mtu.fits_not()).then_some(due)
    }

    /// Why UDP does not fit, for people.
    fn fits_not(&self) -> String {
        let ip = |payload: u16| u64::from(payload) + self.ip_overhead();
        let base = ip(BASE_DATAGRAM as u16);
        let side = match self.config.role {
            Role::Client => "client",
            Role::Server => "server",
        };
        match (self.mtu.local_max(), self.mtu.passed()) {
            // A packet of the base was refused: nothing else is known.
            (local, _) if usize::from(local) + 1 == BASE_DATAGRAM => format!(
                "UDP needs IP packets of {base} bytes, and an interface of the {side} takes none so large"
            ),
            (local, _) if local < BASE_DATAGRAM as u16 => format!(
                "UDP needs IP packets of {base} bytes, and an interface of the {side} takes {} at most",
                ip(local)
            ),
            (_, 0) => format!("IP packets of {base} bytes do not come through, as UDP needs them"),
            (_, passed) => format!(
                "IP packets of {base} bytes do not come through, as UDP needs them, only those of up \
                 to {}",
                ip(passed)
            ),
        }
    }

    // State.

    /// IP-layer bytes of the largest packet that is known to have passed, if any.
    pub fn passed(&self) -> Option<u64> {
        let passed = Some(self.mtu.passed()).filter(|passed| *passed > 0);
        passed.map(|passed| u64::from(passed) + self.ip_overhead())
    }

    /// IP-layer bytes of a packet of the full size, as far as the path is known to carry it.
    pub fn packet(&self) -> u64 {
        self.full_wire()
    }

    /// The peer's smoothed round trip, as it says.
    pub fn round_trip_there(&self) -> Option<Duration> {
        self.reception.peer_round_trip()
    }

    /// Object bytes offered and not yet sent.
    pub fn backlog(&self) -> u64 {
        self.outbox.backlog_bytes()
    }

    /// Offered extents that are not wholly acknowledged.
    pub fn undelivered(&self) -> usize {
        self.outbox.undelivered()
    }

    /// True if the lane is closed and has nothing more to send.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The peer's address, once known.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.addresses.current()
    }

    /// True if the peer's address is proven.
    pub fn is_validated(&self) -> bool {
        self.addresses.is_validated()
    }

    /// Object bytes that one packet carries now.
    pub fn payload(&self) -> u16 {
        self.mtu.datagram() - (OBJECT_HEADER_LEN + self.config.object_tag) as u16
    }

    /// Counters since the start.
    pub fn stats(&self) -> LaneStats {
        LaneStats {
            fresh_bytes_delivered: self.outbox.delivered_bytes(),
            packets_received: self.reception.packets,
            bytes_received: self.reception.bytes,
            socket_drops: self.reception.socket_drops,
            datagram: self.mtu.datagram(),
            rounds: self.repair.rounds(),
            ..self.stats
        }
    }

    /// Entries of memory that grow with the path and not with the data: ledger entries plus
    /// ranges of received numbers.
    pub fn tracked(&self) -> usize {
        self.ledger.len() + self.reception.range_count()
    }

    /// The peer's announced socket buffer and receive capacity.
    pub fn receiver(&self) -> ReceiverState {
        self.peer.receiver()
    }

    /// The peer's bottlenecks, as it last reported.
    pub fn peer_bounds(&self) -> ReceiverBounds {
        self.peer.bounds()
    }

    fn ip_overhead(&self) -> u64 {
        match self.addresses.current() {
            Some(SocketAddr::V6(_)) => IPV6_UDP_HEADERS,
            _ => IPV4_UDP_HEADERS,
        }
    }

    fn floor(&self) -> PacketNumber {
        PacketNumber::new(self.ledger.floor().unwrap_or(self.next_number))
    }
}

/// The longest prefix of `text` within `max` bytes.
fn clip(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Headers of IPv4 and UDP, in bytes: 20 + 8.
pub const IPV4_UDP_HEADERS: u64 = 28;
/// Headers of IPv6 and UDP, in bytes: 40 + 8.
pub const IPV6_UDP_HEADERS: u64 = 48;
const CLOSE_REPEATS: u8 = 3;
/// Where a lane cannot leave a path now it may be able to a little later.
const FITS_NOT_APART: Duration = Duration::from_secs(1);
/// IP-layer bytes of a small CONTROL packet, for allowances.
const CONTROL_MIN_WIRE: u64 = IPV6_UDP_HEADERS + (HEADER_LEN + AEAD_TAG_LEN) as u64 + 16;
/// Streams that may be open at once (protocol.md 6).
const STREAMS_MAX: usize = 64;

#[cfg(test)]
mod tests;

/// True if `role` opens streams with this id (protocol.md 6).
fn opens(role: Role, stream: StreamId) -> bool {
    stream.0.is_multiple_of(2) == (role == Role::Client)
}

use longhaul_units::{Bottleneck, Duration, Instant, Rate};

use super::proven::{Came, Proven};
use super::{MonitorConfig, Part};
use crate::rapid::Rapid;
use crate::service::{Service, rate, seconds};
use crate::signals::{Batch, Socket, Turn};
use crate::stalls::Stalls;

/// One reader thread and its socket.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) service: Service,
    /// RAPID's performance monitor, where that makes the announcements.
    pub(super) rapid: Option<Rapid>,
    stalls: Stalls,
    /// The newest gap in its reading, which may still turn out to be longer.
    gap: Option<Gap>,
    last_read: Option<Instant>,
    absent_since: Option<Instant>,
    /// Time of absences that are over, which the scheduler reports as well, a little later.
    absent_time: Duration,
    /// Batches say how old they are: then a wait in front of a processor is known by that.
    has_ages: bool,
    socket: Option<Seen>,
    arrivals: Arrivals,
    /// The queue that stands: least age of an interval.
    standing: Duration,
    sojourn_cap: Option<Rate>,
    /// Rate that was read while the queue stood last, until it is gone.
    served: Rate,
    /// Share of the batches that left something in the socket, in 1/1024.
    full_share: u64,
    /// Rate that came of late and was not dropped, and a little more.
    proven: Proven,
    /// Time since which the socket has not been empty.
    queued_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    socket: Socket,
    /// Rate at which the queue grows, since the look before.
    growth: Rate,
}

/// A time in which something waited and was not read.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    to: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    span: Span,
    busy: Duration,
}

/// A gap that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) length: Duration,
    /// Processor time that the reader itself used in it.
    pub(super) busy: Duration,
}

/// Arrivals of this interval, and the rate of those in the last one.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    began: Instant,
    bytes: u64,
    least_age: Option<Duration>,
    /// Batches, and those that left something in the socket.
    batches: u32,
    full: u32,
    /// Drops of the socket.
    drops: u64,
    rate: Rate,
}

impl Arrivals {
    fn new(now: Instant, rate: Rate) -> Self {
        Self { began: now, bytes: 0, least_age: None, batches: 0, full: 0, drops: 0, rate }
    }
}

impl Reader {
    pub(super) fn new(now: Instant, config: &MonitorConfig, round_trip: Duration) -> Self {
        let mut reader = Self {
            service: Service::new(now, config.service),
            rapid: match config.part {
                Part::Rapid(rapid) => Some(Rapid::new(now, rapid)),
                Part::Limits | Part::Paptc => None,
            },
            stalls: Stalls::new(now),
            gap: None,
            last_read: None,
            absent_since: None,
            absent_time: Duration::ZERO,
            has_ages: false,
            socket: None,
            arrivals: Arrivals::new(now, Rate::ZERO),
            standing: Duration::ZERO,
            sojourn_cap: None,
            served: Rate::ZERO,
            full_share: 0,
            proven: Proven::default(),
            queued_since: None,
        };
        reader.set_round_trip(round_trip);
        reader
    }

    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        self.service.set_feedback_delay(round_trip);
        if let Some(rapid) = &mut self.rapid {
            rapid.set_round_trip(round_trip);
        }
    }

    /// Returns the part of its wait that no absence has shown.
    pub(super) fn unexplained_wait(&mut self, turn: &Turn) -> Duration {
        turn.wait.saturating_sub(core::mem::take(&mut self.absent_time))
    }

    /// As [`Reader::on_batch`] and [`Reader::on_return`] it says which gap is over for good.
    pub(super) fn on_turn(&mut self, now: Instant, turn: &Turn) -> Option<Over> {
        self.service.handle_turn(now, turn);
        if let Some(rapid) = &mut self.rapid {
            rapid.handle_turn(now, turn);
        }
        if self.has_ages || turn.turns == 0 {
            return None;
        }
        // Of several waits only the mean is known.
        let wait = turn.wait / u32::try_from(turn.turns).unwrap_or(u32::MAX);
        self.note_gap(Span { from: now.before(wait), to: now }, Duration::ZERO)
    }

    pub(super) fn on_batch(&mut self, now: Instant, batch: &Batch) -> Option<Over> {
        self.service.handle_batch(batch);
        if let Some(rapid) = &mut self.rapid {
            rapid.handle_read();
        }
        if self.last_read.is_none() {
            self.arrivals.began = now;
        }
        self.arrivals.bytes = self.arrivals.bytes.saturating_add(batch.bytes);
        self.arrivals.batches += 1;
        self.arrivals.full += u32::from(batch.full);
        self.queued_since = batch.full.then(|| *self.queued_since.get_or_insert(now));
        let last_read = self.last_read.replace(now).unwrap_or(Instant::ZERO);
        let age = batch.age?;
        self.has_ages = true;
        self.arrivals.least_age = Some(self.arrivals.least_age.map_or(age, |least| least.min(age)));
        // What waited before the last read waited behind others: that is queue, and no gap.
        let from = now.before(age).max(last_read);
        self.note_gap(Span { from, to: now }, batch.cpu.unwrap_or_default())
    }

    pub(super) fn on_socket(&mut self, now: Instant, socket: &Socket) {
        if let Some(rapid) = &mut self.rapid {
            rapid.handle_socket(socket);
        }
        self.arrivals.drops = self.arrivals.drops.saturating_add(socket.drops);
        let growth = self.socket.map_or(Rate::ZERO, |before| {
            let grown = socket.queued.saturating_sub(before.socket.queued);
            Rate::from_bytes_over(grown, (now - before.at).max(LEAST_INTERVAL))
        });
        self.socket = Some(Seen { at: now, socket: *socket, growth });
    }

    pub(super) fn on_absence(&mut self, since: Instant) {
        self.absent_since.get_or_insert(since);
    }

    pub(super) fn is_absent(&self) -> bool {
        self.absent_since.is_some()
    }

    /// Returns the time that it was away, too.
    pub(super) fn on_return(&mut self, now: Instant) -> Option<(Duration, Option<Over>)> {
        let from = self.absent_since.take()?;
        self.absent_time = self.absent_time.saturating_add(now - from);
        Some((now - from, self.note_gap(Span { from, to: now }, Duration::ZERO)))
    }

    /// Several signals tell of the same gap: what overlaps is one.
    fn note_gap(&mut self, span: Span, busy: Duration) -> Option<Over> {
        if let Some(gap) = &mut self.gap
            && span.from < gap.span.to
        {
            gap.span.from = gap.span.from.min(span.from);
            gap.span.to = gap.span.to.max(span.to);
            gap.busy = gap.busy.max(busy);
            return None;
        }
        let over = self.end_gap();
        self.gap = Some(Gap { span, busy });
        over
    }

    /// Takes the newest gap for over.
    pub(super) fn end_gap(&mut self) -> Option<Over> {
        let over = self.open_gap()?;
        let Gap { span, .. } = self.gap.take()?;
        self.stalls.add(span.to, over.length);
        Some(over)
    }

    /// The newest gap as it is now.
    pub(super) fn open_gap(&self) -> Option<Over> {
        let Gap { span, busy } = self.gap?;
        Some(Over { length: span.to - span.from, busy })
    }

    /// Looks at what came in this interval, where it is over.
    pub(super) fn look(&mut self, now: Instant, config: &MonitorConfig, round_trip: Duration) {
        self.stalls.advance(now);
        let passed = now - self.arrivals.began;
        if passed < INTERVAL.max(round_trip) {
            return;
        }
        let Arrivals { bytes, least_age, batches, full, drops, .. } = self.arrivals;
        let arrived = Rate::from_bytes_over(bytes, passed);
        let packet = (bytes / u64::from(batches.max(1))).min(SUPER_PACKET);
        let came = Came {
            bytes,
            dropped: drops.saturating_mul(packet),
            passed,
            before: self.arrivals.rate,
        };
        let bridged = self.bridged(now, config);
        self.proven.end_interval(now, &came, bridged, config.overflow);
        self.arrivals = Arrivals::new(now, arrived);
        self.full_share = u64::from(full) * 1_024 / u64::from(batches.max(1));
        self.standing = least_age.unwrap_or_default();
        if self.standing > config.sojourn {
            // Swift's decrease (SIGCOMM 2020, section 3.1): by how far the delay is beyond its target.
            let beyond = 1.0 - seconds(config.sojourn) / seconds(self.standing);
            let kept = 1.0 - (DECREASE * beyond).min(MOST_DECREASE);
            self.sojourn_cap = Some(rate(arrived.as_bps() as f64 * kept));
            self.served = self.served.max(arrived);
        } else if let Some(cap) = self.sojourn_cap {
            // The queue is gone: what was read while it stood is what the reader takes.
            let served = core::mem::take(&mut self.served).scale(15, 16);
            let raised = cap.scale(17, 16).max(served);
            self.sojourn_cap = (raised < arrived.scale(2, 1)).then_some(raised);
        }
    }

    /// Bits per second that arrive, of late.
    pub(super) fn arrivals(&self, now: Instant) -> Rate {
        match self.arrivals {
            Arrivals { rate: Rate::ZERO, began, bytes, .. } => {
                Rate::from_bytes_over(bytes, (now - began).max(LEAST_INTERVAL))
            }
            Arrivals { rate, .. } => rate,
        }
    }

    /// Returns the most that this reader takes, and why.
    pub(super) fn limit(&self, now: Instant, config: &MonitorConfig) -> Option<(Rate, Bottleneck)> {
        let bounds = [
            self.headroom(now, config).map(|rate| (rate, Bottleneck::ReceiverBuffer)),
            self.capacity().map(|rate| (rate, Bottleneck::ReceiverCpu)),
            self.sojourn_cap.map(|rate| (rate, Bottleneck::ReceiverCpu)),
        ];
        bounds.into_iter().flatten().min_by_key(|(rate, _)| *rate)
    }

    /// No faster than its buffer bridges the stalls that it is known to have, or than it has proven to
    /// take; behind drops than that only: they come of what no length of a stall tells.
    fn headroom(&self, now: Instant, config: &MonitorConfig) -> Option<Rate> {
        self.proven.bound(self.bridged(now, config))
    }

    /// lambda <= H / S_q.
    fn bridged(&self, now: Instant, config: &MonitorConfig) -> Option<Rate> {
        let limit = self.socket?.socket.limit;
        let bridge = self.stalls.to_bridge(now, config.overflow)?.min(MOST_BRIDGE);
        // What was read is given back in quarters of the buffer, but at once where nothing is left there.
        let held = limit.min(MOST_BUFFER) / 4 * self.full_share / 1_024;
        let usable = data_in(limit - held, config);
        let standing = self.arrivals(now).bytes_in(self.standing);
        let headroom = usable.saturating_sub(standing).max(usable / 8);
        Some(Rate::from_bytes_over(headroom, bridge))
    }

    /// 0.9 of what it will process at least. A reader that has its processor to itself shows by a
    /// queue that it is too slow; a tenth of its rate would be thrown away for nothing. One that empties its
    /// socket in its turns could do more in them: its share is what it asks for.
    fn capacity(&self) -> Option<Rate> {
        if self.full_share < OCCUPIED {
            return None;
        }
        self.service.share().filter(|share| *share < ALONE)?;
        let prediction = self.service.predict()?;
        Some(rate(0.9 * prediction.lower.max(prediction.value / 2.0)))
    }

    /// The limit of the connection, where this reader takes `rate` of it and all take what they do now.
    /// One that nothing comes to limits nobody.
    pub(super) fn whole(&self, now: Instant, rate: Rate, total: Rate) -> Option<Rate> {
        let mine = self.arrivals(now).as_bps();
        (mine > 0).then(|| {
            let whole = u128::from(rate.as_bps()) * u128::from(total.as_bps()) / u128::from(mine);
            Rate::from_bps(u64::try_from(whole).unwrap_or(u64::MAX))
        })
    }

    /// For how long it will probably be away still, where silence helps: it has been away for long and
    /// its buffer is half full, or will overflow; and it will be away when silence begins, a round
    /// trip from now.
    pub(super) fn needs_silence(
        &self,
        now: Instant,
        config: &MonitorConfig,
        round_trip: Duration,
    ) -> Option<Duration> {
        let Some(since) = self.absent_since else {
            return self.is_overrun(now, config, round_trip);
        };
        let Seen { socket, .. } = self.socket.filter(|seen| seen.at >= since)?;
        let arrivals = self.arrivals(now);
        if socket.limit == 0 || arrivals == Rate::ZERO {
            return None;
        }
        let away = now - since;
        let left = self.stalls.left_after(away);
        let long = away >= config.patience && is_half_full(&socket);
        let room = data_in(socket.limit.saturating_sub(socket.queued), config);
        let overflows = away >= LEAST_AWAY && arrivals.bytes_in(left) > room;
        ((long || overflows) && left > round_trip).then_some(left)
    }

    /// It reads, but what comes is more: for how long silence helps, where its buffer would overflow before
    /// any limit has an effect.
    fn is_overrun(
        &self,
        now: Instant,
        config: &MonitorConfig,
        round_trip: Duration,
    ) -> Option<Duration> {
        let since = self.queued_since.filter(|since| now - *since >= LEAST_AWAY)?;
        let Seen { socket, growth, .. } = self.socket.filter(|seen| seen.at >= since)?;
        let arrivals = self.arrivals(now);
        let soon = arrivals.max(growth).bytes_in(round_trip + REACTION);
        let room = data_in(socket.limit.saturating_sub(socket.queued), config);
        let surplus = data_in(socket.queued.saturating_sub(socket.limit / 2), config);
        let left = arrivals.time_for(surplus);
        (surplus > 0 && arrivals > Rate::ZERO && soon > room && left > round_trip).then_some(left)
    }

    /// Returns whether silence that it asked for should go on: it is away, or its buffer is half full still.
    pub(super) fn is_behind(&self, now: Instant) -> bool {
        let fresh = self.socket.filter(|seen| now - seen.at < INTERVAL);
        self.absent_since.is_some() || fresh.is_some_and(|seen| is_half_full(&seen.socket))
    }
}

fn is_half_full(socket: &Socket) -> bool {
    socket.queued > socket.limit / 2
}

/// Bytes of data for which a socket charges so many.
fn data_in(charged: u64, config: &MonitorConfig) -> u64 {
    charged.saturating_mul(1_024) / u64::from(config.charge.max(1))
}

/// A queue stands when it was never shorter for so long (CoDel's interval, RFC 8289 section 4.3): no
/// turn of others lasts longer, the longest being a quota's period.
const INTERVAL: Duration = Duration::from_millis(100);
/// Less time makes no rate.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// A stall that is longer is no part of a schedule (a quota's period is 100 ms): to slow down further
/// for it costs more than what it loses.
const MOST_BRIDGE: Duration = Duration::from_millis(100);
/// More than any kernel grants, so that products stay in range.
const MOST_BUFFER: u64 = 1 << 40;
/// A reader that got more than this of what it asked for has no competitor.
const ALONE: f64 = 0.97;
/// Share of the batches that leave something in the socket of a reader that has no turn to spare, in 1/1024.
const OCCUPIED: u64 = 960;
/// Swift's beta and largest decrease.
const DECREASE: f64 = 0.8;
const MOST_DECREASE: f64 = 0.5;
/// The kernel counts a super-packet as one drop, and none is larger.
const SUPER_PACKET: u64 = 65_536;
/// Two looks of a sentinel, and a turn of the sender's scheduler.
const REACTION: Duration = Duration::from_millis(4);
/// An absence is one when a wake-up would long be over (p99 of a busy host: half a millisecond).
const LEAST_AWAY: Duration = Duration::from_millis(2);

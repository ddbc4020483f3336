use alloc::collections::VecDeque;

use longhaul_units::{Duration, Instant, Rate};

use super::{Host, Sample};
use crate::announcement::Announcement;

/// Receives the samples of a host, and makes announcements to the sender.
pub trait Control {
    /// A sample.
    fn handle_sample(&mut self, now: Instant, sample: &Sample);

    /// Returns the next announcement to the sender, if any.
    fn poll_announcement(&mut self, now: Instant) -> Option<Announcement>;

    /// Returns when to ask again.
    fn next_timeout(&self) -> Option<Instant>;
}

/// Nobody.
impl Control for () {
    fn handle_sample(&mut self, _now: Instant, _sample: &Sample) {}

    fn poll_announcement(&mut self, _now: Instant) -> Option<Announcement> {
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A sender at a rate of its own, or less where the host asks for it, over a path without loss.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Rate of the flow without limits.
    pub rate: Rate,
    /// An announcement takes half of it to arrive, and packets sent then the other half.
    pub round_trip: Duration,
    /// Datagrams of a super-packet, and their size at the IP layer.
    pub datagrams: u32,
    /// Bytes of each.
    pub size: u32,
    /// Datagrams that are yet to be sent, where there is an end.
    pub left: Option<u64>,
    limit: Option<(Rate, Instant)>,
    suspended_until: Instant,
    /// On the way to the sender.
    announcements: VecDeque<(Instant, Announcement)>,
    /// Packets that have left, by time of arrival.
    under_way: VecDeque<Instant>,
    next: Instant,
    sent: u64,
}

impl Flow {
    /// Super-packets of 44 datagrams of 1452 bytes, as Longhaul's.
    pub fn new(rate: Rate, round_trip: Duration) -> Self {
        Self {
            rate,
            round_trip,
            datagrams: 44,
            size: 1_452,
            left: None,
            limit: None,
            suspended_until: Instant::ZERO,
            announcements: VecDeque::new(),
            under_way: VecDeque::new(),
            next: Instant::ZERO,
            sent: 0,
        }
    }

    /// Datagrams sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Runs until so long behind the start of time.
    pub fn run(&mut self, host: &mut Host, until: Duration, control: &mut dyn Control) {
        self.run_each(host, until, control, |_, _| true);
    }

    /// The same, and shows the host behind each event; ends early where that says no, or all has
    /// arrived.
    pub fn run_each(
        &mut self,
        host: &mut Host,
        until: Duration,
        control: &mut dyn Control,
        mut look: impl FnMut(Instant, &Host) -> bool,
    ) {
        let end = Instant::ZERO + until;
        loop {
            let arrival = self.under_way.front().copied();
            let announced = self.announcements.front().map(|(at, _)| *at);
            let times = [arrival, announced, control.next_timeout(), Some(host.next_timeout())];
            let now = times.into_iter().flatten().fold(self.departure(), Instant::min);
            if now >= end {
                return;
            }
            while let Some((_, announcement)) =
                self.announcements.pop_front_if(|(at, _)| *at <= now)
            {
                self.handle_announcement(now, announcement);
            }
            if self.departure() <= now {
                self.left = self.left.map(|left| left.saturating_sub(u64::from(self.datagrams)));
                let pace = self.pace(now);
                let bytes = u64::from(self.datagrams) * u64::from(self.size);
                self.next = self.next.max(self.suspended_until) + pace.time_for(bytes);
                self.sent += u64::from(self.datagrams);
                self.under_way.push_back(now + self.round_trip / 2);
            }
            while self.under_way.pop_front_if(|at| *at <= now).is_some() {
                host.handle_packet(now, self.datagrams, self.size);
            }
            if host.next_timeout() <= now {
                host.handle_timeout(now);
            }
            while let Some((at, sample)) = host.poll_sample() {
                control.handle_sample(at, &sample);
            }
            while let Some(announcement) = control.poll_announcement(now) {
                self.announcements.push_back((now + self.round_trip / 2, announcement));
            }
            if !look(now, host) || self.is_done() {
                return;
            }
        }
    }

    /// Returns when the next packet leaves.
    fn departure(&self) -> Instant {
        match self.left {
            Some(0) => Instant::FAR_FUTURE,
            _ => self.next.max(self.suspended_until),
        }
    }

    /// Returns whether all has been sent, and arrived.
    pub fn is_done(&self) -> bool {
        self.left == Some(0) && self.under_way.is_empty()
    }

    fn pace(&self, now: Instant) -> Rate {
        let limit = self.limit.filter(|(_, until)| now < *until);
        limit.map_or(self.rate, |(limit, _)| limit.min(self.rate))
    }

    fn handle_announcement(&mut self, now: Instant, announcement: Announcement) {
        match announcement {
            Announcement::Limit { rate, lasts, .. } => self.limit = Some((rate, now + lasts)),
            Announcement::Suspend { lasts } => self.suspended_until = now + lasts,
            Announcement::Resume => self.suspended_until = now,
            // A controller goes by it, and here is none.
            Announcement::Capacity { .. } => {}
        }
    }
}

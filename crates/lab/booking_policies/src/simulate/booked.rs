//! The contenders: the production calendar on the paper's requests.

use longhaul_calendar::{
    Book, BookConfig, BookingId, FileRequest, Grid, LinkId, Margin, Order, Path, Policy, Request,
};
use longhaul_units::{Bytes, Duration, Rate};

use super::workload::{Arrival, CHANNEL_BPS, CHANNELS};

/// The booking of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// [`Policy::Earliest`] (VBLS) or [`Policy::Fixed`] (FBLS).
    pub policy: Policy,
    /// Re-plan all bookings when a request cannot have its Rmax at once.
    pub replan: bool,
    /// Slack of promises, parts per million; see [`BookConfig::slack_ppm`].
    pub slack_ppm: u32,
    /// Length of a tick.
    pub tick: Duration,
    /// Time in which a switch carries nothing after each change.
    pub reprogramming: Duration,
}

impl Scheme {
    /// In ticks of a microsecond, with a switch that needs no time.
    pub const fn new(policy: Policy) -> Self {
        let tick = Duration::from_micros(1);
        Self { policy, replan: false, slack_ppm: 0, tick, reprogramming: Duration::ZERO }
    }

    /// The same with re-planning and this slack of promises.
    pub const fn replanned(self, slack_ppm: u32) -> Self {
        Self { replan: true, slack_ppm, ..self }
    }

    /// Guard in ticks. What is less than a thousandth of a tick is left to the margin instead,
    /// where it costs that, not a whole tick.
    pub fn guard(&self) -> u64 {
        let thousandfold = self.reprogramming.as_nanos() * 1_000;
        if thousandfold < self.tick.as_nanos() { 0 } else { self.grid().ticks(self.reprogramming) }
    }

    fn margin(&self) -> Margin {
        let left_to_margin = self.guard() == 0 && !self.reprogramming.is_zero();
        if left_to_margin { Margin::from_ppm(1_000) } else { Margin::NONE }
    }

    /// The paper's channels in ticks of this scheme.
    pub fn grid(&self) -> Grid {
        let channel = Rate::from_bps(CHANNEL_BPS as u64);
        Grid::new(self.tick, channel).unwrap_or_else(|| unreachable!("ticks are not empty"))
    }
}

/// Outcome of the requests.
#[derive(Clone, Debug, Default)]
pub struct Booked {
    /// Seconds from arrival to the planned finish, by request.
    pub delays: Vec<f64>,
    /// Mean number of changes of rate in a booking, its start included.
    pub ranges: f64,
    /// Mean segments of the free capacity when a request arrives.
    pub change_points: f64,
    /// Mean bytes of memory of the free capacity when a request arrives.
    pub memory: f64,
    /// Booked share of the link while requests arrive.
    pub booked: f64,
    /// Share of what was booked that carries data asked for: the rest is guards and rounding.
    pub useful: f64,
}

/// Books `files` on the paper's link as they arrive.
pub fn book(files: &[Arrival], scheme: &Scheme) -> Booked {
    let grid = scheme.grid();
    let config =
        BookConfig { guard: scheme.guard(), slack_ppm: scheme.slack_ppm, ..BookConfig::default() };
    let mut run = Run {
        book: Book::new(config, 0),
        grid,
        files,
        last: grid_tick(grid, files.last().map_or(0.0, |f| f.at)),
        out: Booked { delays: vec![f64::NAN; files.len()], ..Booked::default() },
        held: 0,
    };
    let link: LinkId = run.book.add_link(CHANNELS);
    let path = [Path::single(link)];
    for file in files {
        let now = grid_tick(grid, file.at);
        run.advance(now);
        let volume = grid.volume(Bytes::new(file.bytes as u64), scheme.margin());
        let request = FileRequest {
            policy: scheme.policy,
            ..FileRequest::new(volume.unwrap_or(u64::MAX), file.max_rate, now)
        };
        let booked = run.book.book(&Request::File(request), &path);
        if let Ok(id) = booked
            && scheme.replan
        {
            run.replan(id, &request, now);
        }
        if let Some(profile) = run.book.links().profile(link) {
            run.out.change_points += profile.segment_count() as f64;
            run.out.memory += profile.memory() as f64;
        }
    }
    run.advance(u64::MAX - 1);
    run.finish()
}

struct Run<'a> {
    book: Book,
    grid: Grid,
    files: &'a [Arrival],
    last: u64,
    out: Booked,
    held: u64,
}

impl Run<'_> {
    /// Nothing can move forward while everybody has Rmax.
    fn replan(&mut self, id: BookingId, request: &FileRequest, now: u64) {
        let ideal = now + request.volume.div_ceil(u64::from(request.max_rate)) + self.guard();
        if self.book.get(id).is_some_and(|b| b.finish() > ideal) {
            self.book.replan(Order::ShortestFirst);
            // It exists, so this cannot fail.
            let _ = self.book.tighten(id);
        }
    }

    fn guard(&self) -> u64 {
        self.book.config().guard
    }

    fn advance(&mut self, now: u64) {
        for (id, booking) in self.book.advance(now) {
            let index = id.0 as usize;
            let finish = self.grid.instant(booking.finish()).as_nanos() as f64 * 1e-9;
            self.out.delays[index] = finish - self.files[index].at;
            self.out.ranges += booking.vector.merged().count() as f64;
            let Request::File(file) = booking.request else { continue };
            let area = booking.vector.area();
            self.out.useful += file.volume as f64;
            self.out.booked += area as f64;
            let early = booking.vector.merged().map(|r| {
                let end = r.end.min(self.last);
                end.saturating_sub(r.start) * u64::from(r.rate)
            });
            self.held += early.sum::<u64>();
        }
    }

    fn finish(mut self) -> Booked {
        let count = self.files.len() as f64;
        self.out.useful /= self.out.booked;
        self.out.booked = self.held as f64 / (self.last as f64 * f64::from(CHANNELS));
        self.out.ranges /= count;
        self.out.change_points /= count;
        self.out.memory /= count;
        self.out
    }
}

/// The first tick at or after an instant given in seconds.
pub(crate) fn grid_tick(grid: Grid, seconds: f64) -> u64 {
    grid.tick_from(longhaul_units::Instant::from_nanos((seconds * 1e9).round() as u64))
}

//! Speed of the calendar's decisions: in process, on the paper's workload at 80 % load.
//!
//! A link is filled with the paper's requests until it carries the wanted number of breakpoints.
//! Then requests are planned and booked one at a time at random instants of that future, with old
//! bookings released (and timed apart) so that the load stays what it is. The long path is a chain
//! of links whose load are files between any two of its nodes; it is the busiest link that has
//! the wanted load and breakpoints. Previews are timed in turn while nobody books, while another
//! thread books in another book, while it books in the one that they look at, and while it does so
//! only as fast as the service does at its full load: the second is what processors and memory that
//! are shared cost, the others what the calendar adds. Turns are short, since what else the machine
//! does changes. Latencies come from the monotonic clock around each operation, which is some 25 ns
//! of each; on a machine with other work they include waiting for a processor. Rates come from the
//! thread's processor time over batches of operations, which do not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use longhaul_calendar::{
    Book, BookConfig, BookingId, FileRequest, Grid, LinkId, LinkSet, Margin, Path, Policy, Request,
};
use longhaul_units::Bytes;
use serde::Serialize;

use crate::simulate::booked::Scheme;
use crate::simulate::workload::{self, CHANNELS, Draw};

/// The measurement to make.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Breakpoints on the link, about, and on the busiest link of the long path.
    pub breakpoints: usize,
    /// Load of that link.
    pub load: f64,
    /// Decisions to time.
    pub decisions: usize,
    /// Links of the long path.
    pub links: usize,
    /// Time in which previews are timed, without and with bookings beside them.
    pub preview_time: Duration,
    /// Bookings between two snapshots that previews see.
    pub snapshot_every: usize,
    /// Seed of the requests.
    pub seed: u64,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            breakpoints: 100_000,
            load: 0.8,
            decisions: 500_000,
            links: 10,
            preview_time: Duration::from_secs(2),
            snapshot_every: 64,
            seed: 1,
        }
    }
}

/// Times of one kind of operation.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Operations timed.
    pub count: u64,
    /// Operations a second of processor time spent in them, the timing of each included.
    pub per_second: f64,
    /// Median, nanoseconds.
    pub p50: u64,
    /// 99th percentile, nanoseconds.
    pub p99: u64,
    /// 99.9th percentile, nanoseconds.
    pub p999: u64,
    /// Longest, nanoseconds.
    pub max: u64,
}

/// Results of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// Breakpoints on the link after the VBLS decisions.
    pub breakpoints: usize,
    /// Booked share of the link's filled future.
    pub load: f64,
    /// Median of the change points that a decision scanned.
    pub median_scan: u64,
    /// VBLS decisions on one link, booking included.
    pub vbls: Latency,
    /// Releases on one link.
    pub release: Latency,
    /// FBLS decisions on one link, booking included.
    pub fbls: Latency,
    /// Links of the long path.
    pub links: usize,
    /// VBLS decisions on the long path, booking on each of its links included.
    pub path: Latency,
    /// Previews on a snapshot, which is taken for each, nobody booking.
    pub preview_idle: Latency,
    /// The same while another thread books as fast as it can in a book of its own, which is as large.
    pub preview_elsewhere: Latency,
    /// The same while that thread books in the book that is looked at.
    pub preview_loaded: Latency,
    /// The same while it books there as the service does at its full load: in groups of
    /// [`SERVICE_GROUP`], [`SERVICE_GROUPS`] a second.
    pub preview_served: Latency,
    /// Decisions and releases that that thread reached meanwhile, with snapshots handed out.
    pub bookings_beside_previews: Latency,
}

/// Runs the benchmark. `progress` gets the name of the next measurement.
pub fn run(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> BenchReport {
    progress("filling the link");
    let mut bed = Bed::new(options, 1);
    progress("VBLS decisions");
    let (vbls, release, median_scan) = bed.decide(options.decisions, Policy::Earliest);
    let breakpoints = bed.breakpoints();
    progress("FBLS decisions");
    let (fbls, _, _) = bed.decide(options.decisions / 4, Policy::Fixed);
    progress("filling another link");
    let mut other = Bed::new(&BenchOptions { seed: options.seed + 1, ..options.clone() }, 1);
    progress("previews");
    let [preview_idle, preview_elsewhere, preview_loaded, preview_served, beside_previews] =
        bed.previews(&mut other, options);
    let load = bed.load();
    drop((bed, other));
    progress("filling the path");
    let mut long = Bed::new(options, options.links);
    progress("decisions on the path");
    let path = long.decide_on_path(options.decisions / 20);
    BenchReport {
        breakpoints,
        load,
        median_scan,
        vbls,
        release,
        fbls,
        links: options.links,
        path,
        preview_idle,
        preview_elsewhere,
        preview_loaded,
        preview_served,
        bookings_beside_previews: beside_previews,
    }
}

/// The results as a table.
pub fn table(report: &BenchReport) -> String {
    let mut out = format!(
        "{} breakpoints, load {:.2}, median scan {} change points\n\n\
         | operation | per second | p50, us | p99, us | p99.9, us | max, us |\n\
         |---|---|---|---|---|---|\n",
        report.breakpoints, report.load, report.median_scan
    );
    let path = format!("VBLS and booking, {} links", report.links);
    for (name, latency) in [
        ("VBLS and booking", report.vbls),
        ("FBLS and booking", report.fbls),
        ("release", report.release),
        (path.as_str(), report.path),
        ("preview, nobody booking", report.preview_idle),
        ("preview beside bookings elsewhere", report.preview_elsewhere),
        ("preview under booking load", report.preview_loaded),
        ("preview under the service's load", report.preview_served),
        ("VBLS and booking beside previews", report.bookings_beside_previews),
    ] {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        out += &format!(
            "| {name} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} |\n",
            latency.per_second,
            micros(latency.p50),
            micros(latency.p99),
            micros(latency.p999),
            micros(latency.max)
        );
    }
    out
}

/// Links that are booked far into the future.
struct Bed {
    book: Book,
    grid: Grid,
    draw: Draw,
    ids: Vec<LinkId>,
    /// Bookings in no order.
    live: Vec<Live>,
    /// Their sum on the first link's filled future, in channel ticks.
    booked: u64,
    target: f64,
    span: u64,
}

/// A booking and what it takes of the first link's filled future, in channel ticks.
struct Live {
    id: BookingId,
    area: u64,
}

impl Bed {
    fn new(options: &BenchOptions, links: usize) -> Self {
        let grid = Scheme::new(Policy::Earliest).grid();
        let mut book = Book::new(BookConfig::default(), 0);
        let ids = (0..links).map(|_| book.add_link(CHANNELS)).collect();
        let mut bed = Self {
            book,
            grid,
            draw: Draw::new(options.seed),
            ids,
            live: Vec::new(),
            booked: 0,
            target: options.load,
            span: 0,
        };
        // Of the pairs of nodes, so many have the middle link between them.
        let middle = (links - 1) / 2;
        let crossing = ((middle + 1) * (links - middle)) as f64 / (links * (links + 1) / 2) as f64;
        let gap = crossing / workload::rate_for(options.load);
        // Booking at random instants leaves more breakpoints than filling in order does.
        let breakpoints = options.breakpoints / 2;
        let mut filling = Vec::new();
        let mut at = 0.0;
        while bed.book.links().profiles()[middle].segment_count() < breakpoints {
            at += bed.draw.exponential(gap);
            let request = bed.request((at * 1e6) as u64, Policy::Earliest);
            let path: Vec<Path> = Path::new(bed.stretch()).into_iter().collect();
            filling.extend(bed.book.book(&request, &path));
        }
        bed.span = (at * 1e6) as u64;
        filling.into_iter().for_each(|id| bed.hold(id));
        bed
    }

    fn hold(&mut self, id: BookingId) {
        let here = self.book.get(id).filter(|booking| booking.path.links().contains(&self.ids[0]));
        let area = here.map_or(0, |booking| booking.vector.delivered_before(self.span));
        self.booked += area;
        self.live.push(Live { id, area });
    }

    /// The links between two nodes.
    fn stretch(&mut self) -> &[LinkId] {
        let links = self.ids.len();
        let from = self.draw.below(links + 1);
        let to = (from + 1 + self.draw.below(links)) % (links + 1);
        &self.ids[from.min(to)..from.max(to)]
    }

    fn request(&mut self, earliest: u64, policy: Policy) -> Request {
        let bytes = self.draw.file_bytes();
        let volume = self.grid.volume(Bytes::new(bytes as u64), Margin::NONE).unwrap_or(u64::MAX);
        let file = FileRequest::new(volume, self.draw.max_rate(), earliest);
        Request::File(FileRequest { policy, ..file })
    }

    fn request_anywhere(&mut self, policy: Policy) -> Request {
        let earliest = (self.draw.unit() * self.span as f64) as u64;
        self.request(earliest, policy)
    }

    /// Releases bookings of the first link until its load is what it should be.
    fn make_room(&mut self, times: &mut Times) {
        while self.load() > self.target && self.live.len() >= RELEASE_BATCH {
            let gone: [BookingId; RELEASE_BATCH] = std::array::from_fn(|_| {
                let index = self.draw.below(self.live.len());
                let gone = self.live.swap_remove(index);
                self.booked -= gone.area;
                gone.id
            });
            let book = &mut self.book;
            times.batch(|times| {
                for id in gone {
                    // It is live, so this cannot fail.
                    let _ = times.time(|| book.release(id));
                }
            });
        }
    }

    /// Times decisions on the first link; also the releases between them and the median scan.
    fn decide(&mut self, count: usize, policy: Policy) -> (Latency, Latency, u64) {
        let path = [Path::single(self.ids[0])];
        // The first tenth replaces what the filling left behind and is not counted.
        self.batches(count / 10, policy, &path, [&mut Times::new(), &mut Times::new()]);
        let (mut decisions, mut releases) = (Times::new(), Times::new());
        let scans = self.batches(count, policy, &path, [&mut decisions, &mut releases]);
        (decisions.latency(), releases.latency(), scans)
    }

    /// Books `count` requests in batches, with releases between; returns the median scan.
    fn batches(
        &mut self,
        count: usize,
        policy: Policy,
        path: &[Path],
        [decisions, releases]: [&mut Times; 2],
    ) -> u64 {
        let mut scans = Times::new();
        for done in (0..count).step_by(BATCH) {
            let size = BATCH.min(count - done);
            let requests: Vec<Request> = (0..size).map(|_| self.request_anywhere(policy)).collect();
            let book = &mut self.book;
            let booked: Vec<Option<BookingId>> = decisions.batch(|times| {
                requests.iter().map(|r| times.time(|| book.book(r, path)).ok()).collect()
            });
            for id in booked.into_iter().flatten() {
                self.hold(id);
                scans.count(self.book.get(id).map_or(0, |b| b.vector.len() as u64));
            }
            self.make_room(releases);
        }
        scans.latency().p50
    }

    /// Times decisions on the path over all links; few are held at a time.
    fn decide_on_path(&mut self, count: usize) -> Latency {
        let Some(path) = Path::new(&self.ids) else { return Times::new().latency() };
        let path = [path];
        let mut times = Times::new();
        for _ in 0..count.div_ceil(PATH_BATCH) {
            let requests: Vec<Request> =
                (0..PATH_BATCH).map(|_| self.request_anywhere(Policy::Earliest)).collect();
            let book = &mut self.book;
            let booked: Vec<Option<BookingId>> = times.batch(|times| {
                requests.iter().map(|r| times.time(|| book.book(r, &path)).ok()).collect()
            });
            for id in booked.into_iter().flatten() {
                // It was just booked, so this cannot fail.
                let _ = self.book.release(id);
            }
        }
        times.latency()
    }

    /// Previews while nobody books, beside bookings in the other book, beside bookings in this one
    /// as fast as can be and as fast as the service; and the decisions of the third.
    fn previews(&mut self, other: &mut Self, options: &BenchOptions) -> [Latency; 5] {
        let (own, others) = (Mutex::new(self.snapshot()), Mutex::new(other.snapshot()));
        let span = self.span;
        let mut draw = Draw::new(options.seed ^ 0x9e37_79b9);
        let [mut idle, mut elsewhere, mut loaded, mut served, mut decisions, mut unused] =
            std::array::from_fn(|_| Times::new());
        for _ in 0..TURNS {
            let mut previews = |times: &mut Times, meanwhile: &mut dyn FnMut()| {
                previews_while(meanwhile, options.preview_time / TURNS, |stop| {
                    preview_until(&own, span, &mut draw, times, stop);
                });
            };
            previews(&mut idle, &mut || std::thread::sleep(Duration::from_millis(1)));
            previews(&mut elsewhere, &mut || {
                other.book_and_show(&others, options.snapshot_every, &mut unused);
            });
            previews(&mut loaded, &mut || {
                self.book_and_show(&own, options.snapshot_every, &mut decisions);
            });
            previews(&mut served, &mut || {
                let next = Instant::now() + Duration::from_secs(1) / SERVICE_GROUPS;
                self.book_and_show(&own, SERVICE_GROUP, &mut unused);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            });
        }
        [idle, elsewhere, loaded, served, decisions].map(|times| times.latency())
    }

    /// Books `count` requests and hands out a snapshot.
    fn book_and_show(&mut self, shown: &Mutex<LinkSet>, count: usize, decisions: &mut Times) {
        let path = [Path::single(self.ids[0])];
        self.batches(count, Policy::Earliest, &path, [decisions, &mut Times::new()]);
        let snapshot = self.snapshot();
        if let Ok(mut shown) = shown.lock() {
            *shown = snapshot;
        }
    }

    fn snapshot(&self) -> LinkSet {
        self.book.links().clone()
    }

    fn breakpoints(&self) -> usize {
        self.book.links().profiles()[0].segment_count()
    }

    fn load(&self) -> f64 {
        self.booked as f64 / (self.span as f64 * f64::from(CHANNELS))
    }
}

/// Previews on a thread of their own for so long, with something done over and over on this one.
fn previews_while(
    meanwhile: &mut dyn FnMut(),
    time: Duration,
    previews: impl FnOnce(&AtomicBool) + Send,
) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| previews(&stop));
        let end = Instant::now() + time;
        while Instant::now() < end {
            meanwhile();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Plans on fresh snapshots until `stop` is set.
fn preview_until(
    shown: &Mutex<LinkSet>,
    span: u64,
    draw: &mut Draw,
    times: &mut Times,
    stop: &AtomicBool,
) {
    let grid = Scheme::new(Policy::Earliest).grid();
    let path = [Path::single(LinkId(0))];
    while !stop.load(Ordering::Relaxed) {
        let bytes = Bytes::new(draw.file_bytes() as u64);
        let volume = grid.volume(bytes, Margin::NONE).unwrap_or(u64::MAX);
        let earliest = (draw.unit() * span as f64) as u64;
        let request = Request::File(FileRequest::new(volume, draw.max_rate(), earliest));
        times.batch(|times| {
            times.time(|| {
                let snapshot = shown.lock().map(|links| links.clone());
                snapshot.map(|links| links.plan(&request, &path).is_ok()).unwrap_or(false)
            })
        });
    }
}

/// A histogram of nanoseconds, and the processor time spent.
struct Times {
    histogram: Histogram<u64>,
    processor: Duration,
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Times {
    fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("three significant digits are allowed"));
        Self { histogram, processor: Duration::ZERO }
    }

    fn time<R>(&mut self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.count(start.elapsed().as_nanos() as u64);
        result
    }

    /// Counts the processor time of some operations, each timed by itself.
    fn batch<R>(&mut self, operations: impl FnOnce(&mut Self) -> R) -> R {
        let start = processor_time();
        let result = operations(self);
        self.processor += processor_time() - start;
        result
    }

    fn count(&mut self, value: u64) {
        self.histogram.saturating_record(value);
    }

    fn latency(&self) -> Latency {
        let h = &self.histogram;
        Latency {
            count: h.len(),
            per_second: h.len() as f64 / self.processor.as_secs_f64().max(1e-9),
            p50: h.value_at_quantile(0.5),
            p99: h.value_at_quantile(0.99),
            p999: h.value_at_quantile(0.999),
            max: h.max(),
        }
    }
}

/// Bookings that the service makes durable at a time when 16 clients ask as fast as it answers, and
/// such groups a second (`--example load`, the store in memory).
pub const SERVICE_GROUP: usize = 8;
/// See [`SERVICE_GROUP`].
pub const SERVICE_GROUPS: u32 = 1300;
/// Turns of previews without bookings and beside them.
const TURNS: u32 = 50;
/// Decisions between two readings of the processor time.
const BATCH: usize = 64;
/// The same for releases.
const RELEASE_BATCH: usize = 8;
/// The same on the path, where what is held meanwhile weighs more.
const PATH_BATCH: usize = 8;

#[cfg(test)]
mod tests {
    use longhaul_calendar::Segment;

    use super::*;

    #[test]
    fn the_load_is_kept_and_everything_is_measured() {
        let options = BenchOptions {
            breakpoints: 2_000,
            decisions: 2_000,
            links: 3,
            preview_time: Duration::from_millis(20),
            ..BenchOptions::default()
        };
        let mut calls = 0;
        let report = run(&options, &mut |_| calls += 1);
        assert_eq!(calls, 7);
        assert!((0.7..0.85).contains(&report.load), "{}", report.load);
        assert!(report.breakpoints > 1_000);
        assert_eq!((report.vbls.count, report.path.count), (2_000, 104));
        assert!(table(&report).lines().count() == 13);
        let mut bed = Bed::new(&options, 2);
        bed.decide(500, Policy::Earliest);
        let span = bed.span;
        let taken = |s: Segment| u64::from(CHANNELS - s.free) * (s.end - s.start);
        let segments = bed.book.links().profiles()[0].segments(0, span);
        assert_eq!(bed.booked, segments.map(taken).sum::<u64>());
        for live in std::mem::take(&mut bed.live) {
            bed.book.release(live.id).unwrap();
        }
        assert!(bed.book.links().profiles().iter().all(|p| p.segment_count() == 1));
    }
}

//! A scenario from a seed.

use longhaul_pathsim::DuplexConfig;
use longhaul_units::{Bytes, Duration, Rate};
use longhaul_wire::Protect;

use super::line::{Line, duplex};
use super::{
    Accident, Choice, End, Fault, Meddling, Scenario, circuits, firewalls, kernel_refusals, memory,
    paths, profiles, sizes, taking,
};
use crate::draw::Draw;

pub(super) fn scenario(seed: u64) -> Scenario {
    let draw = &mut Draw::new(seed, STREAM);
    let lanes = *draw.pick(&[1, 1, 1, 2, 2, 3, 4]);
    let base = Line::drawn(draw);
    // The lanes of a connection mostly share a route.
    let alike = !draw.one_in(4);
    let lines: Vec<Line> =
        (0..lanes).map(|_| if alike { base.clone() } else { Line::drawn(draw) }).collect();
    let paths: Vec<DuplexConfig> = lines.iter().map(|line| duplex(draw, line)).collect();
    let total: u64 = lines.iter().map(|line| line.rate.as_bps()).sum();
    let profile = *draw.pick(&["auto", "auto", "auto", "fixed", "trc", "rbudp"]);
    let part = draw.between(30, 120) as u32;
    let some_rate = Rate::from_bps(total.max(5_000_000)).scale(part, 100);
    let clear = draw.one_in(2);
    let datagram_max = *draw.pick(&[1472, 1472, 1472, 1472, 8972, 8972, 1200, 1452]);
    let mut scenario = Scenario {
        push: draw.one_in(2),
        lanes,
        max_lanes: *draw.pick(&[1, 2, 4, 4, 4, 8]),
        profile,
        rate: (profile != "auto").then_some(some_rate),
        limit: (profile == "auto" && draw.one_in(4)).then_some(some_rate),
        protect: if clear {
            Protect::Clear
        } else {
            *draw.pick(&[Protect::Aead, Protect::Integrity])
        },
        fsync: !draw.one_in(8),
        capacity: Bytes::new(draw.between(4 << 20, 8 << 20)),
        entries: if draw.one_in(8) { 1 } else { draw.scaled(2, 60) },
        bytes: if draw.one_in(8) {
            draw.between(4 << 20, 12 << 20)
        } else {
            draw.scaled(1_000, 4_000_000)
        },
        paths,
        // A rate that somebody named is that of one controller.
        homes: (0..lanes).map(|lane| if alike || profile != "auto" { 0 } else { lane }).collect(),
        meddling: Meddling::draw(seed),
        ipv6: draw.one_in(4),
        pipe_delay: base.delay,
        datagram_max,
        interface_max: if draw.one_in(8) { datagram_max.min(1472) } else { datagram_max },
        batch: *draw.pick(&[1, 7, 20, 44, 64]),
        socket_buffer: Bytes::new(draw.scaled(64 << 10, 4 << 20)),
        disk_latency: draw.micros(10, 20_000),
        clocks: [clock(draw), clock(draw)],
        adversary: if draw.one_in(3) { draw.scaled(5, 200) } else { 0 },
        rest: draw.one_in(2),
        granted: !draw.one_in(100),
        authorized: !draw.one_in(100),
        ..Scenario::new(seed)
    };
    by_own_streams(&mut scenario);
    many_names(&mut scenario);
    short_buffer(&mut scenario);
    if draw.one_in(2) {
        accidents(draw, &mut scenario, &lines);
    }
    failing(&mut scenario, &lines);
    scenario.faults.sort_by_key(|fault| fault.at);
    carry(&mut scenario);
    by_subject(&mut scenario, &base, &lines);
    list(&mut scenario);
    keep(&mut scenario);
    scenario
}

/// Choices of the subjects that have a file each.
fn by_subject(scenario: &mut Scenario, base: &Line, lines: &[Line]) {
    let horizon = horizon(scenario, lines);
    firewalls::draw(scenario, horizon);
    circuits::draw(scenario, horizon);
    paths::draw(scenario, horizon);
    kernel_refusals::draw(scenario, horizon);
    sizes::draw(scenario, horizon);
    profiles::draw(scenario);
    memory::draw(scenario, base.rate, base.delay * 2);
    if let Some(slowest) = lines.iter().map(|line| line.rate).min() {
        taking::draw(scenario, slowest, horizon);
    }
}

/// Choices that came later: from streams apart, so that all else of a seed stays as it was.
fn by_own_streams(scenario: &mut Scenario) {
    let seed = scenario.seed;
    scenario.spare = spare(seed);
    scenario.hash_delay = hash_delay(seed);
    scenario.tampers = Draw::new(seed, TAMPER_STREAM).one_in(2);
    scenario.prepared = Draw::new(seed, PREPARED_STREAM).one_in(4);
    scenario.forgets = Draw::new(seed, FORGETS_STREAM).one_in(3);
    scenario.pipe = Draw::new(seed, PIPE_STREAM).one_in(6);
}

/// Up to three accidents. Most disks that are full have room again.
fn accidents(draw: &mut Draw, scenario: &mut Scenario, lines: &[Line]) {
    let horizon = horizon(scenario, lines);
    for _ in 0..draw.between(1, 3) {
        let at = Duration::from_micros(draw.below(horizon));
        let what = accident(draw, scenario);
        if matches!(what, Accident::DiskFull(_)) && !draw.one_in(4) {
            let after = Duration::from_micros(draw.scaled(1000, 5_000_000));
            scenario.faults.push(Fault { at: at + after, what: Accident::DiskFreed });
        }
        scenario.faults.push(Fault { at, what });
    }
}

/// A tree of so many names, and so long, that a stream does not take all messages about them at
/// once.
fn many_names(scenario: &mut Scenario) {
    let draw = &mut Draw::new(scenario.seed, NAMES_STREAM);
    if draw.one_in(200) && !scenario.pipe {
        (scenario.entries, scenario.name_len) = (draw.between(1_000, 2_000), 240);
        scenario.bytes = scenario.bytes.min(1_000_000);
    }
}

/// A listing in place of an eighth of the pulls.
fn list(scenario: &mut Scenario) {
    let is_pull = !scenario.push && !scenario.pipe;
    scenario.listing = is_pull && Draw::new(scenario.seed, LISTING_STREAM).one_in(8);
    if scenario.listing {
        scenario.hashes = Draw::new(scenario.seed, HASHES_STREAM).one_in(2);
        // All goes within some sixty round trips: a thing takes some twenty bytes, a hash twice that.
        let bytes = if scenario.hashes { 50 } else { 20 };
        let least = (scenario.things() * bytes / 64) as usize;
        scenario.stream_buffer = scenario.stream_buffer.max(least);
    }
}

/// Sinks that leave alone what they have, in half of the copies; in most of these an earlier copy is there.
fn keep(scenario: &mut Scenario) {
    let draw = &mut Draw::new(scenario.seed, KEEP_STREAM);
    // What somebody else has put there under the same names, sizes and times would stay.
    let is_other = scenario.pipe || scenario.listing || scenario.prepared && scenario.push;
    scenario.keeps.unchanged = !is_other && draw.one_in(2);
    scenario.copied_before = scenario.keeps.unchanged && !draw.one_in(4);
    let draw = &mut Draw::new(scenario.seed, NEWER_STREAM);
    scenario.keeps.newer = scenario.copied_before && draw.one_in(3);
    scenario.deletes = scenario.copied_before && draw.one_in(3);
    scenario.keeps.equal =
        scenario.copied_before && Draw::new(scenario.seed, EQUAL_STREAM).one_in(3);
    scenario.keeps.directories = scenario.keeps.compares()
        || !is_other && Draw::new(scenario.seed, DIRECTORIES_STREAM).one_in(2);
    // Of a sink that shows what it has.
    scenario.dry_run =
        !is_other && scenario.keeps.directories && Draw::new(scenario.seed, DRY_STREAM).one_in(4);
    let is_pulled = !scenario.push && !scenario.pipe && !scenario.listing;
    scenario.steers = is_pulled && Draw::new(scenario.seed, STEER_STREAM).one_in(4);
    // A list leaves nothing to delete, and a file alone has no names below it.
    let is_tree_pulled = !scenario.push && !is_other && scenario.entries > 1;
    scenario.lists_names =
        is_tree_pulled && !scenario.deletes && Draw::new(scenario.seed, LIST_STREAM).one_in(4);
    let is_tree = !is_other && scenario.entries > 1 && scenario.name_len == 1;
    scenario.follows = is_tree
        && scenario.sizes.is_empty()
        && !scenario.lists_names
        && Draw::new(scenario.seed, FOLLOW_STREAM).one_in(6);
}

/// A stream that takes messages in pieces, so that the last one may be written and not be on its
/// way.
fn short_buffer(scenario: &mut Scenario) {
    let draw = &mut Draw::new(scenario.seed, BUFFER_STREAM);
    if draw.one_in(2) {
        // All names go within some sixty round trips: an entry takes some fifty bytes beside its name.
        let least = (scenario.entries * (scenario.name_len as u64 + 50) / 64).max(16);
        scenario.stream_buffer = draw.scaled(least, 32 * least) as usize;
    }
}

/// Large files in a sixteenth of the worlds, of which some fail while lanes are full of them.
fn failing(scenario: &mut Scenario, lines: &[Line]) {
    let draw = &mut Draw::new(scenario.seed, FAILING_STREAM);
    if scenario.pipe || !draw.one_in(16) {
        return;
    }
    scenario.sizes = (0..draw.between(2, 5)).map(|_| draw.between(1 << 20, 6 << 20)).collect();
    (scenario.entries, scenario.bytes) =
        (scenario.sizes.len() as u64, scenario.sizes.iter().sum::<u64>());
    let horizon = horizon(scenario, lines);
    for _ in 0..draw.between(1, 3) {
        let at = Duration::from_micros(draw.below(horizon));
        let what = match draw.below(4) {
            0 => Accident::Change,
            1 => Accident::DiskFull(Bytes::new(draw.below(scenario.bytes))),
            _ => Accident::Vanish,
        };
        scenario.faults.push(Fault { at, what });
    }
}

/// TCP in a twelfth of the worlds, either carrier in an eighth.
fn carry(scenario: &mut Scenario) {
    let draw = &mut Draw::new(scenario.seed, CARRIER_STREAM);
    scenario.carrier = match draw.below(24) {
        0 | 1 => Choice::Tcp,
        2..5 => Choice::Auto,
        _ => Choice::Udp,
    };
    scenario.tunnel = Draw::new(scenario.seed, TUNNEL_STREAM).one_in(3);
}

/// Where groups are hashed late, their packets come long before their hashes.
fn hash_delay(seed: u64) -> Duration {
    let draw = &mut Draw::new(seed, HASH_STREAM);
    if draw.one_in(8) { draw.micros(1_000, 500_000) } else { Duration::ZERO }
}

/// As a sink of the product has it, or so little that memory is not there when it is asked for.
fn spare(seed: u64) -> Bytes {
    let draw = &mut Draw::new(seed, SPARE_STREAM);
    Bytes::from_mib(if draw.one_in(2) { 32 } else { draw.between(1, 8) })
}

/// Microseconds in which the transfer will probably still run.
fn horizon(scenario: &Scenario, lines: &[Line]) -> u64 {
    let line = &lines[0];
    let rate = scenario.rate.or(scenario.limit).unwrap_or(line.rate).min(line.rate);
    let moving = rate.time_for(scenario.bytes) + line.delay * 14;
    u64::try_from(moving.as_micros()).unwrap_or(u64::MAX).max(1)
}

fn accident(draw: &mut Draw, scenario: &Scenario) -> Accident {
    let end = *draw.pick(&[End::Client, End::Server]);
    match draw.below(14) {
        0 | 1 => Accident::Kill(end),
        2 | 3 => Accident::PowerCut(end),
        4 => Accident::Stall(end, draw.micros(500, 2_000_000)),
        5 => Accident::Disconnect,
        6 => Accident::Vanish,
        7 | 8 => Accident::Change,
        9 => Accident::DiskFull(Bytes::new(draw.below(scenario.bytes.max(1)))),
        10 => Accident::SyncFails,
        11 => Accident::Suspend(draw.micros(1_000, 3_000_000)),
        12 if draw.one_in(3) => Accident::Cancel,
        _ => {
            let line = Line::drawn(draw);
            let lane = draw.below(u64::from(scenario.lanes)) as u16;
            Accident::Reroute(lane, Box::new(duplex(draw, &line)))
        }
    }
}

/// Somewhere in the time that the clock on the wire takes to wrap, often close to its end.
fn clock(draw: &mut Draw) -> Duration {
    if draw.one_in(3) {
        Duration::from_micros((1 << 32) - draw.below(2_000_000))
    } else {
        Duration::from_micros(draw.below(1 << 33))
    }
}

/// Number of the stream of choices that scenarios are drawn from.
const STREAM: u64 = 1;
/// That of the delay of hashes: apart, so that all else of a seed stays as it was.
const HASH_STREAM: u64 = 27;
/// That of whether files are altered, likewise.
const TAMPER_STREAM: u64 = 28;
/// That of whether somebody has prepared the record of an earlier run, likewise.
const PREPARED_STREAM: u64 = 63;
/// That of whether the source may lose its secret, likewise.
const FORGETS_STREAM: u64 = 64;
/// That of whether it is a pipe, likewise.
const PIPE_STREAM: u64 = 29;
/// That of whether a pull is a listing instead, likewise.
const LISTING_STREAM: u64 = 65;
/// That of whether a listing is a comparison instead, likewise.
const HASHES_STREAM: u64 = 75;
/// That of what a sink leaves alone, likewise.
const KEEP_STREAM: u64 = 66;
const NEWER_STREAM: u64 = 67;
const EQUAL_STREAM: u64 = 68;
const DIRECTORIES_STREAM: u64 = 96;
/// For links that are followed.
const FOLLOW_STREAM: u64 = 99;
/// For connections through ssh.
const TUNNEL_STREAM: u64 = 100;
/// For dry runs.
const DRY_STREAM: u64 = 97;
/// For lists of names.
const LIST_STREAM: u64 = 91;
/// For rates that change.
const STEER_STREAM: u64 = 92;
/// That of whether there are many names, likewise.
const NAMES_STREAM: u64 = 30;
/// That of the carrier, likewise.
const CARRIER_STREAM: u64 = 31;
/// That of what a stream buffers, likewise.
const BUFFER_STREAM: u64 = 42;
/// That of large files that fail, likewise.
const FAILING_STREAM: u64 = 43;
/// That of the memory that a sink has to spare, likewise.
const SPARE_STREAM: u64 = 41;

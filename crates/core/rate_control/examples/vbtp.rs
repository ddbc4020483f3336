//! Prints what flow and error control cost on a booked circuit (VBLS paper, sections 4.1 and 4.2).
//!
//! The circuit loses nothing by itself and is released when everything was sent and no loss is known;
//! what is lost behind that goes another way. The receiver takes bytes out of its buffer in turns, as a
//! process that shares its processor, or a disk, does.

use std::collections::VecDeque;

use longhaul_units::{Duration, Rate};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

fn main() {
    flow_control();
    sending_rates();
    retransmission_buffer();
}

fn flow_control() {
    println!(
        "500 MB at 500 Mb/s, a receiver of 600 Mb/s: part of the booked time that the circuit is"
    );
    println!("idle, and bytes lost\n");
    println!("| round trip | receive buffer | ON/OFF | window | rate |");
    println!("|---|---|---|---|---|");
    let (rate, ability) = (Rate::from_mbps(500), Rate::from_mbps(600));
    for rtt_ms in [1, 10, 50, 100] {
        for kib in [256, 1 << 10, 4 << 10] {
            let run = |control| {
                let rtt = Duration::from_millis(rtt_ms);
                let outcome = transfer(control, rate, rtt, ability, kib << 10, 500_000_000);
                format!("{:.1} %, {:.2} %", outcome.idle * 100.0, outcome.lost * 100.0)
            };
            let [on_off, window, rate] = [Control::OnOff, Control::Window, Control::Rate].map(run);
            println!("| {rtt_ms} ms | {kib} KiB | {on_off} | {window} | {rate} |");
        }
    }
}

fn sending_rates() {
    println!("\n725 MB at a fixed rate, 1 ms, a receiver of 440 Mb/s: goodput and bytes lost\n");
    println!("| sent at, Mb/s | 256 KiB | 1 MiB | 16 MiB |");
    println!("|---|---|---|---|");
    for mbps in [100, 200, 300, 400, 440, 500, 570, 700, 900] {
        let rtt = Duration::from_millis(1);
        let cells = [256, 1 << 10, 16 << 10].map(|kib| {
            let ability = Rate::from_mbps(440);
            let rate = Rate::from_mbps(mbps);
            let outcome = transfer(Control::Rate, rate, rtt, ability, kib << 10, 725_000_000);
            format!("{:.0} Mb/s, {:.1} %", outcome.goodput_mbps, outcome.lost * 100.0)
        });
        println!("| {mbps} | {} |", cells.join(" | "));
    }
}

fn retransmission_buffer() {
    println!(
        "\n500 Mb/s for 10 s, 50 ms: part of the time that the circuit idles because the sender's"
    );
    println!("retransmission buffer is full; without loss, and with 1 %\n");
    println!("| acknowledged every | 2 MB | 4 MB | 6 MB | 8 MB | 16 MB |");
    println!("|---|---|---|---|---|---|");
    for interval_ms in [1, 10, 50, 200] {
        let cells = [2, 4, 6, 8, 16].map(|megabytes| {
            let idle = [0, 10_000].map(|ppm| {
                let interval = Duration::from_millis(interval_ms);
                full_buffer(megabytes * 1_000_000, interval, ppm) * 100.0
            });
            format!("{:.1} %, {:.1} %", idle[0], idle[1])
        });
        println!("| {interval_ms} ms | {} |", cells.join(" | "));
    }
}

/// Mechanism that decides when bytes may leave.
#[derive(Clone, Copy)]
enum Control {
    /// The receiver stops the sender while its buffer is filled so far that what is under way might
    /// not fit, or by half, and lets it go on when that has halved.
    OnOff,
    /// The receiver's buffer is the window.
    Window,
    /// Nobody: the booked rate, always.
    Rate,
}

struct Outcome {
    /// Part of the booked area that was not sent.
    idle: f64,
    /// Part of what was sent that the receiver had no room for.
    lost: f64,
    goodput_mbps: f64,
}

/// Report of the receiver, known half a round trip later.
#[derive(Clone, Copy, Default)]
struct News {
    taken_out: u64,
    lost: u64,
    stop: bool,
}

/// A fluid in steps of 10 us.
fn transfer(
    control: Control,
    rate: Rate,
    rtt: Duration,
    ability: Rate,
    buffer: u64,
    bytes: u64,
) -> Outcome {
    let most = rate.bytes_in(STEP);
    let way = (rtt.as_nanos() / STEP.as_nanos() / 2) as usize;
    let mut there: VecDeque<u64> = vec![0; way].into();
    let mut back: VecDeque<News> = vec![News::default(); way].into();
    let high = buffer - rate.bytes_in(rtt).min(buffer / 2);
    let mut receiver = Receiver::new(ability);
    let (mut sent, mut filled, mut latest) = (0, 0, News::default());
    for step in 1.. {
        back.push_back(latest);
        let news = back.pop_front().unwrap_or_default();
        let allowed = match control {
            Control::OnOff if news.stop => 0,
            Control::OnOff | Control::Rate => most,
            Control::Window => (news.taken_out + news.lost + buffer).saturating_sub(sent).min(most),
        };
        let out = allowed.min(bytes + news.lost - sent);
        sent += out;
        there.push_back(out);
        let arriving = there.pop_front().unwrap_or_default();
        let room = arriving.min(buffer - filled);
        latest.lost += arriving - room;
        filled += room;
        let taken = receiver.takes().min(filled);
        filled -= taken;
        latest.taken_out += taken;
        latest.stop = if latest.stop { filled > high / 2 } else { filled > high };
        if sent == bytes + news.lost {
            let lost = latest.lost as f64 / sent as f64;
            let seconds = step as f64 * STEP.as_secs_f64();
            return Outcome {
                idle: 1.0 - sent as f64 / (step * most) as f64,
                lost,
                goodput_mbps: sent as f64 * (1.0 - lost) * 8.0 / seconds / 1e6,
            };
        }
    }
    unreachable!("the steps do not end")
}

/// Takes bytes for some 40 ms, and rests for some 10 ms.
struct Receiver {
    running: u64,
    runs: bool,
    left: u64,
    rng: Xoshiro256PlusPlus,
}

impl Receiver {
    /// One that takes `ability` on average.
    fn new(ability: Rate) -> Self {
        let running = ability.scale(5, 4).bytes_in(STEP);
        Self { running, runs: true, left: 4000, rng: Xoshiro256PlusPlus::seed_from_u64(1) }
    }

    /// Bytes that it would take in this step.
    fn takes(&mut self) -> u64 {
        if self.left == 0 {
            self.runs = !self.runs;
            let mean = if self.runs { 4000 } else { 1000 };
            self.left = mean / 2 + self.rng.next_u64() % mean;
        }
        self.left -= 1;
        if self.runs { self.running } else { 0 }
    }
}

/// Packet by packet: the part of the time that `buffer` bytes were all sent and not acknowledged. Gaps
/// are reported at once, what arrived every `interval`; lost packets go before new ones.
fn full_buffer(buffer: u64, interval: Duration, loss_ppm: u64) -> f64 {
    let packet = Rate::from_mbps(500).time_for(PACKET);
    let slots = |time: Duration| (time.as_nanos() / packet.as_nanos()) as usize;
    let (way, interval) = (slots(Duration::from_millis(25)), slots(interval).max(1));
    let total = slots(Duration::from_secs(10));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    // Packets that are released, and reported lost, at each moment.
    let mut released = vec![0; total + 2 * way + 2 * interval];
    let mut missing = released.clone();
    let (mut held, mut resends, mut idle) = (0, 0, 0);
    for now in 0..total {
        held -= released[now];
        resends += missing[now];
        if resends > 0 {
            resends -= 1;
        } else if (held + 1) * PACKET <= buffer {
            held += 1;
        } else {
            idle += 1;
            continue;
        }
        if rng.next_u64() % 1_000_000 < loss_ppm {
            // The next packet shows it.
            missing[now + 1 + 2 * way] += 1;
        } else {
            released[(now + way).next_multiple_of(interval) + way] += 1;
        }
    }
    idle as f64 / total as f64
}

const STEP: Duration = Duration::from_micros(10);
const PACKET: u64 = 1500;

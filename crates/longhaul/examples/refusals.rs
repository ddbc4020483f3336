//! What steps suit the sender's bound: how much a host's own stack takes, and how much it refuses,
//! while the rate falls and rises by them.
//!
//! Two network namespaces of its own, between them a line of the kernel's (HTB) behind a socket with
//! a small send buffer, which refuses what does not fit. Needs the right to make namespaces. Prints a
//! row for each pair of steps:
//! `cargo run --release -p longhaul --example refusals [SECONDS]`.

use std::error::Error;
use std::io::IoSlice;
use std::net::SocketAddr;

use longhaul_rate_control::{Pacer, Pacing};
use longhaul_sys::clock;
use longhaul_sys::netns::{DEVICE, NetnsPair, Side};
use longhaul_sys::traffic_control::{Change, Class, Egress, burst};
use longhaul_sys::udp::{Route, UdpOptions, UdpSocket, Wait};
use longhaul_units::{Duration, Instant, Rate};

/// Steps of the rate: of what is left when packets are refused, and of what is added when none are,
/// in eighths. What is added may double from round trip to round trip.
#[derive(Clone, Copy)]
struct Steps {
    fall: u32,
    rise: u32,
    doubles: bool,
}

/// A host that takes so much, and holds so much.
#[derive(Clone, Copy)]
struct Host {
    rate: Rate,
    buffer: usize,
    round_trip: Duration,
}

/// What became of it.
struct Outcome {
    taken: f64,
    refused: f64,
    back_after: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    let pair = NetnsPair::new(1500)?;
    let hosts = [(1, 256), (20, 256), (100, 256), (20, 2048)].map(|(ms, kib)| Host {
        rate: Rate::from_mbps(500),
        buffer: kib << 10,
        round_trip: Duration::from_millis(ms),
    });
    println!(
        "500 Mb/s; of it taken, refused of what was offered, time until 90 % go again after half"
    );
    println!("a second in which nothing did; by round trip and send buffer\n");
    println!(
        "| falls to | rises by | 1 ms, 256 KiB | 20 ms, 256 KiB | 100 ms, 256 KiB | 20 ms, 2 MiB |"
    );
    println!("|---|---|---|---|---|---|");
    for fall in [4, 6, 7] {
        for (rise, doubles) in [(1, false), (2, false), (1, true)] {
            let steps = Steps { fall, rise, doubles };
            let more = if doubles { ", doubling" } else { "" };
            print!("| {fall}/8 | {rise}/8{more} ");
            for host in hosts {
                let Outcome { taken, refused, back_after } = measure(&pair, host, steps, time)?;
                let back = back_after.as_secs_f64();
                print!("| {:.1} %, {:.1} %, {back:.2} s ", taken * 100.0, refused * 100.0);
            }
            println!("|");
        }
    }
    Ok(())
}

fn measure(
    pair: &NetnsPair,
    host: Host,
    steps: Steps,
    time: Duration,
) -> Result<Outcome, Box<dyn Error>> {
    let mut egress = pair.run_in(Side::A, || Egress::of(DEVICE))??;
    let class = |rate| Class {
        number: 1,
        parent: 0,
        rate,
        ceiling: rate,
        burst: burst(rate, 1514),
        priority: 0,
    };
    let mut line = |rate| {
        let _ = egress.apply(&[Change::Clear]);
        let changes = [Change::AddHtb { default: 1 }, Change::AddClass(class(rate))];
        egress.apply(&changes).into_iter().collect::<Result<Vec<()>, _>>()
    };
    line(host.rate)?;
    let mut options = UdpOptions::default();
    options.send_buffer = host.buffer;
    let local = SocketAddr::new(Side::A.ipv4(), 0);
    let socket = pair.run_in(Side::A, || UdpSocket::bind(local, &options))??;
    let mut sender = Sender::new(socket, host, steps);
    // The bound settles.
    sender.run(Duration::from_secs(1).max(host.round_trip * 10))?;
    let before = (sender.taken, sender.refused);
    sender.run(time.max(host.round_trip * 20))?;
    let time = time.max(host.round_trip * 20);
    let (taken, refused) = (sender.taken - before.0, sender.refused - before.1);
    line(Rate::from_kbps(8))?;
    sender.run(Duration::from_millis(500))?;
    line(host.rate)?;
    let (back, slice) = (clock::now(), Duration::from_millis(20));
    let mut last = sender.taken;
    while clock::now() - back < MOST_TIME {
        sender.run(slice)?;
        if sender.taken - last >= host.rate.bytes_in(slice) * 9 / 10 {
            break;
        }
        last = sender.taken;
    }
    let back_after = clock::now() - back;
    Ok(Outcome {
        taken: taken as f64 / host.rate.bytes_in(time) as f64,
        refused: refused as f64 / (taken + refused).max(1) as f64,
        back_after,
    })
}

/// Offers at the bound, or at four times what the host takes.
struct Sender {
    socket: UdpSocket,
    route: Route,
    host: Host,
    steps: Steps,
    limit: Option<Rate>,
    rise: u32,
    since: Instant,
    /// Packets were refused in the second half of the present round trip.
    refusing: bool,
    pacer: Pacer,
    payload: Vec<u8>,
    /// Bytes with headers.
    taken: u64,
    refused: u64,
}

impl Sender {
    fn new(socket: UdpSocket, host: Host, steps: Steps) -> Self {
        let pacing = Pacing { rate: host.rate, burst: 2 * PACKET, window: None };
        Self {
            socket,
            route: Route::to(SocketAddr::new(Side::B.ipv4(), 9)),
            host,
            steps,
            limit: None,
            rise: steps.rise,
            since: clock::now(),
            refusing: false,
            pacer: Pacer::new(clock::now(), pacing),
            payload: vec![0; 44 * PAYLOAD],
            taken: 0,
            refused: 0,
        }
    }

    fn run(&mut self, time: Duration) -> std::io::Result<()> {
        let end = clock::now() + time;
        loop {
            let now = clock::now();
            if now >= end {
                return Ok(());
            }
            let wanted = self.host.rate.scale(4, 1);
            let rate = self.limit.unwrap_or(wanted);
            let burst = rate.bytes_in(Duration::from_micros(500)).clamp(2 * PACKET, 64 << 10);
            self.pacer.set(now, Pacing { rate, burst, window: None });
            let packets = (burst / 2 / PACKET).clamp(1, 44);
            if let Some(at) = self.pacer.earliest(now, packets * PACKET) {
                std::thread::sleep((at - now).min(end - now));
                continue;
            }
            self.pacer.on_sent(now, packets * PACKET);
            let bytes = &self.payload[..packets as usize * PAYLOAD];
            let slices = [IoSlice::new(bytes)];
            let segment = (packets > 1).then_some(PAYLOAD as u16);
            let sent = self.socket.send(&self.route, &slices, segment, Wait::No).unwrap_or(0);
            let sent = (sent / PAYLOAD) as u64;
            self.taken += sent * PACKET;
            self.refused += (packets - sent) * PACKET;
            self.learn(now, rate, sent == packets, wanted);
        }
    }

    /// As [`longhaul_rate_control::Governor`] does, with other steps.
    fn learn(&mut self, now: Instant, rate: Rate, all: bool, wanted: Rate) {
        let passed = now - self.since;
        self.refusing |= !all && passed >= self.host.round_trip / 2;
        if passed < self.host.round_trip && (all || self.limit.is_some()) {
            return;
        }
        if !all || self.refusing {
            let least = Rate::from_bytes_over(2 * PACKET, self.host.round_trip);
            self.limit = Some(rate.scale(self.steps.fall, 8).max(least));
            self.rise = self.steps.rise;
        } else {
            let raised = self.limit.map(|limit| limit.scale(8 + self.rise, 8));
            self.limit = raised.filter(|limit| *limit < wanted);
            self.rise = if self.steps.doubles { (self.rise * 2).min(8) } else { self.rise };
        }
        (self.since, self.refusing) = (now, false);
    }
}

const PAYLOAD: usize = 1472;
const PACKET: u64 = 1500;
const MOST_TIME: Duration = Duration::from_secs(20);

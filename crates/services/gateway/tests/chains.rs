//! Sessions over chains of one to four gateways that stall, die and close in any order, drawn by
//! seed: the forwarding code that ships, over segments in memory and a clock of its own.
//!
//! `cargo xtask chains --seeds N --from S` runs others than the first, and replays one.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use longhaul_gateway::Ending;
use longhaul_gateway::entry::HeaderEntry;
use longhaul_gateway::policy::{Destinations, Policy};
use longhaul_gateway::pump::Pool;
use longhaul_gateway::session::{Context, Session, Turn};
use longhaul_gateway::shared::Shared;
use longhaul_gateway::transport::memory::{Link, Memory, Network};
use longhaul_gateway::transport::{Direction, Listener, Segment, SegmentSettings, Transport};
use longhaul_relay::{Addressed, Clock, Dialled, Dialler, Gatekeeper, Place, Route, Side, Target};
use longhaul_session::Token;
use longhaul_units::{Duration, Instant};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

thread_local! {
    static NONCE: Cell<u128> = const { Cell::new(1) };
}

fn random() -> std::io::Result<[u8; 16]> {
    Ok(NONCE.with(|nonce| {
        nonce.set(nonce.get() + 1);
        nonce.get().to_be_bytes()
    }))
}

struct Draw(Xoshiro256PlusPlus);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn host(number: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number as u8).into()
}

fn at(number: usize) -> SocketAddr {
    SocketAddr::new(host(number), 7421)
}

fn token() -> Token {
    Token::from_random([7; 16])
}

fn clock(now: Instant) -> Clock {
    Clock::from_micros(1_800_000_000_000_000 + now.as_nanos() / 1000)
}

struct Gateway {
    shared: Arc<Shared>,
    listener: Box<dyn Listener>,
    sessions: Vec<Session>,
    endings: Vec<Ending>,
    /// The machine gives its program no time.
    stalled: (Instant, Instant),
    was_stalled: bool,
}

impl Gateway {
    fn new(memory: Memory, number: usize, stalled: (Instant, Instant)) -> Self {
        let rules = (1..=6).map(|host| format!("10.0.0.{host}").parse().unwrap()).collect();
        let policy = Policy {
            via_key: Some(token().key()),
            destinations: Destinations::new(rules),
            max_sessions: 10,
            max_sessions_per_client: 10,
            memory: u64::MAX,
            ..Policy::default()
        };
        let keys = [&token()].into_iter().collect();
        let gatekeeper = Gatekeeper::new(keys, None, clock(Instant::ZERO));
        let listener = memory.listen(at(number), &SegmentSettings::default()).unwrap();
        let shared = Arc::new(Shared::new(policy, gatekeeper, vec![Arc::new(memory)], 1_000_000));
        let (sessions, endings) = (Vec::new(), Vec::new());
        Self { shared, listener, sessions, endings, stalled, was_stalled: false }
    }

    fn run(&mut self, now: Instant, looks: bool, pool: &mut Pool, draw: &mut Draw) {
        let was_stalled =
            std::mem::replace(&mut self.was_stalled, now >= self.stalled.0 && now < self.stalled.1);
        if self.was_stalled {
            return;
        }
        // The first look then finds all that came meanwhile.
        let looks = looks || was_stalled;
        while let Some((segment, peer)) = self.listener.accept().unwrap() {
            let admission = self.shared.arrive(peer.ip());
            let entry = Box::new(HeaderEntry::default());
            self.sessions.push(Session::new(admission, entry, segment, peer, now).unwrap());
        }
        let mut index = 0;
        while index < self.sessions.len() {
            let session = &mut self.sessions[index];
            let mut cx = Context { now, clock: clock(now), random, pool };
            for side in Side::BOTH {
                if let Some(link) = session.link(side) {
                    (link.readable, link.writable) = (true, !draw.one_in(8));
                }
            }
            let mut over = None;
            if looks && let Turn::Over(ending) = session.look(&mut cx) {
                over = Some(ending);
            }
            for _ in 0..8 {
                match over {
                    Some(_) => break,
                    None => match session.run(&mut cx) {
                        Turn::More | Turn::Dialled => {}
                        Turn::Waiting => break,
                        Turn::Resolve(place) => panic!("{place} is an address"),
                        Turn::Over(ending) => over = Some(ending),
                    },
                }
            }
            match over {
                Some(ending) => {
                    self.sessions.remove(index);
                    self.endings.push(ending);
                }
                None => index += 1,
            }
        }
    }
}

/// Ending of a stream of bytes, as its reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Broken,
}

/// A client or a target: sends all of something, and reads what comes.
struct Program {
    segment: Option<Box<dyn Segment>>,
    out: Vec<u8>,
    sent: usize,
    has_shut: bool,
    received: Vec<u8>,
    end: Option<End>,
    dialler: Option<Dialler>,
    was_refused: bool,
    laziness: u64,
    cannot_write: bool,
    /// It leaves without a word after so many bytes.
    leaves_after: Option<usize>,
    /// It ends what it sends only when the other has.
    waits_for_end: bool,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sent, out, has_shut, received, end, segment, .. } = self;
        let (received, left) = (received.len(), out.len() - sent);
        write!(
            f,
            "{received} received, {left} left, shut {has_shut}, {end:?}, {}",
            segment.is_some()
        )
    }
}

impl Program {
    fn new(out: Vec<u8>, draw: &mut Draw) -> Self {
        Self {
            segment: None,
            out,
            sent: 0,
            has_shut: false,
            received: Vec::new(),
            end: None,
            dialler: None,
            was_refused: false,
            laziness: 1 + draw.below(6),
            cannot_write: false,
            leaves_after: draw.one_in(12).then(|| draw.below(100_000) as usize),
            waits_for_end: false,
        }
    }

    fn run(&mut self, draw: &mut Draw) {
        let Some(segment) = &mut self.segment else { return };
        match segment.connected() {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => return self.break_off(),
        }
        let leaves = self.leaves_after.is_some_and(|after| self.sent + self.received.len() > after);
        if leaves {
            return self.break_off();
        }
        let mut buffer = vec![0; 1 + draw.below(40_000) as usize];
        for _ in 0..4 {
            if self.end == Some(End::Clean) || draw.below(self.laziness) > 0 {
                break;
            }
            match segment.read(&mut buffer) {
                Ok(None) => break,
                Ok(Some(0)) if self.dialler.is_some() => return self.break_off(),
                Ok(Some(0)) => self.end = Some(End::Clean),
                Ok(Some(len)) => match &mut self.dialler {
                    None => self.received.extend_from_slice(&buffer[..len]),
                    Some(dialler) => match dialler.receive(&buffer[..len]).unwrap() {
                        Dialled::Incomplete => {}
                        Dialled::Connected { length, .. } => {
                            self.received.extend_from_slice(&buffer[length..len]);
                            self.dialler = None;
                        }
                        Dialled::Refused(_) => {
                            self.was_refused = true;
                            return self.break_off();
                        }
                        Dialled::Unproven(answer) => panic!("{answer:?}"),
                    },
                },
                Err(_) => return self.break_off(),
            }
        }
        while self.sent < self.out.len() && !self.cannot_write {
            let until = self.out.len().min(self.sent + 1 + draw.below(30_000) as usize);
            match segment.write(&self.out[self.sent..until]) {
                Ok(Some(len)) => self.sent += len,
                Ok(None) => break,
                // There may be something to read before the end.
                Err(_) => {
                    self.cannot_write = true;
                    break;
                }
            }
        }
        if self.cannot_write && self.end == Some(End::Clean) {
            return self.break_off();
        }
        let may_end = !self.waits_for_end || self.end == Some(End::Clean);
        if self.sent == self.out.len() && !self.has_shut && may_end {
            segment.shut_down(Direction::Writing).unwrap();
            self.has_shut = true;
        }
        if self.has_shut && self.end == Some(End::Clean) {
            match segment.end_is_acknowledged() {
                Ok(true) => self.segment = None,
                Ok(false) => {}
                Err(_) => self.segment = None,
            }
        }
    }

    /// The connection is lost, or given up.
    fn break_off(&mut self) {
        self.segment = None;
        if self.end != Some(End::Clean) {
            self.end = Some(End::Broken);
        }
    }
}

fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i * 31 + i / 251 + salt) as u8).collect()
}

/// A chain's misfortune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// A link is dark for some seconds.
    Dark(usize, u64),
    /// A gateway's program is killed.
    Killed(usize),
    /// A host is gone.
    Vanished(usize),
}

fn chain(seed: u64) {
    NONCE.set(1);
    let mut draw = Draw(Xoshiro256PlusPlus::seed_from_u64(seed));
    let count = 1 + draw.below(4) as usize;
    let (client_host, target_host) = (0, count + 1);
    let fault_at = Instant::ZERO + Duration::from_millis(draw.below(3_000));
    let fault = match draw.below(8) {
        0..3 => Fault::Nothing,
        3 => Fault::Dark(draw.below(count as u64 + 1) as usize, 1 + draw.below(50)),
        4 => Fault::Dark(draw.below(count as u64 + 1) as usize, 70 + draw.below(50)),
        5 | 6 => Fault::Killed(1 + draw.below(count as u64) as usize),
        _ => Fault::Vanished(1 + draw.below(count as u64 + 1) as usize),
    };
    let network = Network::default();
    for number in 0..=count {
        let dark = match fault {
            Fault::Dark(link, seconds) if link == number => {
                (fault_at, fault_at + Duration::from_secs(seconds))
            }
            _ => (Instant::ZERO, Instant::ZERO),
        };
        let link = Link {
            delay: Duration::from_millis(draw.below(120)),
            dark,
            capacity: 1_000 + draw.below(100_000) as usize,
        };
        network.link(host(number), host(number + 1), link);
    }
    let mut gateway = |number| {
        let at = Instant::ZERO + Duration::from_millis(draw.below(5_000));
        let stalled = (at, at + Duration::from_millis(draw.below(2) * draw.below(4_000)));
        Gateway::new(network.host(host(number)), number, stalled)
    };
    let mut gateways: Vec<Option<Gateway>> =
        (1..=count).map(|number| Some(gateway(number))).collect();
    let listens = !draw.one_in(20);
    let target_memory = network.host(host(target_host));
    let listener = listens
        .then(|| target_memory.listen(at(target_host), &SegmentSettings::default()).unwrap());

    let there = bytes(draw.below(300_000) as usize, 3);
    let back = bytes(draw.below(300_000) as usize, 7);
    let target = Target { place: at(target_host).into(), aware: false };
    let hops = (2..=count).map(|number| Place::from(at(number)).into()).collect();
    let route = Route { hops, ..Route::new(random().unwrap(), target) };
    let addressed = Addressed { written: at(1).into(), dialled: at(1).into() };
    let (dialler, header) =
        Dialler::new(&route, addressed, &token().key(), clock(Instant::ZERO), random().unwrap())
            .unwrap();
    let mut client = Program::new([&header[..], &there].concat(), &mut draw);
    client.dialler = Some(dialler);
    let memory = network.host(host(client_host));
    client.segment = Some(memory.dial(at(1), &SegmentSettings::default()).unwrap());
    let mut server = Program::new(back.clone(), &mut draw);
    server.waits_for_end = draw.one_in(2);
    client.waits_for_end = !server.waits_for_end && draw.one_in(3);

    let mut pool = Pool::default();
    let mut now = Instant::ZERO;
    let mut has_failed = false;
    let mut progress = (0, now);
    let mut step = 0u64;
    let horizon = Instant::ZERO + Duration::from_secs(600);
    loop {
        network.set_now(now);
        if !has_failed && now >= fault_at {
            has_failed = true;
            match fault {
                Fault::Killed(number) => {
                    network.close(host(number));
                    gateways[number - 1] = None;
                }
                Fault::Vanished(number) => {
                    network.vanish(host(number));
                    if number <= count {
                        // Its program is there, and nobody hears it.
                        gateways[number - 1] = None;
                    } else {
                        server.segment = None;
                    }
                }
                Fault::Nothing | Fault::Dark(..) => {}
            }
        }
        client.run(&mut draw);
        if let Some(listener) = &listener
            && let Ok(Some((segment, _))) = listener.accept()
            && !matches!(fault, Fault::Vanished(number) if number == target_host && has_failed)
        {
            server.segment = Some(segment);
        }
        server.run(&mut draw);
        let moved = client.sent + client.received.len() + server.sent + server.received.len();
        if moved != progress.0 {
            progress = (moved, now);
        }
        // Later only what is given up after a minute is waited for.
        let rests = now.since(progress.1) > Duration::from_secs(2);
        let looks = step.is_multiple_of(10) || rests;
        for gateway in gateways.iter_mut().flatten() {
            gateway.run(now, looks, &mut pool, &mut draw);
        }
        let over = gateways.iter().flatten().all(|gateway| gateway.sessions.is_empty());
        if over && client.segment.is_none() && server.segment.is_none() && has_failed {
            break;
        }
        assert!(
            now < horizon,
            "seed {seed}: {fault:?}: it does not come to an end: client {client:?}, target \
             {server:?}, {:?}",
            gateways.iter().flatten().map(|gateway| &gateway.sessions).collect::<Vec<_>>()
        );
        step += 1;
        now += if rests { Duration::from_millis(100) } else { Duration::from_millis(10) };
    }
    judge(seed, fault, (&client, &there), (&server, &back), &gateways, listens);
}

fn judge(
    seed: u64,
    fault: Fault,
    (client, there): (&Program, &[u8]),
    (server, back): (&Program, &[u8]),
    gateways: &[Option<Gateway>],
    listens: bool,
) {
    let what = format!("seed {seed}: {fault:?}");
    // Nothing comes twice, altered, or out of order.
    assert!(there.starts_with(&server.received), "{what}: the target got something else");
    assert!(back.starts_with(&client.received), "{what}: the client got something else");
    // Nothing is lost before a clean end.
    if server.end == Some(End::Clean) {
        assert!(client.has_shut && server.received == there, "{what}: cut short at the target");
    }
    if client.end == Some(End::Clean) {
        assert!(server.has_shut && client.received == back, "{what}: cut short at the client");
    }
    let leaves = client.leaves_after.is_some() || server.leaves_after.is_some();
    let is_harmless = match fault {
        Fault::Nothing => true,
        // Set-up is given up after 10 s.
        Fault::Dark(_, seconds) => seconds < 9,
        _ => false,
    };
    if is_harmless && !leaves && listens {
        assert_eq!(client.end, Some(End::Clean), "{what}");
        assert_eq!(server.end, Some(End::Clean), "{what}");
        for gateway in gateways.iter().flatten() {
            assert_eq!(gateway.endings, [Ending::Clean], "{what}");
        }
    }
    if is_harmless && !leaves && !listens {
        assert!(client.was_refused, "{what}: it does not learn that nobody listens");
    }
    for gateway in gateways.iter().flatten() {
        assert_eq!(gateway.shared.sessions(), 0, "{what}: a place is lost");
    }
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().unwrap())
}

#[test]
fn no_chain_delivers_twice_or_loses_anything_before_a_clean_end() {
    let first = number("LONGHAUL_CHAINS_SEED", 1);
    let end = first + number("LONGHAUL_CHAINS_COUNT", 400);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let some = |seeds: &mut dyn Iterator<Item = u64>| {
        for seed in seeds {
            let outcome = std::panic::catch_unwind(|| chain(seed));
            if let Err(panic) = outcome {
                println!("FAILED seed {seed}: cargo xtask chains --seeds 1 --from {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    };
    std::thread::scope(|scope| {
        for part in 0..threads {
            scope.spawn(move || some(&mut (first..end).skip(part).step_by(threads)));
        }
    });
}

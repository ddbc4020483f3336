//! Attacks drawn from a seed: role, protection, carrier, moment and kind. `LONGHAUL_ADVERSARY_SEED`
//! replays one run's first seed, and `LONGHAUL_ADVERSARY_COUNT` says how many follow from it.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::middle::{copy_through, untouched};
use crate::oracle::{Victim, assert_nothing_beside, assert_only, end};
use crate::peer::{Action, Peer, Tamper, WAYS, Way};
use crate::relay::{Relay, StreamTaps, Tap};
use crate::script::{Item, request, sink, source};
use crate::test::{Test, limited};
use crate::trees::{assert_nothing_half_done, noise};

#[test]
fn drawn_attacks_break_nothing() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LONGHAUL_ADVERSARY_SEED").unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 >> 8
    });
    let count = number("LONGHAUL_ADVERSARY_COUNT").unwrap_or(COUNT);
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let taken = next.fetch_add(GROUP, Ordering::Relaxed);
            if taken >= count {
                return;
            }
            let seeds = taken..(taken + GROUP).min(count);
            limited(move |test| {
                let victim = Victim::start(test);
                fs::write(test.here("f"), noise(1, SIZE)).unwrap();
                fs::copy(test.here("f"), test.there("f")).unwrap();
                for seed in seeds.map(|taken| first.wrapping_add(taken)) {
                    eprintln!("replay: LONGHAUL_ADVERSARY_SEED={seed} LONGHAUL_ADVERSARY_COUNT=1");
                    attack(test, &victim, seed);
                    victim.assert_sound();
                }
                victim.assert_serves();
                assert_nothing_beside(test.folder());
            });
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

fn attack(test: &Test, victim: &Victim<'_>, seed: u64) {
    let mut draw = Draw::new(seed);
    let way = WAYS[draw.below(6) as usize];
    let pull = draw.below(2) == 1;
    let role = draw.below(8);
    eprintln!("{way:?}, pull {pull}, role {role}");
    match role {
        0 => stranger(test, victim, way, pull, draw),
        1 | 2 => middle(test, victim, way, pull, draw),
        3 | 4 => server(test, way, pull, draw),
        _ => client(victim, way, pull, draw),
    }
}

fn stranger(test: &Test, victim: &Victim<'_>, way: Way, pull: bool, mut draw: Draw) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut bytes = draw.bytes(700);
        bytes[0] = [0x41, 0x42, 0x16, b'L'][draw.below(4) as usize];
        let _ = socket.send_to(&bytes, victim.address);
        if let Ok(mut stranger) = std::net::TcpStream::connect(victim.address) {
            let _ = std::io::Write::write_all(&mut stranger, &bytes);
            open.push(stranger);
        }
    }
    let relay = Relay::start(victim.address);
    assert_eq!(copy_through(test, way, &relay, pull), Some(0), "a stranger stopped a copy");
}

fn middle(test: &Test, victim: &Victim<'_>, way: Way, pull: bool, mut draw: Draw) {
    let magnitude = 4 + draw.below(13);
    let (at, connection) = (draw.below(1 << magnitude) as usize, draw.below(2) as usize);
    let (kind, many) = (draw.below(5), 1 + draw.below(3_000) as usize);
    eprintln!("connection {connection}, byte {at}, kind {kind}, {many} bytes");
    let taps: StreamTaps = Box::new(move |number, _| {
        let (mut passed, mut cut) = (0, false);
        Box::new(move |bytes| {
            if cut {
                return None;
            }
            let here = number == connection && (passed..passed + bytes.len()).contains(&at);
            let place = at.saturating_sub(passed);
            passed += bytes.len();
            cut = here && kind == 2;
            Some(match kind {
                0 if here => flipped(bytes, place),
                1 if here => [bytes, bytes].concat(),
                2 if here => bytes[..place].to_vec(),
                3 if here => return None,
                4 if here => left_out(bytes, place, many),
                _ => bytes.to_vec(),
            })
        })
    });
    let mut chance = Draw::new(draw.next());
    let tap: Tap = Box::new(move |_, datagram| match chance.below(30) {
        0 => vec![flipped(datagram, chance.below(datagram.len() as u64) as usize)],
        1 => Vec::new(),
        2 => vec![datagram.to_vec(), datagram.to_vec()],
        3 => vec![datagram[..chance.below(datagram.len() as u64) as usize].to_vec()],
        _ => vec![datagram.to_vec()],
    });
    let (tap, taps) = match way.carried {
        longhaul_wire::Carrier::Tcp => (untouched(), taps),
        _ => (tap, Box::new(|_, _| pass()) as StreamTaps),
    };
    let relay = Relay::altering(victim.address, tap, taps);
    copy_through(test, way, &relay, pull);
}

fn pass() -> crate::relay::StreamTap {
    Box::new(|bytes| Some(bytes.to_vec()))
}

fn left_out(bytes: &[u8], at: usize, many: usize) -> Vec<u8> {
    [&bytes[..at], bytes.get(at + many..).unwrap_or_default()].concat()
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1;
    }
    bytes
}

fn client(victim: &Victim<'_>, way: Way, pull: bool, mut draw: Draw) {
    let mut peer = Peer::dial(victim.address, way).unwrap();
    let items = items(&mut draw, b"drawn");
    peer.tamper = Some(tampering(draw));
    if pull {
        peer.message(request(true, 0, &[b"f"]));
        sink(&mut peer, WHILE);
    } else {
        peer.message(request(false, 1, &[b"attack"]));
        source(&mut peer, &items, WHILE);
    }
    peer.hang_up();
}

fn server(test: &Test, way: Way, pull: bool, mut draw: Draw) {
    let host = Host::new();
    let at = format!("lh://{}/copy", host.address);
    let words = if pull { [&at[..], "here/copy"] } else { ["here/f", &at[..]] };
    let copying = copy(test, way, &words);
    let mut peer = host.accept().unwrap();
    await_request(&mut peer);
    let offered = Item::file(b"copy", &noise(1, SIZE));
    let mut items = items(&mut draw, b"copy");
    items.insert(0, offered);
    items.truncate(1 + draw.below(2) as usize);
    peer.tamper = Some(tampering(draw));
    if pull {
        source(&mut peer, &items, WHILE);
    } else {
        sink(&mut peer, WHILE);
    }
    peer.hang_up();
    end(copying);
    assert_only(&test.path("here"), &["f", "copy"]);
    if test.here("copy").is_file() {
        assert_nothing_half_done(&test.here("copy"), &test.here("copy"));
        fs::remove_file(test.here("copy")).unwrap();
    }
}

fn items(draw: &mut Draw, name: &[u8]) -> Vec<Item> {
    let path: &[u8] = match draw.below(8) {
        0 => b"../x",
        1 => b"/x",
        2 => b"a\x1b[2Jb",
        3 => b"no/parent",
        _ => name,
    };
    let len = 1 + draw.below(100_000) as usize;
    let contents = draw.bytes(len);
    vec![Item::file(path, &contents), Item::link(b"link", b"../.."), Item::file(b"link/x", b"x")]
}

/// Spoils one drawn action, and perhaps all behind it.
fn tampering(mut draw: Draw) -> Tamper {
    let (at, kind, for_ever) = (draw.below(8), draw.below(8), draw.below(3) == 0);
    eprintln!("word {at}, kind {kind}, for ever {for_ever}");
    let mut actions = 0;
    Box::new(move |action| {
        actions += 1;
        if actions - 1 != at && !(for_ever && actions > at) {
            return vec![action];
        }
        match kind {
            0 => vec![spoiled(action, &mut draw)],
            1 => vec![action.clone(), action],
            2 => Vec::new(),
            3 => vec![Action::Stream(draw.bytes(60)), action],
            4 => vec![Action::Frames(draw.bytes(40)), action],
            5 => vec![Action::HangUp],
            6 => vec![Action::Control(draw.bytes(30)), action],
            _ => vec![spoiled(action.clone(), &mut draw), action],
        }
    })
}

fn spoiled(action: Action, draw: &mut Draw) -> Action {
    let mut spoil = |mut bytes: Vec<u8>| {
        for _ in 0..1 + draw.below(3) {
            let place = draw.below(bytes.len().max(1) as u64) as usize;
            match (draw.below(3), bytes.get_mut(place)) {
                (0, Some(byte)) => *byte = draw.next() as u8,
                (1, _) => bytes.truncate(place),
                _ => bytes.extend(draw.bytes(9)),
            }
        }
        bytes
    };
    match action {
        Action::Message(bytes) => Action::Message(spoil(bytes)),
        Action::Stream(bytes) => Action::Stream(spoil(bytes)),
        Action::Frames(bytes) => Action::Frames(spoil(bytes)),
        Action::Control(bytes) => Action::Control(spoil(bytes)),
        Action::Object { object, offset, payload } => match draw.below(3) {
            0 => Action::Object { object: draw.next() as u32, offset, payload },
            1 => Action::Object { object, offset: draw.next() >> draw.below(64), payload },
            _ => Action::Object { object, offset, payload: draw.bytes(payload.len()) },
        },
        other => other,
    }
}

/// xorshift64*.
struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Self((seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 8) % end.max(1)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        noise(self.next() >> 1, len)
    }
}

const COUNT: u64 = 300;
const GROUP: u64 = 10;
const THREADS: usize = 6;
const SIZE: usize = 200_000;
/// Time that a peer plays on before it hangs up.
const WHILE: Duration = Duration::from_secs(1);

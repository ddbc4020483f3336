//! Somebody in the middle who knows the contents and writes others in their place, with the hashes
//! that go with them, and who plays with the order and the end of connections: under every
//! protection and carrier nothing of that is taken for the truth.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use longhaul::{CarrierChoice, CopyOptions, CopyReport, Error};
use longhaul_objects::hash::group_chaining_value;
use longhaul_wire::{JOIN_LEN, Protect};

use crate::relay::{Relay, StreamTaps, Tap, Way};
use crate::server::{Server, over, pull, push, run};
use crate::test::{Test, limited};

#[test]
fn nothing_altered_is_accepted_over_udp() {
    limited(|test| alter(test, CarrierChoice::Udp, &Play::ALL));
}

#[test]
fn nothing_altered_is_accepted_over_tcp() {
    limited(|test| alter(test, CarrierChoice::Tcp, &Play::ALL));
}

#[test]
fn nothing_altered_is_accepted_over_tcp_that_somebody_forced_by_swallowing_udp() {
    limited(|test| alter(test, CarrierChoice::Auto, &[Play::Forge, Play::Close]));
}

/// Alteration made in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    /// Other contents, with their hash.
    Forge,
    /// A bit here and there.
    Flip,
    /// Parts are left out.
    Remove,
    /// Parts come again.
    Repeat,
    /// Parts come in another order.
    Swap,
    /// "Done", and the end.
    Close,
    /// The end, on the way.
    Cut,
}

impl Play {
    const ALL: [Self; 7] =
        [Self::Forge, Self::Flip, Self::Remove, Self::Repeat, Self::Swap, Self::Close, Self::Cut];
}

/// Copies both ways under every protection over a path where each of `plays` goes on.
fn alter(test: &Test, carrier: CarrierChoice, plays: &[Play]) {
    fs::write(test.here("f"), vec![TRUE; SIZE]).unwrap();
    fs::write(test.there("f"), vec![TRUE; SIZE]).unwrap();
    let server = &Server::with(test, |options| options.connections_max = 64);
    thread::scope(|scope| {
        for protect in [Protect::Aead, Protect::Integrity, Protect::Clear] {
            for &play in plays {
                scope.spawn(move || {
                    let name = format!("{protect}-{play:?}");
                    let there = push(&test.here("f"), server.address, name.as_bytes());
                    let out = test.there(&name);
                    attempt(test, server, there, protect, carrier, play, &out);
                    let out = test.here(&name);
                    let back = pull(server.address, b"f", &out);
                    attempt(test, server, back, protect, carrier, play, &out);
                });
            }
        }
    });
}

fn attempt(
    test: &Test,
    server: &Server,
    options: CopyOptions,
    protect: Protect,
    carrier: CarrierChoice,
    play: Play,
    out: &Path,
) {
    let what = format!("{protect} {carrier:?} {play:?} {}", out.display());
    let altered = Arc::new(AtomicUsize::new(0));
    let udp = carrier == CarrierChoice::Udp;
    let tap: Tap = match udp {
        true => datagrams(play, protect, altered.clone()),
        false => Box::new(|_, _| Vec::new()),
    };
    let relay = Relay::altering(server.address, tap, streams(play, altered.clone()));
    let options = over(options, |by| {
        by.server.host = relay.address.ip().to_string();
        (by.protect, by.carrier) = (protect, carrier);
        (by.idle_timeout, by.stall_timeout) = (PATIENCE, PATIENCE);
    });
    let result = run(test, &options);
    // Contents and hashes look like noise where they are secret.
    let in_clear = protect == Protect::Clear || udp && protect == Protect::Integrity;
    let secret = play == Play::Forge && !in_clear;
    assert!(secret || altered.load(Ordering::Relaxed) > 0, "nothing was altered: {what}");
    let succeeded = is_success(&result);
    match fs::read(out) {
        Ok(bytes) => assert!(bytes == [TRUE; SIZE], "{what}: other bytes, {result:?}"),
        Err(_) => assert!(!succeeded, "{what}: nothing there, {result:?}"),
    }
    if secret {
        assert!(succeeded, "{what}: {result:?}");
    }
    // A TCP connection cannot be mended.
    if !udp && !secret && play != Play::Forge {
        assert!(!succeeded, "{what}: {result:?}");
    }
}

/// Outcomes that end with status 0.
fn is_success(result: &Result<CopyReport, Error>) -> bool {
    result.as_ref().is_ok_and(|report| report.failures.is_empty())
}

/// Does `play` to datagrams. Something gets through of what can be mended.
fn datagrams(play: Play, protect: Protect, altered: Arc<AtomicUsize>) -> Tap {
    let mut forge = Forge::default();
    // Those that do not authenticate are lost, and somebody who loses all can stop every copy.
    let most = if protect == Protect::Integrity { 300 } else { usize::MAX };
    let (mut count, mut held) = (0usize, None);
    Box::new(move |_, datagram| {
        let mut bytes = datagram.to_vec();
        count += 1;
        let out = match play {
            Play::Forge => {
                forge.in_run = false;
                if altered.load(Ordering::Relaxed) < most && forge.change(&mut bytes) {
                    altered.fetch_add(1, Ordering::Relaxed);
                }
                return vec![bytes];
            }
            _ if count % 7 != 3 && held.is_none() => return vec![bytes],
            Play::Flip => {
                let place = count * 31 % bytes.len();
                bytes[place] ^= 1;
                vec![bytes]
            }
            Play::Remove | Play::Cut => Vec::new(),
            Play::Repeat => vec![bytes.clone(), bytes],
            Play::Swap => match held.take() {
                Some(before) => vec![bytes, before],
                None => {
                    held = Some(bytes);
                    Vec::new()
                }
            },
            // A CONTROL packet, or what one in the clear would be.
            Play::Close => {
                bytes.truncate(20);
                bytes[0] = 0x41;
                bytes.extend([0x13, 2, 0, 0]);
                bytes.extend([0; 16]);
                vec![datagram.to_vec(), bytes]
            }
        };
        altered.fetch_add(1, Ordering::Relaxed);
        out
    })
}

/// Purpose of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Control,
    /// Data inside TLS.
    Sealed,
    /// Data outside of it.
    Bare,
}

impl Kind {
    /// By the first bytes of the client: in TLS data name themselves by their ALPN.
    fn of(first: &[u8]) -> Self {
        let data = b"longhaul/1 data";
        match first.first() {
            Some(b'L') => Self::Bare,
            _ if first.windows(data.len()).any(|bytes| bytes == data) => Self::Sealed,
            _ => Self::Control,
        }
    }
}

/// Does `play` to TCP connections; not to control connections, without which nothing is sent.
fn streams(play: Play, altered: Arc<AtomicUsize>) -> StreamTaps {
    let kinds: Arc<Mutex<BTreeMap<usize, Kind>>> = Arc::default();
    Box::new(move |connection, way| {
        let (mut forge, altered, kinds) = (Forge::default(), altered.clone(), kinds.clone());
        let (mut seen, mut held) = (0usize, None::<Vec<u8>>);
        Box::new(move |chunk| {
            let mut bytes = chunk.to_vec();
            let kind = match way {
                Way::ToServer => {
                    *kinds.lock().unwrap().entry(connection).or_insert(Kind::of(chunk))
                }
                Way::ToClient => kinds.lock().unwrap()[&connection],
            };
            let beginning = match kind {
                Kind::Control => return Some(bytes),
                Kind::Sealed => HANDSHAKE,
                Kind::Bare => JOIN_LEN,
            };
            seen += bytes.len();
            if play == Play::Forge {
                if forge.change(&mut bytes) {
                    altered.fetch_add(1, Ordering::Relaxed);
                }
                return Some(bytes);
            }
            if seen <= beginning {
                return Some(bytes);
            }
            altered.fetch_add(1, Ordering::Relaxed);
            match play {
                Play::Flip => {
                    let place = seen % bytes.len();
                    bytes[place] ^= 1;
                    Some(bytes)
                }
                Play::Remove => Some(bytes[bytes.len().min(100)..].to_vec()),
                Play::Repeat => Some([&bytes[..], &bytes].concat()),
                Play::Swap => match held.take() {
                    Some(before) => Some([bytes, before].concat()),
                    None => {
                        held = Some(bytes);
                        Some(Vec::new())
                    }
                },
                Play::Close => {
                    bytes.extend([1, 0, 0, 4, 0x13, 2, 0, 0]);
                    bytes.extend([0; 16]);
                    Some(bytes)
                }
                Play::Cut | Play::Forge => None,
            }
        })
    })
}

/// Replaces contents by others, and their hash by that of the others.
struct Forge {
    hashes: [[u8; 32]; 2],
    in_run: bool,
}

impl Default for Forge {
    fn default() -> Self {
        let hash = |byte| group_chaining_value(&vec![byte; SIZE], 0, true);
        Self { hashes: [hash(TRUE), hash(FALSE)], in_run: false }
    }
}

impl Forge {
    fn change(&mut self, bytes: &mut [u8]) -> bool {
        let mut changed = false;
        let mut place = 0;
        while place < bytes.len() {
            let run = bytes[place..].iter().take_while(|byte| **byte == TRUE).count();
            if run >= 8 || (run > 0 && self.in_run && place == 0) {
                bytes[place..place + run].fill(FALSE);
                changed = true;
                self.in_run = place + run == bytes.len();
            } else if bytes[place..].starts_with(&self.hashes[0]) {
                bytes[place..place + 32].copy_from_slice(&self.hashes[1]);
                changed = true;
                place += 31;
            }
            place += run.max(1);
        }
        changed
    }
}

/// One group, which is recognized by its root hash.
const SIZE: usize = 700_000;
const TRUE: u8 = 0xa5;
const FALSE: u8 = 0x5a;
/// Bytes of a data connection that are let through: what a TLS handshake takes at most.
const HANDSHAKE: usize = 3_000;
/// Time that a copy which got nowhere waits: longer than it takes to go over to TCP.
const PATIENCE: Duration = Duration::from_secs(10);

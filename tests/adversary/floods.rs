//! Strangers that send thousands of datagrams a second, and what others sent before.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::carrier::Carrier;
use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{BOUND, Victim, assert_only, end};
use crate::peer::{Peer, WAYS};
use crate::relay::{Relay, StreamTaps, Tap, Way};
use crate::script::{Item, request, source};
use crate::test::limited;
use crate::trees::{assert_same, noise};

/// Sends datagrams of this connection that nobody sealed, as fast as it goes.
fn flood(socket: &UdpSocket, connection: u32, to: SocketAddr, over: &AtomicBool) -> u64 {
    let mut count = 0u64;
    let mut packet = noise(1, 1_000);
    while !over.load(Ordering::Relaxed) {
        let head = Bytes::new().u8(0x41 + u8::from(!count.is_multiple_of(5))).u8(0).u16(0);
        let head = head.u32(connection).u64(count).u32(0).u32(0).u64((count % 400) << 20).0;
        packet[..head.len()].copy_from_slice(&head);
        let _ = socket.send_to(&packet, to);
        count += 1;
    }
    count
}

#[test]
fn a_flood_at_a_connection_of_the_server_takes_no_memory_and_stops_nobody() {
    limited(|test| {
        let victim = Victim::start(test);
        victim.assert_serves();
        for way in &WAYS[..3] {
            let mut peer = Peer::dial(victim.address, *way).unwrap();
            let Carrier::Udp(udp) = &peer.carrier else { unreachable!("of these ways") };
            let (connection, to) = (udp.connection, udp.to.unwrap());
            let before = victim.memory();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let flooding = scope.spawn(|| {
                    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
                    flood(&stranger, connection, to, &over)
                });
                thread::sleep(Duration::from_millis(700));
                peer.message(request(false, 1, &[b""]));
                let ending = source(&mut peer, &[Item::file(b"f", &noise(1, 400_000))], BOUND);
                let grown = victim.memory().saturating_sub(before);
                over.store(true, Ordering::Relaxed);
                assert_eq!(ending.result, Some((1, 0)), "{way:?}: {ending:?}");
                assert!(grown < 64 << 20, "{way:?}: {} MiB", grown >> 20);
                assert!(flooding.join().unwrap() > 2_000, "no flood");
            });
            assert!(fs::read(test.there("f")).unwrap() == noise(1, 400_000));
            fs::remove_file(test.there("f")).unwrap();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_flood_at_a_lane_of_the_client_takes_no_memory_and_stops_no_copy() {
    limited(|test| {
        let contents = noise(1, 400_000);
        for way in &WAYS[..3] {
            let host = Host::new();
            let copying = copy(test, *way, &[&format!("lh://{}/f", host.address), "here/f"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            let Carrier::Udp(udp) = &peer.carrier else { unreachable!("of these ways") };
            // Even from where the server sends.
            let (socket, connection, to) =
                (udp.socket.try_clone().unwrap(), udp.connection, udp.to.unwrap());
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let flooding = scope.spawn(|| flood(&socket, connection, to, &over));
                thread::sleep(Duration::from_millis(700));
                source(&mut peer, &[Item::file(b"f", &contents)], BOUND);
                over.store(true, Ordering::Relaxed);
                assert!(flooding.join().unwrap() > 2_000, "no flood");
            });
            peer.hang_up();
            end(copying).assert_succeeded();
            assert!(fs::read(test.here("f")).unwrap() == contents);
            fs::remove_file(test.here("f")).unwrap();
        }
    });
}

/// Traffic of the client of a copy: datagrams, and bytes by connection.
#[derive(Default)]
struct Recording {
    datagrams: Vec<Vec<u8>>,
    connections: Vec<Vec<u8>>,
}

/// A relay to `server` that keeps what clients send.
fn recorder(server: SocketAddr, kept: &Arc<Mutex<Recording>>) -> Relay {
    let datagrams = kept.clone();
    let tap: Tap = Box::new(move |way, datagram| {
        if way == Way::ToServer {
            datagrams.lock().unwrap().datagrams.push(datagram.to_vec());
        }
        vec![datagram.to_vec()]
    });
    let kept = kept.clone();
    let taps: StreamTaps = Box::new(move |number, way| {
        let kept = kept.clone();
        Box::new(move |bytes| {
            if way == Way::ToServer {
                let connections = &mut kept.lock().unwrap().connections;
                let count = connections.len().max(number + 1);
                connections.resize(count, Vec::new());
                connections[number].extend(bytes);
            }
            Some(bytes.to_vec())
        })
    });
    Relay::altering(server, tap, taps)
}

#[test]
fn a_recorded_copy_played_again_copies_nothing() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 300_000)).unwrap();
        let victim = Victim::start(test);
        for way in WAYS {
            let kept = Arc::new(Mutex::new(Recording::default()));
            let relay = recorder(victim.address, &kept);
            let to = format!("lh://{}/", relay.address);
            end(copy(test, way, &["here/f", &to])).assert_succeeded();
            drop(relay);
            assert_same(&test.here("f"), &test.there("f"));
            fs::remove_file(test.there("f")).unwrap();

            let recording = std::mem::take(&mut *kept.lock().unwrap());
            assert!(!recording.connections.is_empty());
            // The control connection stays open while the rest is played.
            let played: Vec<_> = (recording.connections.iter())
                .map(|bytes| {
                    let mut stream = TcpStream::connect(victim.address).unwrap();
                    let _ = stream.write_all(bytes);
                    stream
                })
                .collect();
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            for datagram in &recording.datagrams {
                stranger.send_to(datagram, victim.address).unwrap();
            }
            stranger.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            assert!(stranger.recv(&mut [0; 2_000]).is_err(), "{way:?}: an answer");
            for mut stream in played {
                // Each is turned away, once what it wrote proves nothing.
                let begun = Instant::now();
                stream.set_read_timeout(Some(BOUND)).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
                assert!(begun.elapsed() < BOUND, "{way:?}: stays open");
            }
            assert_only(&test.path("there"), &[]);
        }
        victim.assert_serves();
    });
}

//! Clients that may take either carrier, and want both, or another's.

use std::time::{Duration, Instant};

use longhaul_wire::{Carrier as Carried, CloseCode, Frame, Message, Protect, SinkMessage, Writer};

use crate::carrier::{Came, Carrier, Tcp, Udp};
use crate::oracle::{PATIENCE, Victim};
use crate::peer::{Peer, Received, Way};
use crate::script::{Item, hashes, manifest, request, source};
use crate::test::limited;
use crate::trees::noise;

const EITHER: Way = Way { protect: Protect::Aead, carried: Carried::Either };
const CLEAR: Way = Way { protect: Protect::Clear, carried: Carried::Either };

/// CLOSE, as a frame.
fn close(code: CloseCode) -> Vec<u8> {
    let mut frame = Vec::new();
    Frame::Close { code, reason: "it does not fit" }
        .encode(&mut Writer::append(&mut frame))
        .unwrap();
    frame
}

/// Code with which the server ends what came by `carrier`; `None` where it just hangs up.
fn ending_of(carrier: &mut Carrier) -> Option<u16> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for came in carrier.take(Duration::from_millis(20)) {
            match came {
                Came::Close(code, _) => return Some(code),
                Came::Ended => return None,
                _ => {}
            }
        }
    }
    panic!("nothing ends it");
}

/// Code with which the server turns a join away.
fn turned_away(tcp: Tcp) -> Option<u16> {
    ending_of(&mut Carrier::Tcp(tcp))
}

/// Asks for a push, and is accepted, over UDP.
fn accepted(victim: &Victim<'_>, way: Way, items: &[Item]) -> Peer {
    let mut peer = Peer::dial(victim.address, way).unwrap();
    peer.message(request(false, 1, &[b""]));
    peer.message(manifest(items));
    let deadline = Instant::now() + PATIENCE;
    loop {
        match peer.receive(deadline) {
            Some(Received::Message(Message::Sink(SinkMessage::Accept { .. }))) => return peer,
            Some(Received::Message(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_that_opens_with_udp_and_joins_by_tcp_has_one_carrier() {
    limited(|test| {
        let victim = Victim::start(test);
        for (way, name) in [(EITHER, "sealed"), (CLEAR, "clear")] {
            let items = [Item::file(name.as_bytes(), &noise(1, 50_000))];
            let mut peer = accepted(&victim, way, &items);
            let begun = victim.stderr_so_far().matches("copies to here").count();
            let tcp = peer.join().unwrap();
            let mut udp = peer.take_up(tcp);
            peer.message(request(false, 1, &[b""]));
            let ending = source(&mut peer, &items, PATIENCE);
            assert_eq!(ending.result, Some((1, 0)), "{ending:?}");
            assert_eq!(ending_of(&mut udp), Some(CloseCode::PATH_MTU.0));
            assert_eq!(victim.stderr_so_far().matches("copies to here").count(), begun);
            peer.hang_up();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_client_that_moved_data_over_udp_ten_seconds_ago_joins_no_more() {
    limited(|test| {
        let victim = Victim::start(test);
        let contents = noise(1, 10_000);
        let items = [Item::file(b"f", &contents), Item::file(b"g", &contents)];
        let mut peer = accepted(&victim, EITHER, &items);
        peer.object(0, 0, &contents);
        peer.message(hashes(0, &contents));
        let deadline = Instant::now() + PATIENCE;
        let is_confirmed = |received| {
            matches!(received, Received::Message(Message::Sink(SinkMessage::Confirm { .. })))
        };
        while !peer.receive(deadline).is_some_and(is_confirmed) {
            assert!(Instant::now() < deadline, "nothing is confirmed");
        }
        // By then it has received the CLOSE, and has decided.
        std::thread::sleep(Duration::from_secs(11));
        assert_eq!(turned_away(peer.join().unwrap()), Some(CloseCode::UNAUTHORIZED.0));
        peer.hang_up();
        victim.assert_serves();
    });
}

#[test]
fn a_client_joins_no_connection_of_another_without_its_keys() {
    limited(|test| {
        let victim = Victim::start(test);
        for (way, name, code) in
            [(EITHER, "sealed", Some(CloseCode::UNAUTHORIZED.0)), (CLEAR, "clear", None)]
        {
            let mut peer = Peer::dial(victim.address, way).unwrap();
            assert_eq!(turned_away(peer.join_without_secret().unwrap()), code);
            // Nor does a datagram that says so end its lanes.
            let Carrier::Udp(udp) = &peer.carrier else { unreachable!("it begins with lanes") };
            let socket = udp.socket.try_clone().unwrap();
            let mut forger = Udp::new(socket, udp.to, &[7; 32], udp.connection, way.protect);
            forger.next = 1_000;
            forger.control(&close(CloseCode::PATH_MTU));
            peer.message(request(false, 1, &[b""]));
            let ending = source(&mut peer, &[Item::file(name.as_bytes(), b"whole")], PATIENCE);
            assert_eq!(ending.result, Some((1, 0)), "{ending:?}");
            assert!(matches!(peer.carrier, Carrier::Udp(_)));
            peer.hang_up();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_client_that_closes_with_path_mtu_and_joins_nothing_loses_its_place() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in [EITHER, Way { carried: Carried::Udp, ..EITHER }] {
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(request(false, 1, &[b""]));
            peer.carrier.frames(&close(CloseCode::PATH_MTU));
            assert!(peer.falls_silent(true), "{way:?}");
        }
        victim.assert_serves();
    });
}

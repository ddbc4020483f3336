//! Clients that hold a token and want more than is theirs: memory by counts and by what they never
//! read, time by hashes that come late, bytes by reports of what they never got.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::carrier::{Carrier, frame};
use crate::oracle::Victim;
use crate::peer::{Action, Peer, Tamper, WAYS};
use crate::script::{Item, manifest, request, result, sink};
use crate::test::limited;
use crate::trees::noise;

const HUGE: u64 = (1 << 62) - 1;
/// Resources that one client may take of a server that it does nothing useful with.
const LITTLE: u64 = 96 << 20;

#[test]
fn huge_counts_take_no_memory() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 100_000)).unwrap();
        let victim = Victim::start(test);
        victim.assert_serves();
        let before = victim.memory();
        let pushed = [
            Bytes::new().varint(2).varint(1).varint(HUGE),
            Bytes::new().varint(2).varint(1).varint(1 << 18),
            Bytes::new().varint(2).varint(1).varint(0).varint(HUGE),
            Bytes::new().varint(2).varint(1).varint(0).varint(1).varint(1).varint(0).varint(HUGE),
            Bytes::new().varint(3).varint(HUGE).varint(HUGE).varint(HUGE),
            Bytes::new().varint(4).varint(0).varint(HUGE).raw(&[1; 32]),
            Bytes::new().varint(4).varint(0).varint(1 << 40).raw(&[1; 3_200]),
            Bytes::new().varint(4).varint(0xffff_ffff).varint(0).raw(&[1; 32]),
            Bytes::new().varint(5).varint(HUGE).u8(0).raw(b"none"),
        ];
        let pulled = [
            Bytes::new().varint(6).varint(0xffff_ffff),
            Bytes::new().varint(7).varint(0).varint(0).varint(HUGE),
            Bytes::new().varint(7).varint(0xffff_ffff).varint(1 << 40).varint(1 << 40),
            Bytes::new().varint(8).varint(0).varint(HUGE),
            Bytes::new().varint(9).varint(0).varint(HUGE),
            Bytes::new().varint(9).varint(HUGE).varint(1),
            Bytes::new().varint(10).varint(HUGE).raw(b"none"),
            result(HUGE, HUGE, 0),
        ];
        for (i, message) in pushed.into_iter().enumerate() {
            let mut peer = Peer::dial(victim.address, WAYS[i % WAYS.len()]).unwrap();
            peer.message(request(false, 1, &[b""]));
            let large = Item { size: Some(1 << 50), ..Item::file(b"large", b"x") };
            peer.message(manifest(&[large]));
            peer.message(message);
            sink(&mut peer, Duration::from_millis(100));
            peer.hang_up();
        }
        for (i, message) in pulled.into_iter().enumerate() {
            let mut peer = Peer::dial(victim.address, WAYS[i % WAYS.len()]).unwrap();
            peer.message(request(true, 0, &[b"f"]));
            peer.message(message);
            sink(&mut peer, Duration::from_millis(100));
            peer.hang_up();
        }
        let grown = victim.memory().saturating_sub(before);
        assert!(grown < LITTLE, "{} MiB", grown >> 20);
        victim.assert_serves();
    });
}

#[test]
fn a_peer_that_writes_past_the_limit_of_a_stream_fills_no_memory() {
    limited(|test| {
        let victim = Victim::start(test);
        victim.assert_serves();
        let before = victim.memory();
        for way in [WAYS[0], WAYS[3], WAYS[5]] {
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(request(false, 1, &[b""]));
            // One message that would be whole a megabyte later, and 63 more behind it.
            peer.perform(Action::Stream(Bytes::new().varint(1 << 20).varint(2).0));
            for _ in 0..64 {
                peer.perform(Action::Stream(noise(1, 1 << 20)));
            }
            let grown = victim.memory().saturating_sub(before);
            assert!(grown < LITTLE, "{way:?}: {} MiB", grown >> 20);
            peer.hang_up();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_wrong_group_whose_hash_comes_late_is_sent_again_and_placed() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in WAYS {
            let contents = noise(1, 200_000);
            let ending = victim.push(way, b"", &[Item::file(b"f", &contents)], |peer| {
                peer.tamper = Some(wrong_at_first());
            });
            assert_eq!(ending.result, Some((1, 0)), "{way:?}: {ending:?}");
            assert!(ending.repairs > 0, "{way:?}: {ending:?}");
            assert!(fs::read(test.there("f")).unwrap() == contents);
            fs::remove_file(test.there("f")).unwrap();
        }
        victim.assert_serves();
    });
}

/// The first piece is wrong once, and hashes come when all pieces have long arrived.
fn wrong_at_first() -> Tamper {
    let mut pieces = 0;
    Box::new(move |action| match action {
        Action::Object { object, offset, mut payload } => {
            payload[0] ^= u8::from(pieces == 0);
            pieces += 1;
            vec![Action::Object { object, offset, payload }]
        }
        Action::Message(bytes) if bytes.first() == Some(&4) => {
            vec![Action::Pause(Duration::from_millis(300)), Action::Message(bytes)]
        }
        other => vec![other],
    })
}

#[test]
fn reports_of_what_was_never_sent_or_received_stop_nobody_else() {
    limited(|test| {
        let file = fs::File::create(test.there("large")).unwrap();
        file.set_len(1 << 30).unwrap();
        let victim = Victim::start(test);
        let counts = |largest: u64, packets: u64, marks: u64, credit: u64| {
            let head = Bytes::new().varint(largest).u32(0).u32(0).varint(0).varint(packets);
            let head = head.varint(packets).varint(0).varint(0).varint(marks);
            head.varint(0).varint(0).varint(credit)
        };
        let head = |largest, packets, credit| counts(largest, packets, 0, credit);
        let all = |end: u64| Bytes::new().varint(0).varint(end).0;
        let none = head(0, 1, HUGE).varint(0).varint(1).sized(&all(1));
        let lies = [
            // Everything that there can be arrived.
            head(1 << 40, 1 << 40, HUGE).varint(0).varint(1 << 40).sized(&all(1 << 40)),
            head(HUGE, HUGE, HUGE).varint(0).varint(HUGE).sized(&all(HUGE)),
            // So few numbers, so many packets and bytes; so few packets, so many marks.
            head(0, HUGE, HUGE).varint(0).varint(1).sized(&all(1)),
            counts(0, 1, HUGE, HUGE).varint(0).varint(1).sized(&all(1)),
            // Ranges that do not add up.
            head(9, 9, HUGE).varint(0).varint(9).sized(&all(5)),
            // A receiver as fast as none is, and one that takes nothing.
            none.clone().varint(2).sized(&Bytes::new().varint(HUGE).0),
            none.clone().varint(2).sized(&Bytes::new().varint(0).0),
            none.varint(4).sized(&Bytes::new().varint(HUGE).0),
        ];
        thread::scope(|scope| {
            for (i, lie) in lies.into_iter().enumerate() {
                let victim = &victim;
                scope.spawn(move || {
                    let mut peer = Peer::dial(victim.address, WAYS[i % 3]).unwrap();
                    let Carrier::Udp(udp) = &mut peer.carrier else {
                        unreachable!("of these ways")
                    };
                    udp.lie = Some(frame(5, &lie.0));
                    peer.message(request(true, 0, &[b"large"]));
                    sink(&mut peer, Duration::from_secs(2));
                    peer.hang_up();
                });
            }
            // Meanwhile.
            victim.assert_serves();
        });
        victim.assert_serves();
    });
}

#[test]
fn questions_about_rounds_draw_one_report_each_at_the_most() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 1_000)).unwrap();
        let victim = Victim::start(test);
        let mut peer = Peer::dial(victim.address, WAYS[0]).unwrap();
        peer.message(request(true, 0, &[b"f"]));
        // Its address is proven meanwhile.
        sink(&mut peer, Duration::from_millis(300));
        let Carrier::Udp(udp) = &mut peer.carrier else { unreachable!("of this way") };
        udp.socket.set_nonblocking(true).unwrap();
        // Gaps, which fill an answer.
        let (mut sent, mut questions) = (0, 0);
        for gap in 0..4_000 {
            udp.next += 100;
            udp.control(&[0]);
            sent += 65;
            if gap % 64 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let mut received = 0;
        let take = |socket: &std::net::UdpSocket| {
            let mut buffer = [0; 65_536];
            std::iter::from_fn(|| socket.recv(&mut buffer).ok()).map(|len| len + 28).sum::<usize>()
        };
        for question in 0..5_000 {
            let end = udp.next;
            udp.control(&frame(17, &Bytes::new().varint(0).varint(end).0));
            sent += 70;
            questions += 1;
            if question % 16 == 0 {
                thread::sleep(Duration::from_millis(1));
                received += take(&udp.socket);
            }
        }
        let mut quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) {
            let more = take(&udp.socket);
            received += more;
            // The program sends little of its own accord.
            if more > 1_000 {
                quiet = Instant::now();
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(received < sent + questions * 1_280, "{received} for {sent}");
        assert!(received < 10 * sent, "{received} for {sent}");
        peer.hang_up();
        victim.assert_serves();
    });
}

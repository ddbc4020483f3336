//! Contenders for the places of a server: strangers of many addresses, and holders of a token who do
//! nothing with theirs.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::oracle::{PATIENCE, Victim};
use crate::peer::{Peer, WAYS, connect, control_message, hello, options, read_control};
use crate::script::{Item, manifest, request, source};
use crate::test::{limited, until};
use crate::tls::{CONTROL, Link, Shaking};
use crate::trees::noise;

/// The stage that a stranger goes to.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Silent,
    Greeted,
    Secured,
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are held open")]
enum Stranger {
    Silent(TcpStream),
    Greeted(Box<Shaking>),
    Secured(Link),
}

/// One from each of so many addresses, below those of the victims.
fn crowd(at: SocketAddr, numbers: Range<u16>, stage: Stage) -> Vec<Stranger> {
    let come = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let stream = connect(Ipv4Addr::new(127, 66, high, low.max(1)), at).ok()?;
        if let Stage::Silent = stage {
            return Some(Stranger::Silent(stream));
        }
        let mut shaking = Shaking::new(stream, CONTROL).ok()?;
        shaking.greet().ok()?;
        match stage {
            Stage::Secured => shaking.secure().ok().map(Stranger::Secured),
            _ => Some(Stranger::Greeted(Box::new(shaking))),
        }
    };
    numbers.filter_map(come).collect()
}

#[test]
fn strangers_of_many_addresses_keep_no_client_out_at_any_stage() {
    limited(|test| {
        let victim = Victim::start(test);
        let at = victim.address;
        for (last, stage) in [(1, Stage::Silent), (2, Stage::Greeted), (3, Stage::Secured)] {
            let mut held = crowd(at, 0..300, stage);
            // An address that has proven nothing yet, with others coming at each of its steps.
            let stream = connect(Ipv4Addr::new(127, 200, 0, last), at).unwrap();
            held.extend(crowd(at, 300..340, stage));
            let mut shaking = Shaking::new(stream, CONTROL).unwrap();
            shaking.greet().unwrap();
            held.extend(crowd(at, 340..380, stage));
            let mut link = shaking.secure().unwrap();
            held.extend(crowd(at, 380..420, stage));
            let hello = hello(&link.secret(), WAYS[3]);
            link.write_all(&control_message(1, &hello)).unwrap();
            let answer = read_control(&mut link);
            assert!(matches!(answer, Ok((2, _))), "{stage:?}: {answer:?}");
        }
        victim.assert_serves();
    });
}

/// Takes a place and reports for ever that its disk is why nothing moves.
fn hoard(at: SocketAddr, number: usize, over: &AtomicBool) {
    let mut peer = Peer::dial(at, WAYS[3]).unwrap();
    peer.message(request(false, 1, &[format!("hoard-{number}").as_bytes()]));
    peer.message(manifest(&[Item::file(b"hoarded", &noise(1, 1_000))]));
    let bound_by_its_disk =
        Bytes::new().varint(13).raw(&[0; 10]).raw(&[4, 4, 0, 0, 0, 0]).raw(&[0; 21]);
    peer.message(bound_by_its_disk);
    while !over.load(Ordering::Relaxed) && !peer.over {
        peer.receive(Instant::now() + Duration::from_millis(100));
    }
    peer.hang_up();
}

#[test]
fn places_that_a_client_holds_by_excuses_are_given_to_others_that_come() {
    limited(|test| {
        // From another address there is no need to wait; from the same the excuse has to end.
        for (from, excuse, why) in [
            (Ipv4Addr::new(127, 0, 0, 2), "0", "this token or address holds more"),
            (Ipv4Addr::LOCALHOST, "3", "nothing has moved here for"),
        ] {
            let memory = ["--memory", "16GiB", "--stall-timeout", "600"];
            let victim =
                Victim::start_with(test, &[&memory[..], &["--excuse-timeout", excuse]].concat());
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                let _over = Over(&over);
                for number in 0..PLACES {
                    let (at, over) = (victim.address, &over);
                    scope.spawn(move || hoard(at, number, over));
                }
                until("all places are taken", || {
                    (victim.stderr_so_far().matches("copies to here").count() == PLACES)
                        .then_some(())
                });
                let mut let_in = None;
                until("a place", || {
                    let_in = Peer::dial_from(from, victim.address, WAYS[3]).ok();
                    let_in.is_some().then_some(())
                });
                let mut peer = let_in.unwrap();
                peer.message(request(false, 1, &[b""]));
                let ending = source(&mut peer, &[Item::file(b"f", b"honest")], PATIENCE);
                assert_eq!(ending.result, Some((1, 0)), "{ending:?}");
                peer.hang_up();
                until("a line with the reason", || {
                    victim.stderr_so_far().contains(why).then_some(())
                });
            });
            victim.assert_sound();
        }
    });
}

/// Also when an assertion fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_client_plays_no_profile_that_the_server_does_not_allow() {
    limited(|test| {
        let victim = Victim::start_with(test, &["--profiles", "auto,cubic"]);
        for (profile, answer) in [("unlimited", 3), ("cubic", 2), ("fobs", 3)] {
            let mut link =
                Link::client(TcpStream::connect(victim.address).unwrap(), CONTROL).unwrap();
            let profile = options(&[(12, profile.as_bytes())]);
            let hello = [hello(&link.secret(), WAYS[3]), profile].concat();
            link.write_all(&control_message(1, &hello)).unwrap();
            let (kind, body) = read_control(&mut link).unwrap();
            assert_eq!(kind, answer, "{:?}", body.utf8_chunks());
            if kind == 3 {
                assert_eq!(body[..2], [0, 5]);
                assert!(body.ends_with(b"only: auto, cubic"), "{:?}", body.utf8_chunks());
            }
        }
        victim.assert_serves();
    });
}

/// Clients that a server takes at a time.
const PLACES: usize = 64;

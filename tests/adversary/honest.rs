//! The suite's own peers, when they behave, are understood: otherwise the attacks show nothing.

use std::fs;
use std::thread;

use longhaul_wire::{Carrier, Message, Protect};

use crate::host::Host;
use crate::oracle::{BOUND, STALL, Victim, end};
use crate::peer::{Peer, Received, WAYS, Way};
use crate::program::Program;
use crate::script::{Item, request, sink, source};
use crate::test::limited;
use crate::trees::noise;

#[test]
fn a_client_from_this_code_copies_both_ways() {
    limited(|test| {
        let contents = noise(1, 2_500_000);
        fs::write(test.there("pulled"), &contents).unwrap();
        let victim = Victim::start(test);
        for way in WAYS {
            let items = [Item::directory(b"d"), Item::file(b"d/f", &contents)];
            let ending = victim.push(way, b"", &items, |_| {});
            assert_eq!(ending.result, Some((2, 0)), "{way:?}: {ending:?}");
            assert!(fs::read(test.there("d/f")).unwrap() == contents);
            fs::remove_dir_all(test.there("d")).unwrap();
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(request(true, 0, &[b"pulled"]));
            let ending = sink(&mut peer, BOUND);
            let got = ending.objects.values().next();
            assert!(got == Some(&contents), "{way:?}: {:?} {:?}", ending.closed, ending.result);
        }
        victim.assert_serves();
    });
}

#[test]
fn a_server_from_this_code_copies_both_ways() {
    limited(|test| {
        let contents = noise(1, 2_500_000);
        fs::write(test.here("pushed"), &contents).unwrap();
        for way in WAYS {
            let host = Host::new();
            let pull = copy(test, way, &[&format!("lh://{}/f", host.address), "here/f"]);
            let mut peer = host.accept().unwrap();
            await_request(&mut peer);
            source(&mut peer, &[Item::file(b"f", &contents)], BOUND);
            end(pull).assert_succeeded();
            assert!(fs::read(test.here("f")).unwrap() == contents);
            fs::remove_file(test.here("f")).unwrap();

            let push = copy(test, way, &["here/pushed", &format!("lh://{}/f", host.address)]);
            let serving = thread::spawn(move || {
                let mut peer = host.accept().unwrap();
                await_request(&mut peer);
                sink(&mut peer, BOUND)
            });
            end(push).assert_succeeded();
            assert!(serving.join().unwrap().objects[&0] == contents);
        }
    });
}

/// A copy of the program in this way.
pub fn copy<'t>(test: &'t crate::test::Test, way: Way, words: &[&str]) -> Program<'t> {
    let protect = match way.protect {
        Protect::Aead => "aead",
        Protect::Integrity => "integrity",
        Protect::Clear => "clear",
    };
    let carrier = if way.carried == Carrier::Tcp { "tcp" } else { "udp" };
    let fixed = ["--protect", protect, "--carrier", carrier];
    Program::cp(test, &[&fixed[..], &STALL, words].concat())
}

/// Waits for REQUEST or PIPE.
pub fn await_request(peer: &mut Peer) {
    let deadline = std::time::Instant::now() + BOUND;
    while let Some(received) = peer.receive(deadline) {
        if let Received::Message(Message::Request(_) | Message::Pipe(_)) = received {
            return;
        }
    }
}

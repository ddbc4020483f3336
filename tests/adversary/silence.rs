//! Peers that fall silent, or that only answer PING, at each step: the program ends what it does
//! with them.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::honest::{await_request, copy};
use crate::host::Host;
use crate::oracle::{BOUND, Victim, assert_only, end};
use crate::peer::{Peer, Tamper, WAYS, Way};
use crate::script::{Item, request, sink, source};
use crate::test::{Test, limited};
use crate::tls::{CONTROL, Link};
use crate::trees::noise;

const SIZE: usize = 120_000;
/// A script goes so far before the silence.
const WHILE: Duration = Duration::from_millis(500);

/// Lets `most` actions pass, and no more.
fn up_to(most: usize) -> Tamper {
    let mut actions = 0;
    Box::new(move |action| {
        actions += 1;
        if actions > most { Vec::new() } else { vec![action] }
    })
}

#[test]
fn a_client_silent_at_any_step_loses_its_place() {
    limited(|test| {
        fs::write(test.there("large"), noise(1, 9_000_000)).unwrap();
        let victim = Victim::start(test);
        thread::scope(|scope| {
            scope.spawn(|| {
                let silent = TcpStream::connect(victim.address).unwrap();
                assert_turned_away(silent, "no TLS");
            });
            scope.spawn(|| {
                let silent = TcpStream::connect(victim.address).unwrap();
                let link = Link::client(silent, CONTROL).unwrap();
                assert_turned_away(link.socket().try_clone().unwrap(), "no HELLO");
            });
            // Nothing, REQUEST, MANIFEST, MANIFEST_END, three pieces, HASHES, and the end left out.
            let steps = (0..8).map(|words| (false, words));
            // REQUEST alone, then ACCEPT, and nothing of what is sent is read.
            for (i, (pull, words)) in steps.chain([(true, 1), (true, 2)]).enumerate() {
                let ways = [(WAYS[i % 3], true), (WAYS[3 + i % 3], false)];
                for (way, answering) in ways {
                    let victim = &victim;
                    scope.spawn(move || {
                        let mut peer = Peer::dial(victim.address, way).unwrap();
                        peer.tamper = Some(up_to(words));
                        if pull {
                            peer.message(request(true, 0, &[b"large"]));
                            peer.carrier.credit(1 << 40);
                            sink(&mut peer, Duration::from_millis(20 * words as u64));
                        } else {
                            peer.message(request(false, 1, &[b""]));
                            let name = format!("f{i}-{answering}");
                            let items = [Item::file(name.as_bytes(), &noise(1, SIZE))];
                            source(&mut peer, &items, WHILE);
                        }
                        let ended = peer.over || peer.falls_silent(answering);
                        assert!(ended, "{way:?}, pull {pull}, {words} words, {answering}");
                    });
                }
            }
        });
        victim.assert_serves();
        for entry in fs::read_dir(test.path("there")).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('f') {
                assert!(fs::read(entry.path()).unwrap() == noise(1, SIZE), "{name}");
            }
        }
    });
}

fn assert_turned_away(mut stream: TcpStream, step: &str) {
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let ended = stream.read_to_end(&mut Vec::new());
    let waits = ended.as_ref().is_err_and(crate::tls::is_early);
    assert!(!waits, "{step}: {ended:?}");
}

#[test]
fn a_server_silent_at_any_step_is_given_up() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, SIZE)).unwrap();
        // As much as no buffer between holds.
        fs::File::create(test.here("large")).unwrap().set_len(1 << 30).unwrap();
        thread::scope(|scope| {
            for tls in [false, true] {
                scope.spawn(move || {
                    let host = Host::new();
                    let to = format!("lh://{}/", host.address);
                    let copying = copy(test, WAYS[0], &["here/f", &to]);
                    let _silent = if tls {
                        Link::Bare(host.accept_tls().unwrap().socket().try_clone().unwrap())
                    } else {
                        Link::Bare(host.accept_tcp().unwrap())
                    };
                    assert_eq!(end(copying).status, Some(1));
                });
            }
            // A pull hears MANIFEST, MANIFEST_END, three pieces and no HASHES.
            let pulls = (0..6).map(|words| ("pull", words));
            // A push hears ACCEPT and CONFIRM and no RESULT.
            let pushes = (0..3).map(|words| ("f", words));
            for (i, (what, words)) in pulls.chain(pushes).chain([("large", 1)]).enumerate() {
                for (way, answering) in [(WAYS[i % 3], true), (WAYS[3 + i % 3], false)] {
                    scope.spawn(move || silent_server(test, way, what, words, answering));
                }
            }
        });
        assert_only(&test.path("here"), &["f", "large"]);
    });
}

/// A copy with a server that takes so many actions and no more.
fn silent_server(test: &Test, way: Way, what: &str, words: usize, answering: bool) {
    let host = Host::new();
    let at = format!("lh://{}/f", host.address);
    let (mine, pull) = (format!("here/{what}"), what == "pull");
    let to = format!("here/{way:?}{words}").replace(|c: char| !c.is_alphanumeric() && c != '/', "");
    let copying = copy(test, way, &if pull { [&at[..], &to] } else { [&mine[..], &at] });
    let mut peer = host.accept().unwrap();
    peer.tamper = Some(up_to(words));
    await_request(&mut peer);
    if pull {
        source(&mut peer, &[Item::file(b"f", &noise(1, SIZE))], WHILE);
    } else {
        // The most credit that there is.
        peer.carrier.credit((1 << 62) - 1);
        sink(&mut peer, if what == "large" { Duration::from_millis(50) } else { WHILE });
    }
    let ended = thread::scope(|scope| {
        scope.spawn(|| peer.over || peer.falls_silent(answering));
        end(copying)
    });
    assert_eq!(ended.status, Some(1), "{way:?}, {what}, {words} words: {ended:?}");
}

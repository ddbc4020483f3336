//! Escape codes and ends of lines in whatever a peer can send: none reaches a terminal, a log or
//! JSON as it is.

use std::io::Write;

use crate::bytes::Bytes;
use crate::carrier::frame;
use crate::honest::await_request;
use crate::host::Host;
use crate::oracle::{STALL, Victim, end};
use crate::peer::{Action, Peer, WAYS, control_message, read_control};
use crate::program::Program;
use crate::script::{Item, manifest, manifest_end, request, result, sink, source};
use crate::test::{Test, limited};

pub const EVIL: &[u8] = b"no\x1b[2J\x1b]0;title\x07\r\nforged: done, 7 B\n\xc2\x9b2J";

pub fn assert_tame(text: &str, what: &str) {
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(steers), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{what}: {text:?}");
}

/// An attack of a hostile server on a copy.
type Attack = fn(&Host);

/// A server as far as REQUEST.
fn asked(host: &Host) -> Peer {
    let mut peer = host.accept().unwrap();
    await_request(&mut peer);
    peer
}

/// Hangs up, once the program has received what was sent.
fn leave(mut peer: Peer) {
    sink(&mut peer, std::time::Duration::from_millis(300));
    peer.hang_up();
}

const ATTACKS: [(&str, bool, Attack); 9] = [
    ("busy", true, |host| {
        let mut control = host.accept_tls().unwrap();
        read_control(&mut control).unwrap();
        let busy = Bytes::new().u16(7).raw(EVIL);
        control.write_all(&control_message(3, &busy.0)).unwrap();
        control.flush().unwrap();
        let _ = read_control(&mut control);
    }),
    ("REFUSED", true, |host| {
        let mut peer = asked(host);
        peer.message(Bytes::new().varint(12).u16(6).raw(EVIL));
        leave(peer);
    }),
    ("CLOSE", true, |host| {
        let mut peer = asked(host);
        peer.close(1, EVIL);
        leave(peer);
    }),
    ("CLOSE in a frame", false, |host| {
        let mut peer = asked(host);
        peer.perform(Action::Frames(frame(19, &Bytes::new().u16(10).raw(EVIL).0)));
        leave(peer);
    }),
    ("names and ENTRY_FAILED", true, |host| {
        let mut peer = asked(host);
        let name = [b"f/", EVIL].concat();
        let items = [Item::directory(b"f"), Item::file(&name, b"x")];
        peer.message(manifest(&items));
        peer.message(Bytes::new().varint(5).varint(1).u8(4).raw(EVIL));
        peer.message(manifest_end(&items));
        leave(peer);
    }),
    ("a name that was not asked for", true, |host| {
        let mut peer = asked(host);
        source(&mut peer, &[Item::file(EVIL, b"x")], std::time::Duration::from_millis(300));
        peer.hang_up();
    }),
    ("DELETED that nobody asked for", false, |host| {
        let mut peer = asked(host);
        peer.message(Bytes::new().varint(22).sized(EVIL));
        leave(peer);
    }),
    ("NOT_DELETED that nobody asked for", false, |host| {
        let mut peer = asked(host);
        peer.message(Bytes::new().varint(23).sized(b"x").u8(9).raw(EVIL));
        leave(peer);
    }),
    ("ENTRY_REFUSED", false, |host| {
        let mut peer = asked(host);
        peer.message(Bytes::new().varint(10).varint(0).u8(9).raw(EVIL));
        peer.message(result(0, 1, 0));
        peer.done();
        leave(peer);
    }),
];

/// A copy, its words not hidden behind `--json`.
fn copy<'t>(test: &'t Test, json: bool, words: &[&str]) -> Program<'t> {
    let fixed = [if json { "--json" } else { "--verbose" }, "--token-file", "token"];
    Program::start(test, &[&["cp", "--retry", "0"][..], &fixed, &STALL, words].concat())
}

#[test]
fn words_of_a_server_steer_no_terminal_and_forge_no_line() {
    limited(|test| {
        std::fs::write(test.here("pushed"), b"x").unwrap();
        for (what, pull, attack) in ATTACKS {
            for json in [true, false] {
                let host = Host::new();
                let at = format!("lh://{}/f", host.address);
                let words = if pull { [&at[..], "here/f"] } else { ["here/pushed", &at[..]] };
                let copying = copy(test, json, &words);
                attack(&host);
                let ended = end(copying);
                assert_eq!(ended.status, Some(1), "{what}: {ended:?}");
                assert_tame(&ended.stderr, what);
                assert_tame(&ended.stdout, what);
            }
        }
    });
}

#[test]
fn names_of_what_a_server_deleted_steer_no_terminal() {
    limited(|test| {
        std::fs::write(test.here("pushed"), b"x").unwrap();
        for json in [true, false] {
            let host = Host::new();
            let at = format!("lh://{}/f", host.address);
            let copying = copy(test, json, &["--delete", "here/pushed", &at]);
            let mut peer = asked(&host);
            peer.message(Bytes::new().varint(22).sized(EVIL).sized(b"../../etc/passwd"));
            peer.message(Bytes::new().varint(23).sized(EVIL).u8(9).raw(EVIL));
            leave(peer);
            let ended = end(copying);
            assert_eq!(ended.status, Some(1), "{ended:?}");
            assert_eq!(ended.stdout.contains("deleting no\\u{1b}[2J"), !json, "{ended:?}");
            assert_tame(&ended.stderr, "DELETED");
            assert_tame(&ended.stdout, "DELETED");
        }
    });
}

#[test]
fn words_of_a_client_forge_no_line_of_a_servers_log() {
    limited(|test| {
        std::fs::write(test.there("f"), b"x").unwrap();
        let victim = Victim::start(test);
        for way in WAYS {
            let evil = |peer: &mut Peer| leave_with(peer);
            victim.push(way, EVIL, &[Item::file(EVIL, b"x")], evil);
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(request(true, 0, &[EVIL, b"../f", b"f"]));
            peer.message(Bytes::new().varint(10).varint(0).u8(9).raw(EVIL));
            peer.close(9, EVIL);
            leave(peer);
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(Bytes::new().varint(14).u8(1).raw(EVIL));
            peer.perform(Action::Frames(frame(19, &Bytes::new().u16(2).raw(EVIL).0)));
            leave(peer);
        }
        assert_tame(&victim.stderr_so_far(), "log");
        victim.assert_serves();
    });
}

/// Says in place of its hashes that the source failed, and why.
fn leave_with(peer: &mut Peer) {
    peer.tamper = Some(Box::new(|action| match action {
        Action::Message(bytes) if bytes.first() == Some(&4) => {
            vec![Action::Message(Bytes::new().varint(5).varint(0).u8(4).raw(EVIL).0)]
        }
        other => vec![other],
    }));
}

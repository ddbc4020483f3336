//! Clients that hold a token and use it badly.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::bytes::Bytes;
use crate::carrier::frame;
use crate::oracle::{BOUND, Victim, assert_only};
use crate::peer::{Action, Peer, Tamper, WAYS, control_message, hello, options, read_control};
use crate::script::{Item, request, result, sink, source};
use crate::test::{limited, until};
use crate::tls::{CONTROL, Link};
use crate::trees::{is_hidden, names, noise};

#[test]
fn bad_names_in_a_manifest_are_refused() {
    limited(|test| {
        let victim = Victim::start(test);
        let long = vec![b'x'; 5_000];
        let file = |path: &[u8]| Item::file(path, b"evil");
        let bad: Vec<Vec<Item>> = vec![
            vec![file(b"../out")],
            vec![file(b"/etc/out")],
            vec![file(b"a/../../out")],
            vec![file(b"./out")],
            vec![file(b"a//out")],
            vec![file(b"out\0")],
            vec![file(&long)],
            vec![file(b"same"), file(b"same")],
            vec![file(b"parent/missing")],
            vec![file(b""), file(b"out")],
            vec![file(b"file"), file(b"file/below")],
            vec![Item::link(b"empty", b"")],
            vec![Item { kind: 9, ..file(b"out") }],
            vec![Item { mode: 0o170_777, ..file(b"out") }],
            vec![Item { size: Some(1 << 61), ..file(b"out") }, file(b"out2")],
        ];
        for items in bad {
            let ending = victim.push(WAYS[0], b"", &items, |_| {});
            let confirmed = ending.result.map_or(0, |(confirmed, _)| confirmed);
            assert!(confirmed < items.len() as u64, "{items:?}: {ending:?}");
        }
        assert_only(&test.path("there"), &["same", "file"]);
        assert!(!test.path("out").exists());
        victim.assert_serves();
    });
}

/// NAMES, of which more follow.
fn listed<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    names.into_iter().fold(Bytes::new().varint(27).varint(0), Bytes::sized)
}

#[test]
fn a_list_of_names_that_makes_no_sense_or_never_ends_takes_nothing_of_a_server() {
    limited(|test| {
        fs::create_dir(test.there("d")).unwrap();
        // Nothing of it reaches a client without a data lane: no copy is over before the list has been read.
        fs::write(test.there("d/contents"), [7; 1 << 20]).unwrap();
        fs::write(test.path("secret"), "secret").unwrap();
        let victim = Victim::start_with(test, &["--memory", "256MiB", "--stall-timeout", "5"]);
        let wrong: [&[&[u8]]; 7] = [
            &[b"../secret"],
            &[b"/etc/passwd"],
            &[b"a//b"],
            &[b""],
            &[b"b", b"a"],
            &[b"a", b"a"],
            &[b"a", b"a/b"],
        ];
        for names in wrong {
            let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
            peer.message(request(true, 1024 + 4, &[b"d"]));
            peer.message(listed(names.iter().copied()));
            let ending = sink(&mut peer, BOUND);
            assert!(ending.closed.is_some() && ending.result.is_none(), "{names:?}: {ending:?}");
        }
        // Not announced, of several sources, of a whole one, and with deletion; and one that leads out.
        let request = |flags, paths: &[&[u8]]| request(true, flags, paths);
        for (begin, name) in [
            (request(4, &[b"d"]), &b"a"[..]),
            (request(1024 + 4, &[b"d", b"d"]), b"a"),
            (request(1024, &[b"d"]), b"a"),
            (request(1024 + 4, &[b"../"]), b"secret"),
        ] {
            let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
            peer.message(begin);
            peer.message(listed([name]));
            let ending = sink(&mut peer, BOUND);
            assert!(ending.closed.is_some() && ending.result.is_none(), "{ending:?}");
        }
        // A million of them, and more, in their order.
        victim.assert_serves();
        let before = victim.peak();
        let mut peer = Peer::dial(victim.address, WAYS[5]).unwrap();
        peer.message(request(1024 + 4, &[b"d"]));
        let until = Instant::now() + Duration::from_secs(120);
        let mut sent = 0_u64;
        while sent < 3_000_000 {
            let names: Vec<_> =
                (sent..sent + 500).map(|n| format!("{:a<50}{n:08}", "").into_bytes()).collect();
            if !peer.message_in_turn(listed(names.iter().map(Vec::as_slice)), until) {
                break;
            }
            sent += 500;
        }
        assert!((500_000..3_000_000).contains(&sent), "{sent}");
        let grown = victim.peak() - before;
        assert!(grown < 224 << 20, "{} MiB", grown >> 20);
        peer.hang_up();
        victim.assert_serves();
    });
}

#[test]
fn no_file_follows_a_link_out_of_the_root() {
    limited(|test| {
        fs::create_dir(test.path("outside")).unwrap();
        let victim = Victim::start(test);
        for target in [&b"../outside"[..], b"/tmp", b".."] {
            let items = [Item::link(b"way", target), Item::file(b"way/escaped", b"evil")];
            let ending = victim.push(WAYS[0], b"", &items, |_| {});
            assert_ne!(ending.result, Some((2, 0)), "{ending:?}");
            let _ = fs::remove_file(test.there("way"));
            let linked = [Item::link(b"way", target)];
            victim.push(WAYS[0], b"", &linked, |_| {});
            victim.push(WAYS[0], b"way/escaped", &[Item::file(b"f", b"evil")], |_| {});
            let _ = fs::remove_file(test.there("way"));
        }
        assert!(names(&test.path("outside")).is_empty());
        assert!(!test.path("escaped").exists());
        victim.assert_serves();
    });
}

#[test]
fn contents_that_never_match_their_hash_are_never_placed() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in WAYS {
            let ending = victim.push(way, b"", &[Item::file(b"f", &noise(1, 200_000))], |peer| {
                peer.tamper = Some(lying());
            });
            assert_ne!(ending.result, Some((1, 0)), "{way:?}: {ending:?}");
            assert_only(&test.path("there"), &[]);
        }
        victim.assert_serves();
    });
}

/// Every object is other than its hash.
fn lying() -> Tamper {
    Box::new(|action| match action {
        Action::Object { object, offset, mut payload } => {
            payload[0] ^= 1;
            vec![Action::Object { object, offset, payload }]
        }
        other => vec![other],
    })
}

#[test]
fn absurd_messages_and_frames_end_the_connection_alone() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 100_000)).unwrap();
        let victim = Victim::start(test);
        let huge = (1 << 62) - 1;
        let messages = [
            Bytes::new().varint(99),
            Bytes::new(),
            Bytes::new().varint(1).u8(7),
            Bytes::new().varint(1).u8(1).varint(0xff).raw(&[7; 16]).varint(huge),
            Bytes::new().varint(2).varint(0).varint(huge),
            Bytes::new().varint(2).varint(huge).varint(huge).varint(huge),
            Bytes::new().varint(3).varint(huge).varint(huge).varint(huge),
            Bytes::new().varint(4).varint(huge).varint(huge).raw(&[1; 64]),
            Bytes::new().varint(6).varint(huge),
            Bytes::new().varint(7).varint(0).varint(huge).varint(huge),
            Bytes::new().varint(9).varint(0).varint(huge),
            result(0, 0, 0),
            Bytes::new().varint(12).u16(6).raw(b"\x1b[2Jno"),
            Bytes::new().varint(14).u8(1).raw(&[0]),
        ];
        let frames = [
            frame(5, &[0xff; 60]),
            frame(7, &Bytes::new().varint(0).varint(huge).u8(0).raw(b"x").0),
            frame(7, &Bytes::new().varint(77).varint(1 << 40).u8(9).raw(b"x").0),
            frame(9, &Bytes::new().varint(0).varint(huge).0),
            frame(11, &Bytes::new().varint(0).u16(1).0),
            frame(17, &Bytes::new().varint(huge).varint(huge).0),
            frame(21, &Bytes::new().varint(huge).varint(huge).0),
            frame(33, b"odd"),
            frame(19, &Bytes::new().u16(2).raw(b"\x1b]0;forged\x07\nforged line").0),
        ];
        let garbage = [Action::Stream(vec![0xff; 3_000]), Action::Frames(vec![0xff; 900])];
        let controls =
            [control_message(77, b"?"), control_message(1, &[0; 40]), vec![0xff; 20_000]]
                .map(Action::Control);
        let actions: Vec<Action> = messages
            .map(|message| Action::Message(message.0))
            .into_iter()
            .chain(frames.map(Action::Frames))
            .chain(garbage)
            .chain(controls)
            .collect();
        for (i, action) in actions.into_iter().enumerate() {
            // First thing on one connection, behind a request on the next.
            for behind in [false, true] {
                let mut peer = Peer::dial(victim.address, WAYS[i % WAYS.len()]).unwrap();
                if behind {
                    peer.message(request(i % 2 == 0, 0, &[b"f"]));
                }
                peer.perform(action.clone());
                peer.perform(Action::Pause(Duration::from_millis(20)));
                peer.hang_up();
            }
        }
        victim.assert_serves();
        assert_only(&test.path("there"), &["f"]);
    });
}

#[test]
fn objects_beyond_credit_or_never_announced_take_no_memory() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in WAYS {
            let mut peer = Peer::dial(victim.address, way).unwrap();
            peer.message(request(false, 1, &[b""]));
            for group in 0..600 {
                peer.object(group % 7, u64::from(group) << 20, &[1; 900]);
                peer.object(0xffff_ffff, (1 << 62) - 2_000 + u64::from(group), &[1; 900]);
            }
            let items = [Item::file(b"f", &noise(1, 2_000))];
            source(&mut peer, &items, Duration::from_millis(300));
            peer.hang_up();
        }
        victim.assert_serves();
    });
}

#[test]
fn a_pull_gets_nothing_from_outside_the_root() {
    limited(|test| {
        fs::write(test.path("secret"), b"secret").unwrap();
        let victim = Victim::start(test);
        for path in [&b"../secret"[..], b"/etc/hostname", b"a/../../secret", b"..", b"../token"] {
            let mut peer = Peer::dial(victim.address, WAYS[0]).unwrap();
            peer.message(request(true, 0, &[path]));
            let ending = sink(&mut peer, Duration::from_secs(2));
            peer.hang_up();
            assert!(ending.objects.is_empty(), "{path:?}: {ending:?}");
        }
        victim.assert_serves();
    });
}

#[test]
fn a_client_that_hangs_up_at_any_step_leaves_nothing_under_a_name() {
    limited(|test| {
        let victim = Victim::start(test);
        for way in WAYS {
            for step in 0..6 {
                let items = [Item::directory(b"d"), Item::file(b"d/f", &noise(1, 120_000))];
                victim.push(way, b"", &items, |peer| peer.tamper = Some(leaving(step)));
            }
        }
        victim.assert_serves();
        let placed = names(&test.path("there")).into_iter().filter(|name| !is_hidden(name));
        for name in placed {
            let whole = fs::read(test.there(name.to_str().unwrap()).join("f"));
            assert!(whole.is_err() || whole.unwrap() == noise(1, 120_000));
        }
    });
}

/// Hangs up before its action number `step`.
fn leaving(step: usize) -> Tamper {
    let mut actions = 0;
    Box::new(move |action| {
        actions += 1;
        if actions > step { vec![Action::HangUp] } else { vec![action] }
    })
}

#[test]
fn a_profile_that_the_server_cannot_play_is_refused_by_name() {
    limited(|test| {
        let victim = Victim::start(test);
        let long = [b'p'; 33];
        for (profile, code, expected) in [
            (&b"warp"[..], UNSUPPORTED_OPTION, "no profile warp"),
            (b"rbudp", UNSUPPORTED_OPTION, "profile rbudp"),
            (b"AUTO", UNSUPPORTED_OPTION, "no profile AUTO"),
            (b"", UNSUPPORTED_OPTION, "no profile"),
            (b"\x1b[2Jauto", UNSUPPORTED_OPTION, "[2Jauto"),
            (&long, PROTOCOL_VIOLATION, ""),
            (b"\xff", PROTOCOL_VIOLATION, ""),
        ] {
            let mut control =
                Link::client(TcpStream::connect(victim.address).unwrap(), CONTROL).unwrap();
            let honest = hello(&control.secret(), WAYS[0]);
            let wish = [honest, options(&[(12, profile)])].concat();
            control.write_all(&control_message(1, &wish)).unwrap();
            let (kind, close) = read_control(&mut control).unwrap();
            assert_eq!((kind, &close[..2]), (3, &[0, code][..]), "{:?}", close.utf8_chunks());
            let reason = str::from_utf8(&close[2..]).unwrap();
            assert!(reason.contains(expected) && !reason.contains('\x1b'), "{reason:?}");
        }
        victim.assert_serves();
    });
}

/// Codes of CLOSE (docs/protocol.md 3).
const PROTOCOL_VIOLATION: u8 = 2;
const UNSUPPORTED_OPTION: u8 = 5;

#[test]
fn a_client_that_says_done_on_its_control_connection_alone_has_not_failed() {
    limited(|test| {
        fs::write(test.there("f"), noise(1, 1_000)).unwrap();
        let victim = Victim::start(test);
        let times = 20;
        for i in 0..times {
            let mut peer = Peer::dial(victim.address, WAYS[i % WAYS.len()]).unwrap();
            peer.message(request(true, 0, &[b"f"]));
            assert_eq!(sink(&mut peer, BOUND).result, Some((1, 0)));
            peer.hang_up();
        }
        let ended =
            || victim.stderr_so_far().matches(": done, ").count() + failed(&victim.stderr_so_far());
        until("all have ended", || (ended() == times).then_some(()));
        assert_eq!(failed(&victim.stderr_so_far()), 0, "{}", victim.stderr_so_far());
        victim.assert_sound();
    });
}

#[test]
fn a_client_that_closes_before_all_is_done_is_reported_as_gone() {
    limited(|test| {
        let victim = Victim::start(test);
        for (way, to) in WAYS.into_iter().zip(b'a'..) {
            let before = victim.stderr_so_far().matches(LEFT).count();
            let mut peer = Peer::dial(victim.address, way).unwrap();
            // The copy before may still have its destination.
            peer.message(request(false, 1, &[&[to]]));
            until("a beginning", || {
                // The server drops what comes before it has lanes: while nothing comes back, it goes again.
                peer.receive(Instant::now() + Duration::from_millis(10));
                (victim.stderr_so_far().matches("copies to here").count() > before).then_some(())
            });
            peer.close(0, b"");
            until("its end", || {
                (victim.stderr_so_far().matches(LEFT).count() > before).then_some(())
            });
        }
        victim.assert_serves();
    });
}

fn failed(output: &str) -> usize {
    output.matches(": failed: ").count()
}

const LEFT: &str = "failed: the client closed the connection before all was done";

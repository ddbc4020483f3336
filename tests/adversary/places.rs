//! Clients that hold a token and reach for what is no file of theirs: other transfers' hidden
//! directories, devices, FIFOs, and files that the system makes up.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;
use std::time::Duration;

use crate::bytes::Bytes;
use crate::oracle::{PATIENCE, Victim, assert_only};
use crate::peer::{Action, Peer, WAYS};
use crate::program::Program;
use crate::script::{Ending, Item, hashes, request, sink, source};
use crate::test::limited;
use crate::trees::{is_hidden, names, noise};

/// The outcome of a client that asks for `path`.
fn pull(server: std::net::SocketAddr, path: &[u8]) -> Ending {
    let mut peer = Peer::dial(server, WAYS[0]).unwrap();
    peer.message(request(true, 0, &[path]));
    let ending = sink(&mut peer, Duration::from_secs(2));
    peer.hang_up();
    ending
}

#[test]
fn the_hidden_directory_of_another_transfer_is_neither_read_nor_written() {
    limited(|test| {
        let victim = Victim::start(test);
        // It leaves when two of its groups are there.
        let contents = noise(1, 3_000_000);
        let mut early = Some(Action::Message(hashes(0, &contents).0));
        victim.push(WAYS[0], b"", &[Item::file(b"f", &contents)], |peer| {
            peer.tamper = Some(Box::new(move |action| match action {
                Action::Object { offset: 2_500_000.., .. } => {
                    vec![Action::Pause(Duration::from_millis(500)), Action::HangUp]
                }
                Action::Object { .. } => early.take().into_iter().chain([action]).collect(),
                other => vec![other],
            }));
        });
        let hidden = crate::test::until("a hidden directory", || {
            names(&test.path("there")).into_iter().find(|name| is_hidden(name))
        });
        let inside = || {
            let folder = test.path("there").join(&hidden);
            let names = names(&folder);
            names.into_iter().map(|name| (fs::read(folder.join(&name)).unwrap(), name)).collect()
        };
        // A transfer that breaks makes a last checkpoint.
        crate::test::until("its end", || victim.stderr_so_far().contains("failed: ").then_some(()));
        let before: Vec<_> = inside();
        assert!(before.iter().any(|(_, name)| name == "record"));
        let hidden = hidden.to_str().unwrap();
        let paths = [hidden.to_owned(), format!("{hidden}/record"), format!("./{hidden}/record")];
        for path in &paths {
            let ending = pull(victim.address, path.as_bytes());
            assert!(ending.objects.is_empty(), "{path}: {ending:?}");
        }
        let whole = pull(victim.address, b"");
        assert!(!whole.paths.iter().any(|path| path.starts_with(b".longhaul-")), "{whole:?}");
        let evil = Item::file(b"record", b"evil");
        for path in &paths {
            let ending = victim.push(WAYS[0], path.as_bytes(), std::slice::from_ref(&evil), |_| {});
            assert_ne!(ending.result, Some((1, 0)), "{path}: {ending:?}");
        }
        let record = format!("{hidden}/record");
        let tree = [Item::directory(hidden.as_bytes()), Item::file(record.as_bytes(), b"evil")];
        // Of another label, for this is another copy.
        let other = Bytes::new().varint(1).u8(1).varint(1).raw(&[8; 16]).varint(1).sized(b"");
        let mut peer = Peer::dial(victim.address, WAYS[0]).unwrap();
        peer.message(other);
        let ending = source(&mut peer, &tree, PATIENCE);
        peer.hang_up();
        assert_ne!(ending.result, Some((2, 0)), "{ending:?}");
        assert!(before == inside(), "changed");
        victim.assert_serves();
    });
}

#[test]
fn a_fifo_is_neither_read_nor_replaced() {
    limited(|test| {
        let made = Command::new("mkfifo").arg(test.there("fifo")).status().unwrap();
        assert!(made.success());
        let victim = Victim::start(test);
        assert!(pull(victim.address, b"fifo").objects.is_empty());
        for (to, name) in [(&b""[..], &b"fifo"[..]), (b"fifo", b"f")] {
            for item in [Item::file(name, b"evil"), Item::link(name, b"/etc/passwd")] {
                victim.push(WAYS[0], to, &[item], |_| {});
                let kind = fs::symlink_metadata(test.there("fifo")).unwrap().file_type();
                assert!(kind.is_fifo(), "{kind:?}");
            }
        }
        assert_only(&test.path("there"), &["fifo"]);
        victim.assert_serves();
    });
}

#[test]
fn devices_and_files_that_the_system_makes_up_are_not_sent() {
    limited(|test| {
        let words = ["serve", "--listen", "127.0.0.1:0", "--root", "/", "--token-file", "token"];
        let mut server = Program::start(test, &[&words[..], &["--allow-read"]].concat());
        let line = server.prints("listening on ");
        let at = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap();
        let at = at.parse().unwrap();
        let paths = ["dev/zero", "dev/null", "dev/random", "proc/self/mem", "proc/self/environ"];
        for path in paths {
            let ending = pull(at, path.as_bytes());
            assert!(ending.objects.is_empty(), "{path}: {:?}", ending.closed);
        }
        // It still sends what is a file.
        fs::write(test.there("f"), b"a file").unwrap();
        let path = test.there("f").to_str().unwrap().trim_start_matches('/').to_owned();
        assert_eq!(pull(at, path.as_bytes()).objects[&0], b"a file");
        assert!(!server.stderr_so_far().contains("panicked"));
    });
}

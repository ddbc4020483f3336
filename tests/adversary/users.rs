//! Another user of a host, who may write where a copy goes: he has no token and sees no traffic.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use longhaul_needs::needs;
use rustix::process::Signal;

use crate::program::{Ended, Program};
use crate::test::{Test, limited, until};
use crate::trees::{is_hidden, names, noise, record_len};

/// Which end of the copy he shares a host with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Client,
    Server,
}

impl At {
    fn destination(self, test: &Test) -> PathBuf {
        test.path(if self == Self::Client { "here" } else { "there" })
    }

    /// A copy of one file to there, as the user makes it again and again.
    fn copy<'t>(self, test: &'t Test, server: &str, words: &[&str]) -> Program<'t> {
        let (from, to) = match self {
            Self::Client => (format!("lh://{server}/file"), "here/copy".to_owned()),
            Self::Server => ("here/file".to_owned(), format!("lh://{server}/copy")),
        };
        Program::cp(test, &[words, &[&from, &to]].concat())
    }
}

/// Begins a copy into a directory that anybody may write to, and kills it. Returns the name of its hidden
/// directory and what lies in it, all of which other users can come to know.
fn interrupted(test: &Test, at: At, server: &str) -> (OsString, Vec<(OsString, Vec<u8>)>) {
    let to = at.destination(test);
    fs::set_permissions(&to, Permissions::from_mode(0o1777)).unwrap();
    let contents = noise(78, 24 << 20);
    fs::write(test.here("file"), &contents).unwrap();
    fs::write(test.there("file"), &contents).unwrap();
    let copy = at.copy(test, server, &["--rate", "20Mbps"]);
    until("a record", || record_len(&to).filter(|len| *len > 0));
    copy.signal(Signal::KILL);
    copy.end();
    let hidden = names(&to).into_iter().find(|name| is_hidden(name)).unwrap();
    let inside = names(&to.join(&hidden)).into_iter();
    let read = |name: OsString| (name.clone(), fs::read(to.join(&hidden).join(name)).unwrap());
    (hidden.clone(), inside.map(read).collect())
}

/// The same copy again, to its end: it goes on from nothing, and what it publishes is the user's own.
fn again(test: &Test, at: At, server: &str) -> Ended {
    let mut ended = None;
    // A server goes on with what it has received until it has given the dead client up.
    until("the same copy again", || {
        let copy = at.copy(test, server, &[]).end();
        (!copy.stderr.contains("under way already")).then(|| ended = Some(copy))
    });
    let ended = ended.unwrap();
    ended.assert_succeeded();
    assert_eq!(ended.json()["resumed_bytes"], 0, "{ended:?}");
    let copy = at.destination(test).join("copy");
    assert!(fs::read(&copy).unwrap() == fs::read(test.here("file")).unwrap());
    let metadata = fs::symlink_metadata(copy).unwrap();
    assert_eq!((metadata.uid(), metadata.nlink()), (0, 1));
    ended
}

#[needs(root)]
#[test]
fn a_hidden_directory_that_another_user_has_put_there_is_not_gone_on_with() {
    for at in [At::Client, At::Server] {
        limited(move |test| {
            let (_server, address) = Program::serve(test, "127.0.0.1:0", &[]);
            let server = address.to_string();
            let (hidden, inside) = interrupted(test, at, &server);
            let his = at.destination(test).join(hidden);
            // As if he had begun the same copy himself: it is resumable, and his.
            fs::remove_dir_all(&his).unwrap();
            fs::create_dir(&his).unwrap();
            fs::set_permissions(&his, Permissions::from_mode(0o777)).unwrap();
            for (name, bytes) in &inside {
                fs::write(his.join(name), bytes).unwrap();
                chown(his.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            chown(&his, Some(NOBODY), Some(NOBODY)).unwrap();
            let copy = again(test, at, &server);
            let notices = copy.json()["notices"].to_string();
            assert!(notices.contains("not this user's alone"), "{notices}");
            for (name, bytes) in &inside {
                assert!(fs::read(his.join(name)).unwrap() == *bytes, "{name:?} was changed");
            }
        });
    }
}

#[needs(root)]
#[test]
fn a_link_in_place_of_a_hidden_directory_leads_a_copy_nowhere() {
    for at in [At::Client, At::Server] {
        limited(move |test| {
            let (_server, address) = Program::serve(test, "127.0.0.1:0", &[]);
            let server = address.to_string();
            let (hidden, _) = interrupted(test, at, &server);
            let his = at.destination(test).join(hidden);
            fs::remove_dir_all(&his).unwrap();
            let own = test.path("own");
            fs::create_dir(&own).unwrap();
            fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
            fs::write(own.join("new-precious"), "precious").unwrap();
            symlink(&own, &his).unwrap();
            std::os::unix::fs::lchown(&his, Some(NOBODY), Some(NOBODY)).unwrap();
            again(test, at, &server);
            assert_eq!(names(&own), ["new-precious"]);
            assert_eq!(fs::read_link(&his).unwrap(), own);
        });
    }
}

#[needs(root)]
#[test]
fn incomplete_files_are_seen_by_their_owner_only() {
    for at in [At::Client, At::Server] {
        limited(move |test| {
            let (_server, address) = Program::serve(test, "127.0.0.1:0", &[]);
            let (hidden, _) = interrupted(test, at, &address.to_string());
            let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
            assert_eq!(mode(&at.destination(test).join(hidden)), 0o700);
        });
    }
}

const NOBODY: u32 = 65_534;

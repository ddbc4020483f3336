//! Ctrl-C and SIGTERM at either end.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited, until};
use crate::trees::{
    assert_nothing_half_done, assert_same, names, noise, record_len, recorded_groups, whole_groups,
};

#[test]
fn a_client_that_is_interrupted_says_so_and_goes_on_later() {
    limited(|test| {
        for (signal, carrier) in [(Signal::INT, "udp"), (Signal::TERM, "tcp")] {
            let (mut server, at) = Program::serve(test, "127.0.0.1:0", &[]);
            let mut client = begin(test, &format!("lh://{at}/"), carrier);
            client.signal(signal);
            client.prints("stopping");
            let ended = client.end();
            ended.assert_failed("run the same command again");
            assert!(ended.json()["error"].as_str().unwrap().contains("stopped"), "{ended:?}");
            server.prints("failed: stopped by the user");
            assert_nothing_half_done(&test.path("here"), &test.path("there"));

            let again = Program::cp(test, &["here/tree", &format!("lh://{at}/")]).end();
            again.assert_succeeded();
            assert_same(&test.here("tree"), &test.there("tree"));
            assert_eq!(names(&test.path("there")), ["tree"]);
            server.signal(signal);
            server.prints("stopping");
            server.end().assert_succeeded();
            fs::remove_dir_all(test.there("tree")).unwrap();
        }
    });
}

#[test]
fn a_demo_that_is_interrupted_says_so_once_and_leaves_nothing() {
    limited(|test| {
        let words = ["demo", "--size", "8MiB", "--rate", "4Mbps", "--rtt", "20ms"];
        let mut command = Command::new(PROGRAM);
        let mut demo = Program::spawn(test, command.args(words).process_group(0));
        let line = demo.prints(" of files in ");
        let folder = line.split(" of files in ").nth(1).unwrap().lines().next().unwrap();
        let received = Path::new(folder).join("received");
        until("the copy begins", || {
            fs::read_dir(&received).is_ok_and(|mut found| found.next().is_some()).then_some(())
        });
        // As Ctrl-C on a terminal does.
        let group = Pid::from_raw(demo.id().cast_signed()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        let ended = demo.end();
        ended.assert_failed("stopped; the demo's files are removed");
        assert_eq!(ended.stderr.matches("stopp").count(), 1, "{ended:?}");
        assert!(!Path::new(folder).exists());
    });
}

#[test]
fn a_server_that_is_stopped_says_so_to_its_clients() {
    limited(|test| {
        for (signal, carrier) in [(Signal::TERM, "udp"), (Signal::INT, "tcp")] {
            let (server, at) = Program::serve(test, &test.own_address(), &["--json"]);
            let client = begin(test, &format!("lh://{at}/"), carrier);
            server.signal(signal);
            let served = server.end();
            served.assert_succeeded();
            assert!(served.stderr.contains("stopping"), "{served:?}");
            assert_eq!(
                (&served.json()["transfers"], &served.json()["failed"]),
                (&1.into(), &1.into())
            );
            let ended = client.end();
            ended.assert_failed("the server is stopping");
            assert!(ended.stderr.contains("run the same command again"), "{ended:?}");
            assert_nothing_half_done(&test.path("here"), &test.path("there"));

            let (_server, at) = Program::serve(test, &at.to_string(), &[]);
            let again = Program::cp(test, &["here/tree", &format!("lh://{at}/")]).end();
            again.assert_succeeded();
            assert!(again.json()["resumed_bytes"].as_u64().unwrap() > 0, "{again:?}");
            assert_same(&test.here("tree"), &test.there("tree"));
            fs::remove_dir_all(test.there("tree")).unwrap();
        }
    });
}

/// Whichever end has the files and whichever is stopped, what was whole then, and found to be so, is not
/// sent again.
#[test]
fn files_that_were_whole_at_a_stop_are_not_sent_again() {
    limited(|test| {
        for (push, stop_client, signal) in [
            (true, true, Signal::INT),
            (true, false, Signal::TERM),
            (false, true, Signal::TERM),
            (false, false, Signal::INT),
        ] {
            let case = format!("push {push}, client {stop_client}");
            let (mut server, at) = Program::serve(test, &test.own_address(), &[]);
            let data = noise(77, 96 << 20);
            let (source, sink) = if push {
                (test.here("file"), test.path("there"))
            } else {
                (test.there("file"), test.path("here"))
            };
            fs::write(&source, &data).unwrap();
            let remote = format!("lh://{at}/");
            let file = format!("{remote}file");
            let words = if push { ["here/file", &remote] } else { [&file, "here/"] };
            let client = Program::cp(test, &[&["--rate", "100Mbps"][..], &words].concat());
            let first = until("a record", || record_len(&sink).filter(|len| *len > 0));
            until("something durable", || record_len(&sink).filter(|len| *len > first));
            if stop_client {
                client.signal(signal);
                client.end().assert_failed("run the same command again");
                server.prints("failed: ");
            } else {
                server.signal(signal);
                client.end().assert_failed("the server is stopping");
                server.end().assert_succeeded();
                server = Program::serve(test, &at.to_string(), &[]).0;
            }
            let recorded = recorded_groups(&sink);
            assert!(recorded <= whole_groups(&sink, &data), "{case}: {recorded}");
            let kept = recorded << 20;
            assert!(kept > 0 && kept < data.len(), "{case}: {kept}");
            let again = Program::cp(test, &words).end();
            again.assert_succeeded();
            assert_eq!(again.json()["resumed_bytes"], kept, "{case}");
            assert_same(&test.here("file"), &test.there("file"));
            server.signal(Signal::TERM);
            server.end().assert_succeeded();
            fs::remove_file(test.here("file")).unwrap();
            fs::remove_file(test.there("file")).unwrap();
        }
    });
}

#[test]
fn a_hangup_stops_a_server_unless_it_was_ignored_from_the_start() {
    limited(|test| {
        let serve = |command: &mut Command| {
            command.args([PROGRAM, "serve", "--root", "there"]);
            command.args(["--listen", "127.0.0.1:0", "--token-file", "token"]);
            Program::spawn(test, command)
        };
        // The tests may themselves run where it is ignored.
        let mut server = serve(Command::new("env").arg("--default-signal=HUP"));
        server.prints("listening on ");
        server.signal(Signal::HUP);
        server.prints("stopping");
        server.end().assert_succeeded();

        // As `nohup` starts it.
        let mut server = serve(Command::new("sh").args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]));
        let line = server.prints("listening on ");
        let at = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap();
        server.signal(Signal::HUP);
        fs::write(test.here("f"), "f").unwrap();
        Program::cp(test, &["here/f", &format!("lh://{at}/")]).end().assert_succeeded();
        server.signal(Signal::TERM);
        let ended = server.end();
        ended.assert_succeeded();
        assert_eq!(ended.stderr.matches("stopping").count(), 1, "{ended:?}");
    });
}

#[test]
fn a_second_signal_ends_at_once_and_says_so() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let client = begin(test, &format!("lh://{at}/"), "udp");
        // Before it has come to an end for the first.
        client.signal(Signal::INT);
        client.signal(Signal::TERM);
        let ended = client.end();
        ended.assert_failed("stopped");
        assert!(ended.json()["error"].as_str().unwrap().contains("stopped"), "{ended:?}");
        assert_nothing_half_done(&test.path("here"), &test.path("there"));
    });
}

/// However early it comes: here the program still waits for its token.
#[test]
fn a_signal_before_anything_has_begun_is_reported() {
    limited(|test| {
        let (cp, mut token) = waiting_for_its_token(test, &["cp", "here/f", "lh://127.0.0.1:9/"]);
        token.write_all(b"no token").unwrap();
        drop(token);
        let ended = cp.end();
        ended.assert_failed("token");
        assert_eq!(ended.json()["error"].as_str().map(str::is_empty), Some(false), "{ended:?}");

        let (serve, mut token) =
            waiting_for_its_token(test, &["serve", "--root", "there", "--listen", "127.0.0.1:0"]);
        token.write_all(&fs::read(test.path("token")).unwrap()).unwrap();
        drop(token);
        let ended = serve.end();
        ended.assert_succeeded();
        assert_eq!(ended.json()["transfers"], 0);
    });
}

#[test]
fn a_second_signal_leaves_an_object_with_what_is_known() {
    limited(|test| {
        for (words, field) in [
            (&["cp", "here/f", "lh://127.0.0.1:9/"][..], "bytes"),
            (&["pipe", "lh://127.0.0.1:9/x"], "bytes"),
            (&["serve", "--root", "there", "--listen", "127.0.0.1:0"], "transfers"),
        ] {
            let (program, _token) = waiting_for_its_token(test, words);
            // Within a moment it would be taken for the first.
            thread::sleep(Duration::from_millis(200));
            program.signal(Signal::TERM);
            let ended = program.end();
            ended.assert_failed("stopped at once, by a second signal");
            assert_eq!(ended.json()[field], 0, "{ended:?}");
        }
    });
}

/// A program that was asked to stop while it reads its token, and what that is to be written to.
fn waiting_for_its_token<'t>(test: &'t Test, words: &[&str]) -> (Program<'t>, File) {
    let fifo = test.path("fifo");
    if !fifo.exists() {
        let made = Command::new("mkfifo").args(["-m", "600"]).arg(&fifo).status().unwrap();
        assert!(made.success());
    }
    let mut program = Program::start(test, &[words, &["--json", "--token-file", "fifo"]].concat());
    let token = until("it opens its token", || {
        let mut options = File::options();
        options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&fifo).ok()
    });
    program.signal(Signal::INT);
    program.prints("stopping");
    (program, token)
}

/// Begins to push a tree, of which a part is durable when this returns.
fn begin<'t>(test: &'t Test, there: &str, carrier: &str) -> Program<'t> {
    fs::create_dir_all(test.here("tree")).unwrap();
    for i in 0..5 {
        fs::write(test.here("tree").join(i.to_string()), noise(i, 8_000_000)).unwrap();
    }
    // Half a minute and more: it goes on when this returns, however busy the disk is.
    let words = ["--rate", "8Mbps", "--carrier", carrier, "here/tree", there];
    let client = Program::cp(test, &words);
    let first = until("a record", || record_len(&test.path("there")).filter(|len| *len > 0));
    until("something durable", || record_len(&test.path("there")).filter(|len| *len > first));
    client
}

/// A limit of the size of files (`ulimit -f`), as services have.
#[test]
fn a_file_beyond_what_a_server_may_write_ends_that_copy_only() {
    limited(|test| {
        fs::write(test.here("large"), noise(31, 3_000_000)).unwrap();
        fs::write(test.here("small"), noise(32, 100_000)).unwrap();
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let limit = ["--pid", &server.id().to_string(), "--fsize=1000000"];
        assert!(Command::new("prlimit").args(limit).status().unwrap().success());
        let to = |name: &str| format!("lh://{at}/{name}");
        let ended = Program::cp(test, &["here/large", &to("large")]).end();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        Program::cp(test, &["here/small", &to("small")]).end().assert_succeeded();
        assert_same(&test.here("small"), &test.there("small"));
    });
}

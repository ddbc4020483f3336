//! Pipes: the input comes out, or both ends report that it did not.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::program::{Ended, PROGRAM, Program};
use crate::relay::{Relay, Tap};
use crate::test::{Test, limited, token, until};
use crate::trees::noise;

const WAITS: &str = "waiting for the";

fn serve(test: &Test) -> (Program<'_>, SocketAddr) {
    Program::serve(test, "127.0.0.1:0", &[])
}

fn send<'t>(test: &'t Test, at: SocketAddr, input: impl Into<Stdio>) -> Program<'t> {
    Program::pipe(test, &[], at, input, Stdio::piped())
}

fn receive<'t>(test: &'t Test, at: SocketAddr, output: impl Into<Stdio>) -> Program<'t> {
    Program::pipe(test, &["--receive"], at, Stdio::null(), output)
}

/// Sends the file `here/f` into a pipe at `at` and receives it as `here/g`.
fn through(test: &Test, at: SocketAddr, words: &[&str], receiver_first: bool) -> (Ended, Ended) {
    let input = File::open(test.here("f")).unwrap();
    let output = File::create(test.here("g")).unwrap();
    let sending = || Program::pipe(test, words, at, input, Stdio::piped());
    let receiving = || {
        let words = [words, &["--receive"]].concat();
        Program::pipe(test, &words, at, Stdio::null(), output)
    };
    let (sender, receiver) = if receiver_first {
        let mut receiver = receiving();
        receiver.prints(WAITS);
        (sending(), receiver)
    } else {
        let mut sender = sending();
        sender.prints(WAITS);
        (sender, receiving())
    };
    let (sender, receiver) = (sender.end(), receiver.end());
    sender.assert_succeeded();
    receiver.assert_succeeded();
    assert!(fs::read(test.here("f")).unwrap() == fs::read(test.here("g")).unwrap());
    (sender, receiver)
}

#[test]
fn bytes_come_out_as_they_went_in() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 9_876_543)).unwrap();
        let (server, at) = serve(test);
        for (step, words) in [
            &["--carrier", "udp"][..],
            &["--carrier", "udp", "--protect", "clear", "--lanes", "3"],
            &["--carrier", "udp", "--profile", "rbudp", "--rate", "200Mbps"],
            &["--carrier", "udp", "--profile", "rapid", "--rate", "200Mbps"],
            &["--carrier", "udp", "--profile", "paptc", "--rate", "200Mbps"],
            &["--carrier", "tcp"],
            &["--carrier", "tcp", "--protect", "clear", "--lanes", "2"],
        ]
        .into_iter()
        .enumerate()
        {
            let (sender, receiver) = through(test, at, words, step % 2 == 0);
            let (sent, received) = (sender.json(), receiver.json_beside_data());
            for json in [&sent, &received] {
                assert_eq!(json["bytes"], 9_876_543, "{json}");
                assert_eq!(json["carrier"], words[1], "{json}");
                assert_eq!(json["verified"], true, "{json}");
                assert!(json["packets_sent"].as_u64().unwrap() > 0, "{json}");
            }
            assert!(sent["cpu_seconds"]["remote"].as_f64().is_some(), "{sent}");
        }
        server.signal(Signal::TERM);
        server.end().assert_succeeded();
    });
}

#[test]
fn an_empty_input_is_an_empty_output() {
    limited(|test| {
        fs::write(test.here("f"), b"").unwrap();
        let (_server, at) = serve(test);
        for receiver_first in [true, false] {
            let (sender, _) = through(test, at, &[], receiver_first);
            assert_eq!(sender.json()["bytes"], 0);
        }
    });
}

#[test]
fn bytes_arrive_before_the_next_are_written() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (input, mut writer) = io::pipe().unwrap();
        let (mut reader, output) = io::pipe().unwrap();
        let (sender, receiver) = (send(test, at, input), receive(test, at, output));
        for line in ["one\n", "two, which is longer\n", "\0\u{1}\n"] {
            writer.write_all(line.as_bytes()).unwrap();
            let mut got = vec![0; line.len()];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(got, line.as_bytes());
        }
        drop(writer);
        sender.end().assert_succeeded();
        receiver.end().assert_succeeded();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn lost_packets_are_sent_again() {
    limited(|test| {
        fs::write(test.here("f"), noise(2, 6_000_000)).unwrap();
        let (_server, at) = serve(test);
        let mut count = 0;
        let lossy: Tap = Box::new(move |_, datagram| {
            count += 1;
            if count % 40 == 0 { vec![] } else { vec![datagram.to_vec()] }
        });
        let relay = Relay::tapped(at, lossy);
        let (sender, receiver) = through(test, relay.address, &["--carrier", "udp"], true);
        let resent = |json: serde_json::Value| json["packets_resent"].as_u64().unwrap();
        assert!(resent(sender.json()) > 0 && resent(receiver.json_beside_data()) > 0);
    });
}

#[test]
fn a_damaged_piece_is_found_and_sent_again() {
    limited(|test| {
        fs::write(test.here("f"), noise(3, 5_000_000)).unwrap();
        let (_server, at) = serve(test);
        let mut count = 0;
        // The tag authenticates the header; in `clear` not the payload behind it.
        let damaging: Tap = Box::new(move |_, datagram| {
            let mut datagram = datagram.to_vec();
            if datagram.len() > 1000 {
                count += 1;
                if count == 70 || count == 1500 {
                    datagram[500] ^= 0x10;
                }
            }
            vec![datagram]
        });
        let relay = Relay::tapped(at, damaging);
        through(test, relay.address, &["--carrier", "udp", "--protect", "clear"], true);
    });
}

#[test]
fn tcp_carries_where_udp_is_blocked() {
    limited(|test| {
        fs::write(test.here("f"), noise(4, 300_000)).unwrap();
        let (_server, at) = serve(test);
        let relay = Relay::start(at);
        relay.block_udp();
        let (sender, receiver) = through(test, relay.address, &[], true);
        assert_eq!(sender.json()["carrier"], "tcp");
        assert!(receiver.stderr.contains("TCP carries instead"), "{receiver:?}");
    });
}

/// A pipe through which something went, and whose input goes on.
fn under_way<'t>(
    test: &'t Test,
    at: SocketAddr,
    words: &[&str],
) -> (Program<'t>, Program<'t>, PipeWriter, PipeReader) {
    let (input, mut writer) = io::pipe().unwrap();
    let (mut reader, output) = io::pipe().unwrap();
    let mut sender = Program::pipe(test, words, at, input, Stdio::piped());
    // The end that comes second does not wait, and prints no notice of waiting.
    sender.prints(WAITS);
    let words = [words, &["--receive"]].concat();
    let receiver = Program::pipe(test, &words, at, Stdio::null(), output);
    writer.write_all(b"begun").unwrap();
    reader.read_exact(&mut [0; 5]).unwrap();
    (sender, receiver, writer, reader)
}

#[test]
fn an_end_that_dies_ends_the_other_with_a_failure() {
    limited(|test| {
        let (mut server, at) = serve(test);
        for words in [&["--carrier", "udp"], &["--carrier", "tcp"]] {
            let (sender, receiver, _writer, _reader) = under_way(test, at, words);
            sender.signal(Signal::KILL);
            let receiver = receiver.end();
            receiver.assert_failed("the sender vanished: ");
            receiver.assert_failed("; 5 bytes came through, not the whole");
            assert_eq!(receiver.json_beside_data()["verified"], false);

            let (sender, receiver, _writer, _reader) = under_way(test, at, words);
            receiver.signal(Signal::KILL);
            let sender = sender.end();
            sender.assert_failed("the receiver vanished: ");
            assert!(!sender.stderr.contains("came through"), "it does not know: {sender:?}");
            assert_eq!(sender.json()["verified"], false);
        }
        server.prints("the sender vanished");
    });
}

#[test]
fn a_server_that_dies_ends_both_ends_which_tell_how_much_came_through() {
    limited(|test| {
        for words in [&["--carrier", "udp"], &["--carrier", "tcp"]] {
            let (server, at) = serve(test);
            let (sender, receiver, mut writer, mut reader) = under_way(test, at, words);
            // Another five bytes, so that the sender has had time to learn of the first.
            writer.write_all(b"again").unwrap();
            reader.read_exact(&mut [0; 5]).unwrap();
            // The receiver counts what it has written a moment after the reader has it.
            std::thread::sleep(std::time::Duration::from_millis(100));
            server.signal(Signal::KILL);
            let (sender, receiver) = (sender.end(), receiver.end());
            receiver.assert_failed("; 10 bytes came through, not the whole");
            sender.assert_failed(" bytes had reached the server");
        }
    });
}

/// Rust opens `/dev/null` in their place before the program begins.
#[test]
fn a_stream_that_is_closed_is_refused_and_the_null_device_is_taken() {
    limited(|test| {
        let (_server, at) = serve(test);
        let run = |script: &str| {
            let at = format!("lh://{at}/a%20pipe");
            let mut command = Command::new("sh");
            command.args(["-c", script, PROGRAM, "--json", "--token-file", "token", &at]);
            Program::spawn(test, &mut command)
        };
        for (script, what) in [
            ("exec \"$0\" pipe --receive \"$@\" >&-", "standard output is closed"),
            ("exec \"$0\" pipe \"$@\" <&-", "standard input is closed"),
            ("exec \"$0\" pipe \"$@\" <.", "standard input is a directory"),
            ("exec \"$0\" pipe \"$@\" 0>/dev/null", "standard input is not open for reading"),
            ("exec \"$0\" pipe --receive \"$@\" 1</dev/null", "not open for writing"),
        ] {
            let ended = run(script).end();
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.stderr.contains(what), "{ended:?}");
        }
        // Open for both, as Rust opens it.
        for way in ["<>", "<"] {
            let sender = run(&format!("exec \"$0\" pipe \"$@\" {way}/dev/null"));
            let receiver = run("exec \"$0\" pipe --receive \"$@\" 1<>/dev/null");
            sender.end().assert_succeeded();
            receiver.end().assert_succeeded();
        }
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" keys new --json >&-", PROGRAM]);
        Program::spawn(test, &mut command).end().assert_failed("standard output is closed");
    });
}

#[test]
fn stopping_one_end_or_the_server_fails_the_rest() {
    limited(|test| {
        let (server, at) = serve(test);
        let (sender, receiver, _writer, _reader) = under_way(test, at, &[]);
        sender.signal(Signal::INT);
        sender.end().assert_failed("stopped");
        receiver.end().assert_failed("stopped by the user");
        let (sender, receiver, _writer, _reader) = under_way(test, at, &[]);
        server.signal(Signal::TERM);
        sender.end().assert_failed("the server is stopping");
        receiver.end().assert_failed("the server is stopping");
        server.end().assert_succeeded();
    });
}

#[test]
fn a_closed_output_ends_both_ends() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (sender, receiver, mut writer, reader) = under_way(test, at, &[]);
        drop(reader);
        writer.write_all(b"nobody reads this").unwrap();
        let receiver = receiver.end();
        receiver.assert_failed("cannot write to standard output");
        receiver.assert_failed("; 5 bytes came through, not the whole");
        assert_eq!(receiver.json_beside_data()["bytes"], 5);
        let sender = sender.end();
        sender.assert_failed("the receiver vanished: cannot write to standard output");
        sender.assert_failed("; 5 bytes came through, not the whole; ");
    });
}

#[test]
fn bytes_that_were_not_written_do_not_count_as_come_through() {
    limited(|test| {
        let (_server, at) = serve(test);
        fs::write(test.here("f"), noise(8, 20_000_000)).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let receiver = receive(test, at, full);
        let sender = send(test, at, File::open(test.here("f")).unwrap()).end();
        let receiver = receiver.end();
        for ended in [&sender, &receiver] {
            ended.assert_failed("No space left on device; 0 bytes came through");
            let line = ended.stderr.lines().find(|line| line.starts_with("longhaul: ")).unwrap();
            assert_eq!(line.matches("came through").count(), 1, "{line}");
        }
        assert_eq!(receiver.json_beside_data()["bytes"], 0);
    });
}

#[test]
fn a_reader_that_does_not_read_holds_the_sender_back() {
    limited(|test| {
        let (server, at) = serve(test);
        let (sender, receiver, mut writer, mut reader) = under_way(test, at, &[]);
        let written = Arc::new(AtomicU64::new(0));
        let counted = written.clone();
        let writing = thread::spawn(move || {
            let piece = noise(5, 1 << 20);
            for _ in 0..PIECES {
                writer.write_all(&piece).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Until nothing more is taken: that is what there is room for, or less where this machine
        // stalls. How much that is depends on the pieces, and these on how fast they are written.
        until("the server is full", || {
            let before = written.load(Ordering::Relaxed);
            thread::sleep(Duration::from_secs(1));
            (before > 0 && written.load(Ordering::Relaxed) == before).then_some(())
        });
        assert!(written.load(Ordering::Relaxed) < 200, "{written:?}");
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < 300 << 10, "{peak}");
        let mut got = 0;
        let (mut bytes, piece) = (vec![0; 1 << 20], noise(5, 1 << 20));
        while got < PIECES {
            reader.read_exact(&mut bytes).unwrap();
            assert!(bytes == piece, "piece {got}");
            got += 1;
        }
        writing.join().unwrap();
        assert_eq!(reader.read(&mut bytes).unwrap(), 0);
        sender.end().assert_succeeded();
        receiver.end().assert_succeeded();
    });
}

/// Of 1 MiB each: more than a server and two clients hold.
const PIECES: u64 = 400;

#[test]
fn a_name_in_use_is_refused_and_free_again_afterwards() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (sender, receiver, writer, _reader) = under_way(test, at, &[]);
        let second = send(test, at, Stdio::null()).end();
        second.assert_failed("the pipe a pipe has a sender already");
        let second = receive(test, at, Stdio::piped()).end();
        second.assert_failed("the pipe a pipe has a receiver already");
        assert_eq!(second.stdout, "");
        assert!(!second.stderr.contains(WAITS), "it was let in by nobody: {second:?}");
        drop(writer);
        sender.end().assert_succeeded();
        receiver.end().assert_succeeded();
        // A process that waits alone takes one end; gone, it leaves the name to others.
        let mut alone = receive(test, at, Stdio::piped());
        alone.prints(WAITS);
        receive(test, at, Stdio::piped()).end().assert_failed("has a receiver already");
        alone.signal(Signal::KILL);
        alone.end();
        fs::write(test.here("f"), b"again").unwrap();
        until("the name is free", || {
            let (reader, output) = io::pipe().unwrap();
            let mut next = receive(test, at, output);
            let free = next.prints_or_ends(WAITS);
            if free {
                let input = File::open(test.here("f")).unwrap();
                send(test, at, input).end().assert_succeeded();
                next.end().assert_succeeded();
                assert_eq!(io::read_to_string(reader).unwrap(), "again");
            }
            free.then_some(())
        });
    });
}

#[test]
fn the_next_pipe_has_its_name_at_once() {
    limited(|test| {
        let (_server, at) = serve(test);
        for round in 0..5u8 {
            fs::write(test.here("f"), [round; 99]).unwrap();
            through(test, at, &[], round % 2 == 0);
        }
    });
}

#[test]
fn a_client_without_the_right_is_refused() {
    limited(|test| {
        fs::write(test.path("wrong"), token(2).to_string()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(test.path("wrong"), private).unwrap();
        let (_reading, at) = Program::serve(test, "127.0.0.1:0", &["--allow-read"]);
        send(test, at, Stdio::null()).end().assert_failed("does not let anyone send");
        let (_writing, at) = Program::serve(test, "127.0.0.1:0", &["--allow-write"]);
        let refused = receive(test, at, Stdio::piped()).end();
        refused.assert_failed("does not let anyone receive");
        assert!(!refused.stderr.contains(WAITS), "{refused:?}");
        let there = format!("lh://{at}/x");
        let stranger = Program::start(test, &["pipe", "--token-file", "wrong", &there]).end();
        stranger.assert_failed("token");
    });
}

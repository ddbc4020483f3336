//! Copies and pipes in which nothing moves though both ends seem to be there, and those that are slow
//! or idle and go on.

use std::fs;
use std::io::{self, Read, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::program::Program;
use crate::test::{limited, until};
use crate::trees::{noise, record_len};

/// A process that is stopped keeps its connections, and is silent for less than the idle timeout.
#[test]
fn a_copy_that_stands_still_is_given_up_by_either_end() {
    limited(|test| {
        fs::write(test.here("file"), noise(5, 40_000_000)).unwrap();
        let patience = PATIENCE;
        for stop_client in [false, true] {
            let (mut server, at) = Program::serve(test, &test.own_address(), &patience);
            let remote = format!("lh://{at}/");
            let words = ["--rate", "8Mbps", "here/file", &remote];
            let own: &[&str] = if stop_client { &[] } else { &patience };
            let client = Program::cp(test, &[own, &words].concat());
            let there = test.path("there");
            let first = until("a record", || record_len(&there).filter(|len| *len > 0));
            until("something durable", || record_len(&there).filter(|len| *len > first));
            if stop_client {
                client.signal(Signal::STOP);
                server.prints("nothing has moved for 2 s");
                client.signal(Signal::CONT);
                client.end().assert_failed("nothing has moved for 2 s");
                server.signal(Signal::TERM);
                server.end().assert_succeeded();
            } else {
                server.signal(Signal::STOP);
                let ended = client.end();
                ended.assert_failed("nothing has moved for 2 s");
                assert!(ended.stderr.contains("of 1 announced entries"), "{ended:?}");
                server.signal(Signal::CONT);
                server.prints("failed: ");
                server.signal(Signal::TERM);
                server.end().assert_succeeded();
            }
        }
    });
}

/// At this rate the largest record of the TCP carrier takes longer than nothing may move.
#[test]
fn a_copy_at_a_low_rate_is_no_copy_that_stands_still() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &PATIENCE);
        fs::write(test.here("file"), noise(5, 300_000)).unwrap();
        let remote = format!("lh://{at}/");
        for carrier in ["udp", "tcp"] {
            let words = ["--carrier", carrier, "--rate", "400kbps", "here/file", &remote];
            Program::cp(test, &[&PATIENCE[..], &words].concat()).end().assert_succeeded();
        }
    });
}

/// The ends wait for one another, the receiver for input, the sender for the output: each for longer
/// than anything else may stand still.
#[test]
fn a_pipe_waits_for_the_programs_at_its_ends() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &PATIENCE);
        for carrier in ["udp", "tcp"] {
            let words = [&PATIENCE[..], &["--carrier", carrier]].concat();
            let receiving = [&words[..], &["--receive"]].concat();
            let (input, mut writer) = io::pipe().unwrap();
            let (mut reader, output) = io::pipe().unwrap();
            let receiver = Program::pipe(test, &receiving, at, Stdio::null(), output);
            thread::sleep(LONGER);
            let sender = Program::pipe(test, &words, at, input, Stdio::piped());
            writer.write_all(b"one").unwrap();
            let mut got = [0; 3];
            reader.read_exact(&mut got).unwrap();
            thread::sleep(LONGER);
            let contents = noise(6, 400_000);
            writer.write_all(&contents).unwrap();
            drop(writer);
            thread::sleep(LONGER);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            assert!(rest == contents);
            sender.end().assert_succeeded();
            receiver.end().assert_succeeded();
        }
    });
}

/// The receiving process stops, and so sends no state of its output any more.
#[test]
fn a_pipe_that_stands_still_is_given_up() {
    limited(|test| {
        let (mut server, at) = Program::serve(test, "127.0.0.1:0", &PATIENCE);
        let (input, mut writer) = io::pipe().unwrap();
        let (mut reader, output) = io::pipe().unwrap();
        let receiver = Program::pipe(test, &["--receive"], at, Stdio::null(), output);
        let sender = Program::pipe(test, &[], at, input, Stdio::piped());
        writer.write_all(b"one").unwrap();
        let mut got = [0; 3];
        reader.read_exact(&mut got).unwrap();
        receiver.signal(Signal::STOP);
        writer.write_all(b"two").unwrap();
        server.prints("nothing has moved for 2 s");
        sender.end().assert_failed("the receiver vanished: nothing has moved for 2 s");
        receiver.signal(Signal::CONT);
        receiver.end().assert_failed("nothing has moved for 2 s");
    });
}

const PATIENCE: [&str; 2] = ["--stall-timeout", "2"];
/// More than [`PATIENCE`], with time to look.
const LONGER: Duration = Duration::from_secs(4);

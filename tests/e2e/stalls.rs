//! Copies in which nothing moves though both ends seem to be there.

use std::fs;

use rustix::process::Signal;

use crate::program::Program;
use crate::test::{limited, until};
use crate::trees::{noise, record_len};

/// A process that is stopped keeps its connections, and is silent for less than the idle timeout.
#[test]
fn a_copy_that_stands_still_is_given_up_by_either_end() {
    limited(|test| {
        fs::write(test.here("file"), noise(5, 40_000_000)).unwrap();
        let patience = ["--stall-timeout", "2"];
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
                server.says("nothing has moved for 2 s");
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
                server.says("failed: ");
                server.signal(Signal::TERM);
                server.end().assert_succeeded();
            }
        }
    });
}

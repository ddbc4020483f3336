//! Few threads: what cannot start one says which limit to raise.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use longhaul_needs::needs;

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited};
use crate::trees::noise;

#[needs(root)]
#[test]
fn a_copy_that_finds_no_thread_names_the_limit() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let there = format!("lh://{at}/f");
        for carrier in ["udp", "tcp"] {
            let mut failed = 0;
            for threads in 1..=8 {
                let words =
                    ["cp", "--json", "--retry", "0", "--carrier", carrier, "--token-file", "token"];
                let words = [&words[..], &["here/f", &there]].concat();
                let ended = within(test, 54_321, threads, &words).end();
                assert!(!ended.stderr.contains("panicked"), "{threads}: {ended:?}");
                if ended.status != Some(0) {
                    failed += 1;
                    ended.assert_failed("ulimit -u");
                    assert!(ended.stderr.contains("TasksMax="), "{ended:?}");
                }
            }
            assert!(failed > 1);
        }
    });
}

#[needs(root)]
#[test]
fn a_server_that_finds_no_thread_names_the_limit_and_serves_on() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 100_000)).unwrap();
        let (mut ended_at_once, mut refused) = (0, 0);
        for threads in 1..=9 {
            let words = ["serve", "--listen", "127.0.0.1:0", "--root", "there"];
            let words = [&words[..], &["--token-file", "token", "-v"]].concat();
            let mut server = within(test, 54_322, threads, &words);
            if !server.prints_or_ends("listening on") {
                server.end().assert_failed("ulimit -u");
                ended_at_once += 1;
                continue;
            }
            let at = server.listens();
            for _ in 0..2 {
                let copy = Program::cp(test, &["here/f", &format!("lh://{at}/{threads}")]).end();
                refused += u32::from(copy.status != Some(0));
            }
            server.signal(rustix::process::Signal::TERM);
            let ended = server.end();
            assert!(ended.status == Some(0) && !ended.stderr.contains("panicked"), "{ended:?}");
        }
        assert!(ended_at_once > 0 && refused > 0, "{ended_at_once} {refused}");
    });
}

/// `longhaul` of a user, who is nobody else's, with so many threads at most.
fn within<'t>(test: &'t Test, user: u32, threads: u32, words: &[&str]) -> Program<'t> {
    // That user may not see where it is built.
    let program = test.path("longhaul");
    if !program.exists() {
        fs::copy(PROGRAM, &program).unwrap();
        for name in [".", "here", "there", "token"] {
            chown(test.path(name), Some(user), None).unwrap();
        }
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--clear-groups", "--regid=0", "prlimit"]);
    command.arg(format!("--nproc={threads}")).arg(program).args(words);
    Program::spawn(test, &mut command)
}

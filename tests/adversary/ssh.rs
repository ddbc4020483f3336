//! Answers in the place of an ssh server's: nonsense, slowly, or without an end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::oracle::{assert_only, end};
use crate::program::Program;
use crate::test::{Test, limited, until};

/// A pull by a program in the place of ssh, which does these commands.
fn pull<'t>(test: &'t Test, commands: &str) -> Program<'t> {
    let ssh = test.there("ssh");
    fs::write(&ssh, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
    let ssh = ssh.to_str().unwrap();
    Program::start(test, &["cp", "--json", "--retry", "0", "-e", ssh, "host:f", "here/"])
}

#[test]
fn an_ssh_server_that_answers_nonsense_or_without_an_end_is_a_clear_failure() {
    limited(|test| {
        for (commands, words) in [
            ("exec yes", "more than 64 KiB came before longhaul answered"),
            ("exec head -c 1000000000 /dev/zero", "more than 64 KiB came before longhaul answered"),
            (
                "exec head -c 1000000000 /dev/urandom",
                "more than 64 KiB came before longhaul answered",
            ),
            ("echo hello; exit 3", "host"),
            ("head -c 100000 /dev/zero >&2; exit 255", "host"),
        ] {
            // With a limit of memory, of which a banner that is kept would take more.
            let ended = end(pull(test, commands));
            assert_eq!(ended.status, Some(1), "{commands}: {ended:?}");
            assert!(ended.stderr.contains(words), "{commands}: {ended:?}");
            assert!(ended.json()["error"].is_string(), "{commands}");
            assert_only(&test.path("here"), &[]);
        }
    });
}

#[test]
fn an_ssh_server_that_answers_slowly_is_left_by_a_signal_and_ends() {
    limited(|test| {
        let mark = test.there("began");
        let commands =
            format!("echo $$ >{}; while :; do printf x; sleep 0.02; done", mark.display());
        let copying = pull(test, &commands);
        let id = until("ssh has begun", || {
            let text = fs::read_to_string(&mark).ok()?;
            text.trim().parse::<u32>().ok()
        });
        std::thread::sleep(Duration::from_millis(200));
        copying.signal(Signal::INT);
        let ended = end(copying);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("stopped"), "{ended:?}");
        let of_ssh = format!("/proc/{id}");
        until("ssh has ended", || (!fs::exists(&of_ssh).unwrap()).then_some(()));
    });
}

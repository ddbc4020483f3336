//! Completion of places at a server, as the scripts of `longhaul completions` ask for it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::program::{PROGRAM, Program};
use crate::test::{Test, limited};

fn complete(test: &Test, word: &str) -> Vec<String> {
    let words = ["ls", "--complete", "--token-file", "token", word];
    let ended = Program::start(test, &words).end();
    ended.assert_succeeded();
    assert_eq!(ended.stderr, "", "{ended:?}");
    ended.stdout.lines().map(str::to_owned).collect()
}

fn fill(test: &Test) {
    for directory in ["run-17", "run 18", "other"] {
        fs::create_dir(test.there(directory)).unwrap();
    }
    for file in ["run-17/a*b", "run-17/a.h5", "run-17/b.h5", "rune"] {
        fs::write(test.there(file), "x").unwrap();
    }
}

#[test]
fn places_that_begin_so_are_completed_as_the_user_writes_them() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let place = |path: &str| format!("lh://{at}/{path}");
        let places = |paths: &[&str]| paths.iter().map(|path| place(path)).collect::<Vec<_>>();
        assert_eq!(complete(test, &place("run")), places(&["run%2018/", "run-17/", "rune"]));
        assert_eq!(complete(test, &place("run%20")), places(&["run%2018/"]));
        assert_eq!(
            complete(test, &place("run-17/a")),
            places(&["run-17/a%2Ab", "run-17/a.h5"]),
            "no pattern"
        );
        assert_eq!(complete(test, &place("none/")), [""; 0]);
    });
}

#[test]
fn a_server_that_does_not_answer_completes_nothing_and_is_not_waited_for() {
    limited(|test| {
        // It accepts, and is silent.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        for word in [format!("lh://{at}/a"), "lh://127.0.0.1:1/a".into(), "lh://[::1".into()] {
            assert_eq!(complete(test, &word), [""; 0]);
        }
    });
}

#[test]
fn bash_completes_places_behind_a_colon() {
    limited(|test| {
        fill(test);
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        symlink(PROGRAM, test.path("longhaul")).unwrap();
        let config = test.path(".config/longhaul");
        fs::create_dir_all(&config).unwrap();
        fs::copy(test.path("token"), config.join("token")).unwrap();
        let script = format!(
            "source <(longhaul completions bash)\nCOMP_LINE='longhaul cp lh://{at}/run-1'\n\
             COMP_POINT=${{#COMP_LINE}}\n_longhaul_or_places longhaul\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        );
        let path = format!("{}:{}", test.folder().display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).env("PATH", path).env("HOME", test.folder());
        let output = bash.env_remove("XDG_CONFIG_HOME").output().unwrap();
        // From the last colon of the word on.
        let expected = format!("{}/run-17/\n", at.port());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    });
}

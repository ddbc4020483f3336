//! `serve --config`: who may do what, limits, and settings that change while it runs.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::Program;
use crate::test::{Test, limited, token, until};
use crate::trees::noise;

#[test]
fn serve_config_gives_each_token_its_root_rights_and_limits() {
    limited(|test| {
        let other = "[[access]]\ntoken_file = \"other\"\nroot = \"elsewhere\"\nallow_read = true\n";
        let (_server, at) = serve(test, &format!("{}allow_write = true\n{other}", own(test)));
        fs::write(test.here("file"), b"mine").unwrap();
        fs::create_dir(test.path("elsewhere")).unwrap_or_default();
        fs::write(test.path("elsewhere/theirs"), b"theirs").unwrap();
        let cp = |token: &str, from: &str, to: &str| {
            Program::start(test, &["cp", "--json", "--retry", "0", "--token-file", token, from, to])
                .end()
        };
        cp("token", "here/file", &format!("lh://{at}/")).assert_succeeded();
        assert_eq!(fs::read(test.there("file")).unwrap(), b"mine");
        let pulled = cp("token", &format!("lh://{at}/file"), "here/back");
        pulled.assert_failed("does not let anyone copy from it");
        cp("other", &format!("lh://{at}/theirs"), "here/").assert_succeeded();
        assert_eq!(fs::read(test.here("theirs")).unwrap(), b"theirs");
        cp("other", &format!("lh://{at}/file"), "here/back").assert_failed("no such file");
        let pushed = cp("other", "here/file", &format!("lh://{at}/"));
        pushed.assert_failed("does not let anyone copy to it");
    });
}

#[test]
fn serve_config_bounds_transfers_of_a_token_and_what_stays_free() {
    limited(|test| {
        let (server, at) = serve(test, &format!("{}transfers = 1\n", own(test)));
        let busy = slow_copy(test, &format!("lh://{at}/"));
        let second = Program::cp(test, &["here/large", &format!("lh://{at}/again")]).end();
        second.assert_failed("this token has 1 transfer at this server");
        busy.end().assert_succeeded();
        drop(server);
        let (_server, at) = serve(test, &format!("min_free = \"900000TB\"\n{}", own(test)));
        let full = Program::cp(test, &["here/large", &format!("lh://{at}/third")]).end();
        full.assert_failed("are left to others");
        assert!(!test.there("third").exists());
    });
}

#[test]
fn serve_config_bounds_the_rate_of_a_token_both_ways() {
    limited(|test| {
        let (_server, at) = serve(test, &format!("{}rate = \"40Mbps\"\n", own(test)));
        fs::write(test.here("large"), noise(1, 12 << 20)).unwrap();
        let file = format!("lh://{at}/large");
        for words in [["here/large", &file], [&file, "here/back"]] {
            let udp = Program::cp(test, &[&["--carrier", "udp"][..], &words].concat()).end();
            assert_eq!(udp.json()["bottleneck"], "user limit", "{udp:?}");
            // The kernel tells nobody why it sends no faster; the lower limit of both ends holds.
            let to = format!("{}.tcp", words[1]);
            let tcp = ["--carrier", "tcp", "--rate", "80Mbps", words[0], &to];
            let report = Program::cp(test, &tcp).end().json();
            assert!(report["goodput_bps"].as_u64() < Some(50_000_000), "{report}");
        }
        assert_eq!(fs::read(test.here("back")).unwrap(), fs::read(test.here("large")).unwrap());
    });
}

#[test]
fn a_server_that_is_busy_is_asked_again_until_it_has_a_place() {
    limited(|test| {
        let (_server, at) = serve(test, &format!("{}transfers = 1\n", own(test)));
        let busy = slow_copy(test, &format!("lh://{at}/"));
        let again = format!("lh://{at}/again");
        let words =
            ["cp", "--json", "--retry", "1m", "--token-file", "token", "here/large", &again];
        let mut second = Program::start(test, &words);
        second.prints("as many as it may have at a time); trying again");
        busy.end().assert_succeeded();
        let ended = second.end();
        ended.assert_succeeded();
        let report = ended.json();
        assert_eq!(report["reconnects"], 0, "no connection was lost: {report}");
        assert!(report["notices"].to_string().contains("; trying again"), "{report}");
    });
}

#[test]
fn serve_config_is_read_again_on_sighup_and_touches_no_transfer() {
    limited(|test| {
        let (mut server, at) = serve(test, &own(test));
        let running = slow_copy(test, &format!("lh://{at}/"));
        let other = "[[access]]\ntoken_file = \"other\"\nroot = \"there\"\n";
        fs::write(test.path("config"), "listen = 7\n[[access]]\nrot = \"there\"\n").unwrap();
        server.signal(Signal::HUP);
        let words = server.prints("the configuration stays as it was");
        assert!(words.contains("line 1: listen 7: expected an address"), "{words}");
        assert!(words.contains("line 3: rot: unknown field"), "{words}");
        // The old one holds; then the new one, under which the first token is nobody's.
        let list = |token: &str| {
            Program::start(test, &["ls", "--token-file", token, &format!("lh://{at}/")]).end()
        };
        list("token").assert_succeeded();
        let changed = format!("listen = \"{at}\"\nstall_timeout = 5\n{other}");
        fs::write(test.path("config"), changed).unwrap();
        server.signal(Signal::HUP);
        let words = server.prints("the configuration was read again");
        assert!(words.contains("from the next start on only: listen, stall_timeout"), "{words}");
        list("other").assert_succeeded();
        list("token").assert_failed("token");
        running.end().assert_succeeded();
        server.signal(Signal::TERM);
        server.end().assert_succeeded();
    });
}

#[test]
fn serve_names_what_a_new_configuration_changes_and_a_running_server_keeps() {
    limited(|test| {
        let text = format!("log = \"text\"\n{}", own(test));
        let (server, _) = serve(test, &text);
        let again = |text: &str, words: &str| {
            let listen = "listen = \"127.0.0.1:0\"\n";
            fs::write(test.path("config"), format!("{listen}{text}")).unwrap();
            let before = server.printed().len();
            server.signal(Signal::HUP);
            until(words, || server.printed()[before..].contains(words).then_some(()));
            until("it was read", || {
                server.printed()[before..].contains("was read again\n").then_some(())
            });
            server.printed()[before..].to_owned()
        };
        let note = "note: from the next start on only: ";
        let other = text.replace("text", "json");
        again(&other, &format!("{note}log\n"));
        let other = format!("metrics = \"0\"\nno_history = true\n{other}");
        again(&other, &format!("{note}log, metrics, no_history\n"));
        let other = format!("stall_timeout = \"5s\"\nmetrics = \"0\"\n{text}");
        again(&other, &format!("{note}stall_timeout, metrics\n"));
        let words = again(&format!("drain = \"1s\"\n{text}"), "was read again");
        assert!(!words.contains(note), "{words}");
    });
}

#[test]
fn with_a_log_in_json_each_line_of_a_server_is_an_object() {
    limited(|test| {
        let (mut server, at) = serve(test, &format!("log = \"json\"\n{}", own(test)));
        let to = format!("lh://{at}/");
        fs::write(test.here("file"), b"mine").unwrap();
        Program::cp(test, &["here/file", &to]).end().assert_succeeded();
        let ls = |token: &str| Program::start(test, &["ls", "--token-file", token, &to]).end();
        ls("other").assert_failed("token");
        server.prints("\"outcome\":\"refused\"");
        let good = fs::read_to_string(test.path("config")).unwrap();
        // Others can read that token, and there are two mistakes.
        fs::set_permissions(test.path("token"), PermissionsExt::from_mode(0o644)).unwrap();
        fs::write(test.path("config"), format!("memory = 7\ndrain = \"x\"\n{good}")).unwrap();
        server.signal(Signal::HUP);
        server.prints("the configuration stays as it was");
        fs::write(test.path("config"), format!("stall_timeout = 5\n{good}")).unwrap();
        server.signal(Signal::HUP);
        server.prints("the configuration was read again");
        server.signal(Signal::TERM);
        let all = server.end().stderr;
        let lines: Vec<Value> =
            all.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        for part in [
            "listening on ",
            "warning: others can read the token",
            "memory 7: expected",
            "drain x: expected a time",
            "from the next start on only: stall_timeout",
            "stopping once",
        ] {
            let has = |line: &Value| line["message"].as_str().is_some_and(|it| it.contains(part));
            assert!(lines.iter().any(has), "{part}: {all}");
        }
        assert!(lines.iter().all(|line| line["time"].is_string()), "{all}");
        // Words stay words where the file is only checked.
        let check = Program::start(test, &["serve", "--check", "--config", "config"]).end();
        assert!(check.stderr.starts_with("warning: others"), "{check:?}");
        // At the start, too.
        fs::write(test.path("config"), format!("memory = 7\n{good}")).unwrap();
        let ended = Program::start(test, &["serve", "--config", "config"]).end();
        assert!(ended.stderr.lines().all(|line| line.starts_with("{\"")), "{ended:?}");
        assert!(ended.stderr.contains("memory 7: expected"), "{ended:?}");
    });
}

#[test]
fn serve_check_names_all_that_is_wrong_with_its_line_at_once() {
    limited(|test| {
        let check =
            || Program::start(test, &["serve", "--json", "--check", "--config", "config"]).end();
        fs::write(test.path("config"), own(test)).unwrap();
        let right = check();
        right.assert_succeeded();
        assert_eq!(right.json()["file"], "config");
        let wrong = "memory = 7\nprofiles = [\"warp\"]\n[[access]]\ntoken_file = \"gone\"\nroot = \"gone\"\n";
        fs::write(test.path("config"), wrong).unwrap();
        let wrong = check();
        assert_eq!(wrong.status, Some(2), "{wrong:?}");
        for words in [
            "config: line 1: memory 7: expected a text",
            "config: line 2: profiles warp: no such profile",
            "config: line 4: token_file gone: ",
            "config: line 5: root gone: ",
        ] {
            assert!(wrong.stderr.contains(words), "{words}: {wrong:?}");
        }
    });
}

#[test]
fn serve_that_is_to_end_lets_nobody_in_and_waits_for_who_is_there() {
    limited(|test| {
        let (server, at, running) = stopping(test, "");
        let late = Program::cp(test, &["here/large", &format!("lh://{at}/late")]).end();
        late.assert_failed("the server is stopping");
        running.end().assert_succeeded();
        server.end().assert_succeeded();
        assert!(test.there("large").exists() && !test.there("late").exists());
    });
}

#[test]
fn a_server_that_is_started_anew_is_dialled_again() {
    limited(|test| {
        let (server, at, running) = stopping(test, "");
        let fixed = ["cp", "--json", "--token-file", "token", "--retry", "1m"];
        let to = format!("lh://{at}/late");
        let late = Program::start(test, &[&fixed[..], &["here/large", &to]].concat());
        running.end().assert_succeeded();
        server.end().assert_succeeded();
        let (_server, _) = Program::serve(test, &at.to_string(), &[]);
        let late = late.end();
        late.assert_succeeded();
        let notices = late.json()["notices"].to_string();
        assert!(notices.contains("the server is stopping"), "{notices}");
        assert!(notices.contains("trying again"), "{notices}");
        assert!(test.there("late").exists());
    });
}

#[test]
fn serve_that_is_to_end_waits_for_as_long_as_it_may() {
    limited(|test| {
        let (server, _, running) = stopping(test, "drain = 1\n");
        running.end().assert_failed("the server is stopping");
        server.end().assert_succeeded();
    });
}

/// The access of the test's token.
fn own(test: &Test) -> String {
    fs::write(test.path("other"), token(2).to_string()).unwrap();
    let private = PermissionsExt::from_mode(0o600);
    fs::set_permissions(test.path("other"), private).unwrap();
    fs::create_dir_all(test.path("elsewhere")).unwrap();
    "[[access]]\ntoken_file = \"token\"\nroot = \"there\"\n".into()
}

fn serve<'t>(test: &'t Test, text: &str) -> (Program<'t>, SocketAddr) {
    let listen = "listen = \"127.0.0.1:0\"\n";
    fs::write(test.path("config"), format!("{listen}{text}")).unwrap();
    let mut server = Program::start(test, &["serve", "--config", "config"]);
    let at = server.listens();
    (server, at)
}

/// A server that is to end, with more settings than its access, and a copy that it waits for.
fn stopping<'t>(test: &'t Test, settings: &str) -> (Program<'t>, SocketAddr, Program<'t>) {
    let (mut server, at) = serve(test, &format!("{settings}{}", own(test)));
    let running = slow_copy(test, &format!("lh://{at}/"));
    server.signal(Signal::TERM);
    server.prints("stopping once");
    (server, at, running)
}

/// A copy of some seconds, once it moves.
fn slow_copy<'t>(test: &'t Test, to: &str) -> Program<'t> {
    fs::write(test.here("large"), noise(1, 12 << 20)).unwrap();
    let copy = Program::cp(test, &["--rate", "24Mbps", "here/large", to]);
    until("the copy begins", || {
        let mut found = fs::read_dir(test.path("there")).unwrap();
        found.next().is_some().then_some(())
    });
    copy
}

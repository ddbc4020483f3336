//! Booking services that use their clients badly: a copy needs none of their good will, and its
//! tokens reach nobody else.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::http::{Answer, Asked, WebServer, send};
use crate::oracle::{BOUND, Victim, end};
use crate::program::{Ended, PROGRAM, Program};
use crate::test::{Test, limited, token, until};
use crate::tls::Identity;
use crate::trees::{assert_same, noise};
use crate::words::{EVIL, assert_tame};

/// The network of the service.
fn topology() -> Value {
    let link = json!({ "name": "l", "from": "a", "to": "b", "capacity_bps": 50_000_000 });
    json!({
        "nodes": ["a", "b"], "links": [link], "tick_nanos": 1_000_000, "channel_bps": 1_000_000,
        "guard_ticks": 0, "currency": "EUR",
    })
}

/// Booking 7, with these ranges.
fn booking(ranges: &[(Timestamp, Timestamp, u64)]) -> Value {
    let range = |(start, end, rate_bps): &(Timestamp, Timestamp, u64)| json!({ "start": start, "end": end, "rate_bps": rate_bps });
    let now = Timestamp::now();
    let start = ranges.first().map_or(now, |range| range.0);
    let finish = ranges.last().map_or(now, |range| range.1);
    json!({
        "id": 7, "project": "p", "state": "scheduled", "label": "", "links": ["l"],
        "ranges": ranges.iter().map(range).collect::<Vec<_>>(), "start": start, "finish": finish,
        "promise": finish, "booked_bytes": 1, "made": now, "price_micros": 0,
    })
}

/// So many seconds from now.
fn later(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
}

/// A service that does what it should, but for what it books.
fn books(made: impl Fn() -> Value + Send + Sync + 'static) -> Answer {
    Box::new(move |asked, to| send(to, 200, &proper(asked, &made)))
}

fn proper(asked: &Asked, made: impl Fn() -> Value) -> Value {
    match asked.what.as_str() {
        "GET /v1/topology" => topology(),
        "GET /v1/health" => json!({
            "ready": true, "standby": false, "status": "", "seq": 1, "now": Timestamp::now(),
            "clock_ahead_seconds": 0.0, "bookings": 0,
        }),
        "GET /v1/bookings/7" => made(),
        _ => json!({ "bookings": [made()] }),
    }
}

/// A copy of `here/file` to `there/copy` with a service at `url`.
fn copying<'t>(test: &'t Test, victim: &Victim<'_>, url: &str, words: &[&str]) -> Program<'t> {
    copying_as(test, victim, url, "copy", words)
}

fn copying_as<'t>(
    test: &'t Test,
    victim: &Victim<'_>,
    url: &str,
    name: &str,
    words: &[&str],
) -> Program<'t> {
    let to = format!("lh://{}/{name}", victim.address);
    let circuit = ["--circuit", url, "--circuit-token-file", "circuit-token"];
    Program::cp(test, &[&circuit[..], words, &["here/file", &to]].concat())
}

/// A test with the file, and with a token for the service that is not that of servers.
fn prepared(size: usize, test: impl FnOnce(&Test, &Victim<'_>) + Send + 'static) {
    limited(move |folder| {
        fs::write(folder.here("file"), noise(3, size)).unwrap();
        keep(folder, "circuit-token", &token(2).to_string());
        test(folder, &Victim::start(folder));
    });
}

fn keep(test: &Test, name: &str, text: &str) {
    fs::write(test.path(name), text).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(test.path(name), private).unwrap();
}

fn commanded<'t>(test: &'t Test, url: &str, words: &[&str]) -> Program<'t> {
    let fixed = ["--url", url, "--token-file", "circuit-token"];
    Program::start(test, &[&["circuits"], words, &fixed].concat())
}

fn http(server: &WebServer) -> String {
    format!("http://{}", server.address)
}

/// One byte a second of an answer that has come so far.
fn drip(to: &mut dyn Write, before: &str) {
    let _ = to.write_all(before.as_bytes());
    for _ in 0..BOUND.as_secs() {
        if to.write_all(b" ").and_then(|()| to.flush()).is_err() {
            return;
        }
        thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_booking_service_that_does_not_come_to_an_end_holds_no_copy() {
    prepared(300_000, |test, victim| {
        let head = "HTTP/1.1 200 x\r\ncontent-type: application/json\r\n";
        let endless = |before: String, part: &'static [u8]| -> Answer {
            Box::new(move |_, to| {
                let _ = to.write_all(before.as_bytes());
                while to.write_all(&part.repeat(8192 / part.len())).is_ok() {}
            })
        };
        let services: [(&str, Answer); 6] = [
            ("silent", Box::new(|_, _| thread::sleep(BOUND))),
            ("slow-head", Box::new(move |_, to| drip(to, &format!("{head}x: ")))),
            (
                "slow-body",
                Box::new(move |_, to| drip(to, &format!("{head}content-length: 999\r\n\r\n"))),
            ),
            ("endless-head", endless(format!("{head}x: "), b"y")),
            ("endless-body", endless(format!("{head}\r\n"), b" ")),
            ("endless-lists", endless(format!("{head}\r\n["), b"[],")),
        ];
        // TLS that does not come to an end either.
        let no_tls = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let https = format!("https://{}", no_tls.local_addr().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| drip(&mut no_tls.accept().unwrap().0, ""));
            let (identity, authority) = Identity::of_loopback();
            drop(identity);
            keep(test, "authority", &authority);
            let words = ["--circuit-or-ip", "--circuit-ca", "authority"];
            let slow = copying_as(test, victim, &https, "slow-tls", &words);
            scope.spawn(|| assert_went_over_ip(test, "slow-tls", &end(slow)));
            for (what, answer) in services {
                scope.spawn(move || {
                    let service = WebServer::start(answer);
                    let words = ["--circuit-or-ip"];
                    let copying = copying_as(test, victim, &http(&service), what, &words);
                    assert_went_over_ip(test, what, &end(copying));
                });
            }
        });
        victim.assert_sound();
    });
}

fn assert_went_over_ip(test: &Test, name: &str, ended: &Ended) {
    ended.assert_succeeded();
    assert!(ended.json()["notices"].to_string().contains("data goes over IP"), "{name}: {ended:?}");
    assert_same(&test.here("file"), &test.there(name));
}

#[test]
fn a_copy_that_need_not_wait_for_a_circuit_does_not_wait_for_the_service() {
    prepared(3_000_000, |test, victim| {
        let (here, there) = (test.here("file"), test.there("copy"));
        let size = fs::metadata(here).unwrap().len();
        // It answers when the copy is whole, and then that there is no circuit.
        let service = WebServer::start(Box::new(move |_, to| {
            until("the file", || {
                fs::metadata(&there).is_ok_and(|file| file.len() == size).then_some(())
            });
            send(to, 503, &json!({}));
        }));
        let ended = end(copying(test, victim, &http(&service), &["--circuit-and-ip"]));
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
    });
}

#[test]
fn a_service_that_was_asked_to_book_nothing_is_not_waited_for_at_the_end() {
    prepared(30_000_000, |test, victim| {
        let silent = WebServer::start(Box::new(|_, _| thread::sleep(BOUND)));
        // So much, and so slowly, that the service is asked before the lanes have it all.
        let words = ["--circuit-and-ip", "--rate", "100Mbps"];
        let ended = end(copying(test, victim, &http(&silent), &words));
        ended.assert_succeeded();
        let notices = ended.json()["notices"].to_string();
        assert!(notices.contains("nothing was booked"), "{notices}");
        assert!(!notices.contains("may be booked"), "{notices}");
        assert_same(&test.here("file"), &test.there("copy"));
    });
}

#[test]
fn a_copy_without_its_circuit_gets_no_advice_to_try_the_same_again() {
    prepared(300_000, |test, victim| {
        let none = |answer: &'static str| -> Answer {
            Box::new(move |_, to| drop(to.write_all(answer.as_bytes())))
        };
        for answer in [
            "HTTP/1.1 302 Found\r\nlocation: http://book.example/\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        ] {
            let service = WebServer::start(none(answer));
            let ended = end(copying(test, victim, &http(&service), &[]));
            ended.assert_failed("no circuit: ");
            assert!(ended.stderr.contains("--circuit-or-ip"), "{ended:?}");
            assert!(!ended.stderr.contains("same command"), "{ended:?}");
        }
    });
}

#[test]
fn a_booking_that_cannot_carry_the_data_is_refused_and_given_back() {
    prepared(3_000_000, |test, victim| {
        type Ranges = fn() -> Vec<(Timestamp, Timestamp, u64)>;
        let absurd: [(&str, Ranges); 9] = [
            ("carries no data", || vec![(later(0), later(1800), 1)]),
            ("carries no data", || vec![(later(0), later(1800), 0)]),
            ("asked for", || vec![(later(0), later(1), 1_000_000)]),
            ("asked for", Vec::new),
            ("may send", || vec![(later(0), later(1800), u64::MAX)]),
            ("later than", || vec![(later(7200), later(7300), 50_000_000)]),
            ("empty or begins before", || {
                vec![(later(9), later(10), 50_000_000), (later(5), later(10), 50_000_000)]
            }),
            ("later than", || vec![(later(0), Timestamp::MAX, 50_000_000)]),
            ("changes of rate", || {
                let at = |i: i64| Timestamp::now() + SignedDuration::from_millis(i);
                (0..20_000).map(|i| (at(i), at(i + 1), 40_000_000 + i as u64)).collect()
            }),
        ];
        for (why, ranges) in absurd {
            let service = WebServer::start(books(move || booking(&ranges())));
            let ended = end(copying(test, victim, &http(&service), &["--deadline", "+1h"]));
            ended.assert_failed("no circuit: ");
            assert!(ended.stderr.contains(why), "{why}: {ended:?}");
            let asked = service.asked();
            assert!(asked.iter().any(|one| one.what == "POST /v1/bookings/7/release"), "{asked:?}");
            assert!(!test.there("copy").exists(), "{why}");
        }
        // A booking that was made before is checked alike.
        let service = WebServer::start(books(|| booking(&[(later(0), later(1800), 1)])));
        let ended = end(copying(test, victim, &http(&service), &["--booking", "7"]));
        ended.assert_failed("carries no data");
    });
}

#[test]
fn a_newer_service_breaks_no_older_client() {
    prepared(3_000_000, |test, victim| {
        // The file with its headers takes half a second of it.
        let made = || booking(&[(later(0), later(600), 50_000_000)]);
        let newer = WebServer::start(Box::new(move |asked, to| {
            send(to, 200, &with_more(proper(asked, made)));
        }));
        let ended = end(copying(test, victim, &http(&newer), &[]));
        ended.assert_succeeded();
        assert!(ended.json()["circuit"]["sent_bytes"].as_u64().unwrap() > 0, "{ended:?}");
        assert_same(&test.here("file"), &test.there("copy"));
        let listed = end(commanded(test, &http(&newer), &["list"]));
        listed.assert_succeeded();
        assert!(listed.stdout.contains("scheduled"), "{listed:?}");
        // Nor a word for a state that is new.
        let newer = WebServer::start(books(move || {
            let mut made = made();
            made["state"] = "parked".into();
            made
        }));
        let listed = end(commanded(test, &http(&newer), &["list"]));
        listed.assert_succeeded();
        assert!(listed.stdout.contains("unknown"), "{listed:?}");
    });
}

/// With a field that nobody knows in each object.
fn with_more(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_more).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, with_more(value)));
            fields.chain([("new".to_owned(), json!({ "x": [1] }))]).collect()
        }
        other => other,
    }
}

#[test]
fn a_token_follows_no_redirection_and_no_proxy() {
    prepared(1_000, |test, victim| {
        let answer = || -> Answer { Box::new(|_, to| send(to, 503, &json!({}))) };
        let elsewhere = WebServer::start_at("127.0.0.3:0", None, answer());
        for status in [301, 302, 303, 307, 308] {
            let place = format!("http://{}/v1/topology", elsewhere.address);
            let service = WebServer::start(Box::new(move |_, to| {
                let head =
                    format!("HTTP/1.1 {status} x\r\nlocation: {place}\r\ncontent-length: 0\r\n");
                let _ = to.write_all(format!("{head}connection: close\r\n\r\n").as_bytes());
            }));
            let ended = end(copying(test, victim, &http(&service), &[]));
            ended.assert_failed("where the token does not go");
            assert_eq!(service.asked().len(), 1, "{status}");
            let ended = end(commanded(test, &http(&service), &["list"]));
            ended.assert_failed("where the token does not go");
        }
        let service = WebServer::start(answer());
        let proxy = format!("http://{}", elsewhere.address);
        let mut command = Command::new(PROGRAM);
        command.args(["circuits", "list", "--url", &http(&service)]);
        command.args(["--token-file", "circuit-token"]);
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(name, &proxy);
        }
        end(Program::spawn(test, &mut command)).assert_failed("503");
        assert_eq!(service.asked().len(), 1);
        assert!(elsewhere.asked().is_empty(), "{:?}", elsewhere.asked());
    });
}

#[test]
fn the_token_of_servers_goes_to_no_booking_service() {
    prepared(1_000, |test, victim| {
        let service = WebServer::start(Box::new(|_, to| send(to, 503, &json!({}))));
        let url = http(&service);
        fs::create_dir_all(test.path(".config/longhaul")).unwrap();
        keep(test, ".config/longhaul/token", &token(1).to_string());
        let to = format!("lh://{}/copy", victim.address);
        let copy = ["cp", "--token-file", "token", "--circuit", &url, "here/file", &to];
        for words in [&copy[..], &["circuits", "list", "--url", &url]] {
            end(Program::start(test, words)).assert_failed("circuit-token does not exist");
        }
        assert!(service.asked().is_empty());
        keep(test, ".config/longhaul/circuit-token", &token(2).to_string());
        for words in [&copy[..], &["circuits", "list", "--url", &url]] {
            end(Program::start(test, words)).assert_failed("503");
        }
        let asked = service.asked();
        assert_eq!(asked.len(), 2);
        let bearer = format!("Bearer {}", token(2));
        assert!(asked.iter().all(|one| one.head.contains(&bearer)), "{asked:?}");
    });
}

#[test]
fn a_token_goes_to_another_host_in_tls_or_not_at_all() {
    prepared(1_000, |test, victim| {
        for url in ["http://192.0.2.1:7430", "http://localhost@192.0.2.1:7430"] {
            let ended = end(copying(test, victim, url, &[]));
            assert_eq!(ended.status, Some(2), "{ended:?}");
            let ended = end(commanded(test, url, &["list"]));
            assert_eq!(ended.status, Some(2), "{ended:?}");
        }
        let ended = end(copying(test, victim, "http://book.example", &["--circuit-or-ip"]));
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("--plain-http allows it"), "{ended:?}");
    });
}

#[test]
fn a_service_in_tls_is_trusted_when_somebody_vouches_for_it() {
    prepared(3_000_000, |test, victim| {
        let words = ["circuits", "serve", "--link", "l=a-b:50Mbps", "--listen", "127.0.0.1:0"];
        let mut service = Program::start(test, &[&words[..], &["--store", "book.db"]].concat());
        let words = service.prints("longhaul circuits list");
        let at = words.split("listening on http://").nth(1).unwrap().split(',').next().unwrap();
        let at = at.to_owned();
        let made = words.split(' ').find(|word| word.starts_with("lh1-")).unwrap();
        keep(test, "circuit-token", made);
        // A proxy that ends TLS, as one is put before the service.
        let (identity, authority) = Identity::of_loopback();
        keep(test, "authority", &authority);
        keep(test, "another", &Identity::of_loopback().1);
        let proxy = WebServer::start_at(
            "127.0.0.1:0",
            Some(identity),
            Box::new(move |asked, to| {
                let mut service = TcpStream::connect(&at).unwrap();
                let head = format!("{}\r\nconnection: close\r\n\r\n", asked.head);
                service.write_all(&[head.as_bytes(), &asked.body].concat()).unwrap();
                let mut answer = Vec::new();
                service.read_to_end(&mut answer).unwrap();
                let _ = to.write_all(&answer).and_then(|()| to.flush());
            }),
        );
        let url = format!("https://{}", proxy.address);
        for words in [&[][..], &["--circuit-ca", "another"]] {
            let ended = end(copying(test, victim, &url, words));
            assert_eq!(ended.status, Some(1), "{ended:?}");
        }
        let ended = end(copying(test, victim, &url, &["--circuit-ca", "another"]));
        ended.assert_failed("not trusted");
        assert!(ended.stderr.contains("--circuit-ca FILE"), "{ended:?}");
        assert!(proxy.asked().is_empty(), "it was sent nothing: {:?}", proxy.asked());
        let ended = end(copying(test, victim, &url, &["--circuit-ca", "authority"]));
        ended.assert_succeeded();
        assert!(ended.json()["circuit"]["sent_bytes"].as_u64().unwrap() > 0, "{ended:?}");
        assert_same(&test.here("file"), &test.there("copy"));
        let listed = end(commanded(test, &url, &["list", "--all", "--ca", "authority"]));
        listed.assert_succeeded();
        assert!(listed.stdout.contains("cp to 127.0.0.1"), "{listed:?}");
    });
}

#[test]
fn words_of_a_booking_service_steer_no_terminal_and_forge_no_line() {
    prepared(1_000, |test, victim| {
        let evil = || String::from_utf8_lossy(EVIL).into_owned();
        let refusing = WebServer::start(Box::new(move |asked, to| {
            let why = json!({ "summary": evil(), "changes": [evil()] });
            let problem = json!({
                "type": evil(), "title": evil(), "status": 409, "detail": evil(),
                "explanation": why, "leader": evil(),
            });
            match asked.what.as_str() {
                "GET /v1/topology" => send(to, 200, &topology()),
                _ => send(to, 409, &problem),
            }
        }));
        let asking = WebServer::start(Box::new(move |_, to| {
            let mut network = topology();
            network["nodes"] = json!([evil(), evil()]);
            network["links"] = json!([]);
            send(to, 200, &network);
        }));
        let talking = WebServer::start(books(move || {
            let mut made = booking(&[(later(0), later(600), 1_000_000)]);
            for field in ["project", "label"] {
                made[field] = evil().into();
            }
            made["links"] = json!([evil()]);
            made
        }));
        let senseless = WebServer::start(Box::new(move |_, to| {
            send(to, 200, &json!({ "bookings": evil(), "state": evil() }));
        }));
        let garbage = WebServer::start(Box::new(move |_, to| {
            let _ = to.write_all(&[b"HTTP/1.1 ", EVIL, b"\r\n\r\n"].concat());
        }));
        for service in [&refusing, &asking, &talking, &senseless, &garbage] {
            let url = http(service);
            for format in ["--json", "--verbose"] {
                for words in [&["list"][..], &["show", "7"], &["cancel", "7"]] {
                    let ended = end(commanded(test, &url, &[words, &[format]].concat()));
                    assert_tame(&ended.stderr, words[0]);
                    assert_tame(&ended.stdout, words[0]);
                }
                let to = format!("lh://{}/copy", victim.address);
                let words = ["cp", format, "--token-file", "token", "--circuit", &url];
                let file = ["--circuit-token-file", "circuit-token", "here/file", &to];
                let ended = end(Program::start(test, &[&words[..], &file].concat()));
                assert_tame(&ended.stderr, "cp");
                assert_tame(&ended.stdout, "cp");
            }
        }
    });
}

#[test]
fn a_list_of_bookings_that_leads_nowhere_ends() {
    prepared(1_000, |test, _| {
        let service = WebServer::start(Box::new(|_, to| {
            let made = booking(&[(later(0), later(1), 1_000_000)]);
            send(to, 200, &json!({ "bookings": [made], "more_after": 7 }));
        }));
        end(commanded(test, &http(&service), &["list"])).assert_failed("lead nowhere");
    });
}

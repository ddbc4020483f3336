//! Copies and pipes over booked circuits: loopback addresses stand for the circuit and for IP.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::SocketAddr;
use std::process::Stdio;

use longhaul_circuits::api::{BookRequest, FileWant, HoldWant, State};
use longhaul_circuits::client::{Access, Client};

use crate::program::{Ended, Program};
use crate::test::{Test, limited, token, until};
use crate::trees::{assert_same, noise};

/// A booking service with one link from `a` to `b`.
fn book_keeper<'t>(test: &'t Test, capacity: &str) -> (Program<'t>, String) {
    let config = format!(
        "store = \"{}\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\ncapacity = \
         \"{capacity}\"\n[[project]]\nname = \"p\"\n[[access]]\ntoken_file = \"{}\"\nproject = \
         \"p\"\nrole = \"operator\"\n",
        test.path("book.db").display(),
        test.path("token").display(),
    );
    fs::write(test.path("circuits.toml"), config).unwrap();
    let words = ["circuits", "serve", "--config", "circuits.toml", "--listen", "127.0.0.1:0"];
    let mut service = Program::start(test, &words);
    let line = service.prints("listening on http://");
    let url = line.split("listening on ").nth(1).unwrap().split(',').next().unwrap();
    (service, url.to_owned())
}

fn client(url: &str) -> Client {
    Client::new(url, &token(1).to_string(), &Access::default()).unwrap()
}

fn copy(test: &Test, url: &str, server: SocketAddr, words: &[&str]) -> Ended {
    copy_by(test, &format!("{url}/a/b"), server, words)
}

fn copy_by(test: &Test, circuit: &str, server: SocketAddr, words: &[&str]) -> Ended {
    let to = format!("lh://127.0.0.1:{}/copy", server.port());
    let circuit = ["--circuit", circuit, "--circuit-token-file", "token"];
    let fixed = [&circuit[..], &["--circuit-to", "127.0.0.2", "here/file", &to]].concat();
    Program::cp(test, &[words, &fixed].concat()).end()
}

#[test]
fn a_copy_goes_over_its_circuit_and_gives_back_the_rest() {
    limited(|test| {
        fs::write(test.here("file"), noise(5, 8_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "10Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        // Twice the time is booked: however busy this machine is, some of it is left.
        let ended = copy(test, &url, at, &["--margin", "100"]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let json = ended.json();
        let circuit = &json["circuit"];
        assert!(circuit["sent_bytes"].as_u64().unwrap() > 8_000_000, "{ended:?}");
        assert!(circuit["released_seconds"].as_f64().is_some(), "{ended:?}");
        assert_eq!(json["bottleneck"], "reservation", "{json}");
        let booking = client(&url).show(circuit["booking"].as_u64().unwrap()).unwrap();
        assert_eq!(booking.state, State::Released);
        assert_eq!(booking.destination, Some("127.0.0.2".parse().unwrap()));
        // Losses of this one are known to the next.
        let known = Program::start(test, &["history", "--json"]).end().json();
        assert_eq!(known["circuits"][0]["host"], "127.0.0.1", "{known}");
        assert_eq!(known["circuits"][0]["circuits"], 1, "{known}");
        assert_eq!(known["paths"].as_array().unwrap().len(), 0, "a circuit is no path: {known}");
    });
}

#[test]
fn data_that_the_booking_does_not_cover_goes_over_ip() {
    limited(|test| {
        fs::write(test.here("file"), noise(6, 6_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "50Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        // The part of the rate that is left unused is missing at the end.
        let ended = copy(test, &url, at, &["--margin", "0"]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let circuit = &ended.json()["circuit"];
        let bytes = |way| circuit[way].as_u64().unwrap();
        assert!(bytes("sent_bytes") < 6_000_000, "{ended:?}");
        assert!(bytes("sent_bytes") + bytes("ip_bytes") > 6_000_000, "{ended:?}");
        assert!(circuit["released_seconds"].is_null(), "{ended:?}");
    });
}

#[test]
fn a_circuit_that_carries_nothing_is_left() {
    limited(|test| {
        fs::write(test.here("file"), noise(9, 6_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "4Mbps");
        // Nobody listens at the far end of the circuit.
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let ended = copy(test, &url, at, &[]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let json = ended.json();
        assert!(json["notices"].to_string().contains("nothing came through"), "{json}");
        let booking = json["circuit"]["booking"].as_u64().unwrap();
        assert_eq!(client(&url).show(booking).unwrap().state, State::Released);
    });
}

/// The link is booked for so long, at 50 Mb/s.
fn take(url: &str, milliseconds: u64) -> u64 {
    let hold = HoldWant {
        duration_ms: milliseconds,
        min_rate_bps: 50_000_000,
        max_rate_bps: 50_000_000,
        latest_start: None,
    };
    let ends = (Some("a".into()), Some("b".into()));
    let request =
        BookRequest { from: ends.0, to: ends.1, hold: Some(hold), ..BookRequest::default() };
    client(url).book(&request, None).unwrap().bookings[0].id
}

#[test]
fn a_copy_that_need_not_wait_for_its_circuit_is_done_before() {
    limited(|test| {
        fs::write(test.here("file"), noise(13, 6_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "50Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        take(&url, 3_600_000);
        let ended = copy(test, &url, at, &["--circuit-and-ip"]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let json = ended.json();
        assert!(json.get("circuit").is_none(), "{json}");
        assert!(json["notices"].to_string().contains("before the circuit began"), "{json}");
        // If it booked before it was done, that was given back.
        let bookings = client(&url).list(true, None).unwrap().bookings;
        assert!(bookings[1..].iter().all(|one| one.state == State::Released), "{bookings:?}");
    });
}

/// Both ends know that it waits for that.
#[test]
fn a_copy_waits_for_its_circuit_for_longer_than_it_may_stand_still() {
    limited(|test| {
        fs::write(test.here("file"), noise(13, 600_000)).unwrap();
        let (_service, url) = book_keeper(test, "50Mbps");
        let patience = ["--stall-timeout", "2"];
        let (_server, at) = Program::serve(test, "[::]:0", &patience);
        take(&url, 6_000);
        let ended = copy(test, &url, at, &patience);
        ended.assert_succeeded();
        // On a busy machine the last bytes may be late for the circuit, and go over IP.
        let circuit = &ended.json()["circuit"];
        assert!(circuit["opened_seconds"].as_f64().unwrap() > 2.0, "{ended:?}");
        let bytes = |way| circuit[way].as_u64().unwrap();
        assert!(bytes("sent_bytes") > 300_000, "{ended:?}");
        assert!(bytes("sent_bytes") + bytes("ip_bytes") > 600_000, "{ended:?}");
        assert_same(&test.here("file"), &test.there("copy"));
    });
}

#[test]
fn a_copy_goes_from_ip_to_its_circuit_when_that_begins() {
    limited(|test| {
        fs::write(test.here("file"), noise(14, 20_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "50Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        take(&url, 3_000);
        // Over IP it would take 16 s.
        let ended = copy(test, &url, at, &["--circuit-and-ip", "--rate", "10Mbps"]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let circuit = &ended.json()["circuit"];
        assert!(circuit["sent_bytes"].as_u64().unwrap() > 0, "{ended:?}");
    });
}

#[test]
fn a_copy_without_its_circuit_fails_or_goes_over_ip_as_asked() {
    limited(|test| {
        fs::write(test.here("file"), noise(7, 3_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "1Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let too_soon = ["--deadline", "+2s"];
        let refused = copy(test, &url, at, &too_soon);
        refused.assert_failed("no circuit: ");
        assert!(!test.there("copy").exists());
        let ended = copy(test, &url, at, &[&too_soon[..], &["--circuit-or-ip"]].concat());
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let json = ended.json();
        assert!(json.get("circuit").is_none(), "{json}");
        assert!(json["notices"].to_string().contains("goes over IP"), "{json}");
        assert!(client(&url).list(true, None).unwrap().bookings.is_empty());
    });
}

#[test]
fn a_copy_that_is_stopped_gives_its_circuit_back() {
    limited(|test| {
        fs::write(test.here("file"), noise(8, 20_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "2Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let circuit = format!("{url}/a/b");
        let to = format!("lh://127.0.0.1:{}/copy", at.port());
        let circuit = ["--circuit", &circuit, "--circuit-token-file", "token"];
        let words = [&circuit[..], &["--circuit-to", "127.0.0.2", "here/file", &to]].concat();
        let copying = Program::cp(test, &words);
        let service = client(&url);
        let id = until("a booking", || {
            service.list(false, None).unwrap().bookings.first().map(|booking| booking.id)
        });
        copying.signal(rustix::process::Signal::INT);
        copying.end().assert_failed("stopped");
        assert_eq!(service.show(id).unwrap().state, State::Released);
    });
}

#[test]
fn a_booking_that_was_made_before_is_followed() {
    limited(|test| {
        fs::write(test.here("file"), noise(15, 8_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "50Mbps");
        let id = take(&url, 3_600_000);
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let ended = copy_by(test, &url, at, &["--booking", &id.to_string()]);
        ended.assert_succeeded();
        assert_same(&test.here("file"), &test.there("copy"));
        let circuit = &ended.json()["circuit"];
        assert_eq!(circuit["booking"], id);
        assert!(circuit["sent_bytes"].as_u64().unwrap() > 8_000_000, "{ended:?}");
        // Ranges that were over when the copy began allowed it nothing.
        let left = circuit["left_seconds"].as_f64().unwrap();
        assert!(circuit["allowed_bytes"].as_f64().unwrap() <= left * 50e6 / 8.0, "{ended:?}");
        let bookings = client(&url).list(true, None).unwrap().bookings;
        assert_eq!(bookings.len(), 1);
        assert_eq!(bookings[0].state, State::Released);
    });
}

#[test]
fn a_booking_that_cannot_be_followed_is_reported_and_left_as_it_is() {
    limited(|test| {
        fs::write(test.here("file"), noise(16, 1_000_000)).unwrap();
        let (_service, url) = book_keeper(test, "100Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let service = client(&url);
        let (booked, released) = (take(&url, 3_600_000), take(&url, 3_600_000));
        service.release(released).unwrap();
        let request = BookRequest {
            links: Some(vec!["l".into()]),
            file: Some(FileWant {
                bytes: 1_000_000,
                max_rate_bps: 1_000_000,
                ..FileWant::default()
            }),
            hold_for_seconds: Some(600),
            ..BookRequest::default()
        };
        let held = service.book(&request, None).unwrap().bookings[0].id;
        for (id, words, why) in [
            (released, &[][..], "nothing is left of booking"),
            (held, &[], "is only held"),
            (booked, &["--rate", "10Mbps"], "more than --rate"),
            (9_999, &[], "no circuit: "),
        ] {
            let id = id.to_string();
            copy_by(test, &url, at, &[&["--booking", &id], words].concat()).assert_failed(why);
        }
        let ends = copy(test, &url, at, &["--booking", &booked.to_string()]);
        assert_eq!(ends.status, Some(2), "{ends:?}");
        assert!(ends.stderr.contains("its ends are those that were booked"), "{ends:?}");
        assert!(!test.there("copy").exists());
        assert_eq!(service.show(booked).unwrap().state, State::Active);
        assert_eq!(service.show(held).unwrap().state, State::Held);
    });
}

/// Both ends of a pipe whose sender books a circuit for `time`.
fn pipe<'t>(
    test: &'t Test,
    url: &str,
    at: SocketAddr,
    time: &str,
    words: &[&str],
) -> (Program<'t>, Program<'t>, PipeWriter, PipeReader) {
    pipe_by(test, &format!("{url}/a/b"), at, &[&["--time", time], words].concat())
}

fn pipe_by<'t>(
    test: &'t Test,
    circuit: &str,
    at: SocketAddr,
    words: &[&str],
) -> (Program<'t>, Program<'t>, PipeWriter, PipeReader) {
    let (input, writer) = io::pipe().unwrap();
    let (reader, output) = io::pipe().unwrap();
    // By IPv4, as the circuit.
    let at = SocketAddr::new([127, 0, 0, 1].into(), at.port());
    let fixed =
        ["--circuit", circuit, "--circuit-token-file", "token", "--circuit-to", "127.0.0.2"];
    let sender = Program::pipe(test, &[&fixed, words].concat(), at, input, Stdio::piped());
    let receiver = Program::pipe(test, &["--receive"], at, Stdio::null(), output);
    (sender, receiver, writer, reader)
}

#[test]
fn a_pipe_goes_over_its_circuit_and_gives_back_the_rest() {
    limited(|test| {
        let (_service, url) = book_keeper(test, "40Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let words = ["--min-rate", "10Mbps", "--max-rate", "20Mbps"];
        let (sender, receiver, mut writer, mut reader) = pipe(test, &url, at, "1h", &words);
        let data = noise(11, 3_000_000);
        writer.write_all(&data).unwrap();
        let mut got = vec![0; data.len()];
        reader.read_exact(&mut got).unwrap();
        assert!(got == data);
        drop(writer);
        let (sender, receiver) = (sender.end(), receiver.end());
        sender.assert_succeeded();
        receiver.assert_succeeded();
        let json = sender.json();
        let circuit = &json["circuit"];
        assert!(circuit["sent_bytes"].as_u64().unwrap() > 3_000_000, "{json}");
        assert!(circuit["released_seconds"].as_f64().is_some(), "{json}");
        let booking = client(&url).show(circuit["booking"].as_u64().unwrap()).unwrap();
        assert_eq!(booking.state, State::Released);
        assert_eq!(booking.destination, Some("127.0.0.2".parse().unwrap()));
    });
}

#[test]
fn a_pipe_follows_a_booking_that_was_made_before() {
    limited(|test| {
        let (_service, url) = book_keeper(test, "50Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let id = take(&url, 3_600_000);
        let words = ["--booking", &id.to_string()];
        let (sender, receiver, mut writer, mut reader) = pipe_by(test, &url, at, &words);
        let data = noise(17, 3_000_000);
        let mut got = vec![0; data.len()];
        writer.write_all(&data).unwrap();
        reader.read_exact(&mut got).unwrap();
        assert!(got == data);
        drop(writer);
        let sender = sender.end();
        sender.assert_succeeded();
        receiver.end().assert_succeeded();
        assert_eq!(sender.json()["circuit"]["booking"], id);
        assert_eq!(client(&url).show(id).unwrap().state, State::Released);
    });
}

#[test]
fn a_pipe_that_outlives_its_booking_goes_on_over_ip() {
    limited(|test| {
        let (_service, url) = book_keeper(test, "40Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let words = ["--max-rate", "20Mbps"];
        let (sender, receiver, mut writer, mut reader) = pipe(test, &url, at, "5s", &words);
        let piece = noise(12, 100_000);
        let mut got = vec![0; piece.len()];
        let service = client(&url);
        let mut once = || {
            writer.write_all(&piece).unwrap();
            reader.read_exact(&mut got).unwrap();
            assert!(got == piece);
        };
        once();
        until("the booking is over", || {
            once();
            service.list(false, None).unwrap().bookings.is_empty().then_some(())
        });
        // More than the booking had room for: the end cannot be seen before the lanes went on.
        (0..150).for_each(|_| once());
        drop(writer);
        let sender = sender.end();
        sender.assert_succeeded();
        receiver.end().assert_succeeded();
        let circuit = &sender.json()["circuit"];
        assert!(circuit["sent_bytes"].as_u64().unwrap() > 0, "{sender:?}");
        assert!(circuit["ip_bytes"].as_u64().unwrap() > 10_000_000, "{sender:?}");
        assert!(circuit["released_seconds"].is_null(), "{sender:?}");
    });
}

#[test]
fn a_pipe_without_its_circuit_fails_or_goes_over_ip_as_asked() {
    limited(|test| {
        let (_service, url) = book_keeper(test, "1Mbps");
        let (_server, at) = Program::serve(test, "[::]:0", &[]);
        let (sender, receiver, _writer, _reader) =
            pipe(test, &url, at, "1m", &["--max-rate", "2Mbps"]);
        sender.end().assert_failed("no circuit: ");
        receiver.end().assert_failed("the sender vanished");
        let words = ["--max-rate", "2Mbps", "--circuit-or-ip"];
        let (sender, receiver, mut writer, mut reader) = pipe(test, &url, at, "1m", &words);
        writer.write_all(b"over IP").unwrap();
        drop(writer);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, "over IP");
        let sender = sender.end();
        sender.assert_succeeded();
        receiver.end().assert_succeeded();
        assert!(sender.json()["notices"].to_string().contains("goes over IP"), "{sender:?}");
    });
}

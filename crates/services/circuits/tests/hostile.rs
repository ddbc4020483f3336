//! Clients that take more than their part.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/site.rs"]
mod site;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use longhaul_circuits::service::config::Config;
use site::{ASTRO, Site, VIEWER};

/// A configuration with its store in a folder of its own.
fn config() -> (tempfile::TempDir, Config) {
    let folder = tempfile::tempdir().unwrap();
    let config = site::config(&folder.path().join("book.db").display().to_string());
    (folder, config)
}

/// The beginning of a request.
fn begun(site: &Site, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It may be closed already.
    let _ = stream.write_all(text.as_bytes());
    stream
}

/// What comes until the service closes the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => String::from_utf8(answer).unwrap(),
    }
}

fn head(method: &str, path: &str, token: u8) -> String {
    let token = site::token(token);
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n")
}

#[test]
fn half_sent_requests_make_room_for_others_and_the_oldest_goes_first() {
    let (_folder, mut config) = config();
    config.limits.connections = 16;
    let site = Site::start(config);
    let mut watcher = begun(&site, &format!("{}\r\n", head("GET", "/v1/watch", ASTRO)));
    let mut first = [0; 12];
    watcher.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let mut half: Vec<_> = (0..64).map(|_| begun(&site, "GET /v1/health HTTP/1.1\r\n")).collect();
    for _ in 0..3 {
        assert!(site.client(ASTRO).list(false, None).unwrap().bookings.is_empty());
    }
    // Of 16 places the watcher has one, and at least one of the client's took another's.
    for stream in half.drain(..48) {
        assert_eq!(rest(&mut { stream }), "");
    }
    // Who asks with a token is not closed for them.
    watcher.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match watcher.read(&mut buffer) {
            Ok(length) => assert_ne!(length, 0, "the watcher was closed"),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn heads_and_bodies_that_do_not_come_end_and_a_head_is_bounded() {
    let (_folder, mut config) = config();
    config.limits.head = Duration::from_millis(300);
    config.limits.body = Duration::from_millis(300);
    let site = Site::start(config);
    assert_eq!(rest(&mut begun(&site, "")), "", "one that says nothing");
    assert_eq!(rest(&mut begun(&site, "GET /v1/health HTTP/1.1\r\n")), "");
    let half =
        format!("{}content-length: 99\r\n\r\n{{\"from\":", head("POST", "/v1/bookings", ASTRO));
    let answer = rest(&mut begun(&site, &half));
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("too-slow"), "{answer}");
    // A stranger's body is not waited for.
    let half = half.replace(&site::token(ASTRO).to_string(), "nobody");
    let answer = rest(&mut begun(&site, &half));
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let long = format!("GET /v1/health HTTP/1.1\r\nx: {}", "y".repeat(70_000));
    let answer = rest(&mut begun(&site, &long));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let after = site.client(VIEWER).health().unwrap();
    assert!(after.ready);
}

//! Clients that take more than their part.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/site.rs"]
mod site;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use longhaul_circuits::api::{BookRequest, FileWant, Problem};
use longhaul_circuits::client::ClientError;
use longhaul_circuits::ledger::audit;
use longhaul_circuits::service::config::{Config, Pace};
use longhaul_circuits::store;
use site::{ASTRO, BIO, Site, VIEWER};

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

/// Reads until the service closes the connection.
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
fn a_stop_answers_what_was_asked_and_waits_for_nobody_who_asked_nothing() {
    let (_folder, config) = config();
    let site = Site::start(config);
    let mut silent = begun(&site, "");
    let want = "{\"from\":\"a\"";
    let length = want.len() + 1;
    let head = head("POST", "/v1/bookings", ASTRO);
    let mut asking = begun(&site, &format!("{head}content-length: {length}\r\n\r\n{want}"));
    // Both are attended to: what comes after them is.
    assert!(site.client(ASTRO).list(false, None).unwrap().bookings.is_empty());
    std::thread::scope(|scope| {
        scope.spawn(move || drop(site));
        assert_eq!(rest(&mut silent), "");
        asking.write_all(b"}").unwrap();
        let answer = rest(&mut asking);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    });
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

/// The service's answer to bytes before it closes their connection.
fn answer(site: &Site, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It may be closed before all of it was written.
    let _ = stream.write_all(bytes);
    rest(&mut stream)
}

fn with_body(body: &[u8]) -> Vec<u8> {
    let head = head("POST", "/v1/bookings", ASTRO);
    let kind = "content-type: application/json\r\nconnection: close\r\n";
    let head = format!("{head}{kind}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn bodies_that_are_no_booking_are_refused_and_nothing_of_them_is_kept() {
    let (_folder, config) = config();
    let site = Site::start(config);
    let before = site.service.view().seq;
    let nested = |open: &str, close: &str| {
        format!("{}{}", open.repeat(5_000), close.repeat(5_000)).into_bytes()
    };
    let long = format!("{{\"note\":\"{}\"}}", "x".repeat(32 << 20)).into_bytes();
    let chunked = format!(
        "{}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        head("POST", "/v1/bookings", ASTRO)
    );
    let chunks = format!("10000\r\n{}\r\n", "[".repeat(1 << 16)).repeat(512);
    let cases = [
        ("nothing", with_body(b""), "422"),
        ("half of one", with_body(b"{\"file\":{\"bytes\":1"), "400"),
        ("no text", with_body(&[0xff; 64]), "400"),
        ("lists in lists", with_body(&nested("[", "]")), "400"),
        ("objects in objects", with_body(&nested("{\"file\":", "}")), "400"),
        ("a number beyond all", with_body(b"{\"file\":{\"bytes\":1e999}}"), "400"),
        ("less than nothing", with_body(b"{\"file\":{\"bytes\":-1}}"), "400"),
        ("the same twice", with_body(b"{\"links\":[\"a-b\"],\"links\":[\"a-b\"]}"), "400"),
        ("32 MiB", with_body(&long), "413"),
        ("32 MiB in chunks", [chunked.as_bytes(), chunks.as_bytes()].concat(), "413"),
    ];
    let answers = cases.each_ref().map(|(what, bytes, _)| {
        let answer = answer(&site, bytes);
        (*what, answer.get(9..12).unwrap_or("none").to_owned())
    });
    assert_eq!(answers, cases.map(|(what, _, status)| (what, status.to_owned())));
    assert_eq!(site.service.view().seq, before);
    assert!(site.client(VIEWER).health().unwrap().ready);
}

#[test]
fn a_client_with_an_unknown_token_is_refused_and_learns_nothing_of_the_known_ones() {
    let (_folder, config) = config();
    let site = Site::start(config);
    let known = site::token(ASTRO).to_string();
    let ask = |authorization: &str| {
        let text = format!(
            "GET /v1/bookings HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}\r\n"
        );
        answer(&site, text.as_bytes())
    };
    assert!(ask(&format!("authorization: Bearer {known}\r\n")).starts_with("HTTP/1.1 200"));
    let cut = &known[..known.len() - 1];
    let refusal = |token: &str| {
        let answer = ask(&format!("authorization: Bearer {token}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        answer.split("\r\n\r\n").nth(1).unwrap().to_owned()
    };
    // However near to one it is.
    let unknown = refusal(&"A".repeat(cut.len() + 1));
    for near in [cut.to_owned(), format!("{known}{known}"), "A".repeat(20_000)] {
        assert_eq!(refusal(&near), unknown);
    }
    for line in [
        String::new(),
        "authorization:\r\n".into(),
        "authorization: Bearer\r\n".into(),
        format!("authorization: Basic {known}\r\n"),
        format!("authorization: Bearer {cut}\u{e9}\r\n"),
        format!("x-authorization: Bearer {known}\r\n"),
    ] {
        let answer = ask(&line);
        assert!(answer.starts_with("HTTP/1.1 401"), "{line}: {answer}");
        assert!(!answer.contains(cut), "{line}: {answer}");
    }
}

#[test]
fn heads_that_say_two_things_are_refused_and_no_second_request_hides_behind_them() {
    let (_folder, config) = config();
    let site = Site::start(config);
    let hidden = format!("{}connection: close\r\n\r\n", head("GET", "/v1/bookings", ASTRO));
    let post = head("POST", "/v1/bookings", VIEWER);
    for (what, text) in [
        ("two lengths", format!("{post}content-length: 0\r\ncontent-length: 9\r\n\r\n{hidden}")),
        ("a length that is none", format!("{post}content-length: +1\r\n\r\n{hidden}")),
        ("a length beyond all", format!("{post}content-length: 99999999999999999999\r\n\r\n")),
        (
            "a chunk that is none",
            format!("{post}transfer-encoding: chunked\r\n\r\nxyz\r\n{hidden}"),
        ),
        ("a name with a space", format!("{post}content-length : 0\r\n\r\n{hidden}")),
        ("a folded line", format!("{post}x: y\r\n z: 0\r\n\r\n{hidden}")),
        ("a zero", format!("{post}x: \0\r\n\r\n{hidden}")),
        ("another protocol", format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{hidden}")),
        ("no protocol", format!("\u{16}\u{3}\u{1}\0\u{5}{hidden}")),
        (
            "many lines",
            format!("{}{}\r\n", head("GET", "/v1/health", ASTRO), "x: y\r\n".repeat(1000)),
        ),
    ] {
        let answer = answer(&site, text.as_bytes());
        let status = answer.get(9..10);
        assert!(
            answer.is_empty() || status == Some("4") || status == Some("5"),
            "{what}: {answer}"
        );
        assert!(!answer.contains("HTTP/1.1 200"), "{what}: {answer}");
    }
    assert!(site.client(VIEWER).health().unwrap().ready);
}

fn problem<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("{other:?}"),
    }
}

fn file(bytes: u64) -> BookRequest {
    let file = FileWant { bytes, max_rate_bps: 10_000_000_000, ..FileWant::default() };
    let links = Some(vec!["a-b".to_owned()]);
    BookRequest { links, file: Some(file), ..BookRequest::default() }
}

#[test]
fn a_booking_names_no_destination_of_another_project() {
    let (_folder, mut config) = config();
    let lists = "[[project]]\nname = \"astro\"\ndestinations = [\"192.0.2.0/24\"]\n\
                 [[project]]\nname = \"bio\"\ndestinations = [\"192.0.3.7\"]";
    config.traffic = Config::parse(lists).unwrap().traffic;
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let to = |address: &str| BookRequest { destination: address.parse().ok(), ..file(1_000_000) };
    let made = client.book(&to("192.0.2.9"), None).unwrap().bookings.remove(0);
    assert_eq!(made.destination, "192.0.2.9".parse().ok());
    client.book(&file(1_000_000), None).unwrap();
    for refused in [
        problem(client.book(&to("192.0.3.7"), None)),
        problem(client.plan(&to("192.0.3.7"))),
        problem(client.book(&to("2001:db8::1"), None)),
    ] {
        assert_eq!(
            (refused.status, refused.kind.as_str()),
            (403, "urn:longhaul:circuits:destination")
        );
        assert!(refused.detail.contains("it has 192.0.2.0/24"), "{refused:?}");
    }
    let mut own = to("192.0.3.7");
    own.file.as_mut().unwrap().max_rate_bps = 1_000_000_000;
    site.client(BIO).book(&own, None).unwrap();
}

#[test]
fn a_token_has_a_few_watches_at_a_time_and_gets_them_back() {
    let (_folder, mut config) = config();
    config.limits.watchers = 3;
    let site = Site::start(config);
    let watch = |token| {
        let mut stream = begun(&site, &format!("{}\r\n", head("GET", "/v1/watch", token)));
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (String::from_utf8(first[9..].to_vec()).unwrap(), stream)
    };
    let mut watches: Vec<_> = (0..3).map(|_| watch(ASTRO)).collect();
    assert!(watches.iter().all(|(status, _)| status == "200"));
    let refused = problem(site.client(ASTRO).watch(None, |_| false));
    assert_eq!((refused.status, refused.kind.as_str()), (429, "urn:longhaul:circuits:too-many"));
    assert!(refused.detail.contains("3 watches"), "{refused:?}");
    assert_eq!(watch(BIO).0, "200");
    drop(watches.pop());
    while watch(ASTRO).0 != "200" {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_token_that_asks_too_often_learns_when_to_ask_again() {
    let (_folder, mut config) = config();
    config.limits.pace = Pace { rate: 1, burst: 3 };
    let site = Site::start(config);
    let list = |token| {
        let text = format!("{}connection: close\r\n\r\n", head("GET", "/v1/bookings", token));
        rest(&mut begun(&site, &text))
    };
    let answers: Vec<String> = (0..50).map(|_| list(ASTRO)).collect();
    let refused = answers.iter().find(|answer| answer.starts_with("HTTP/1.1 429")).unwrap();
    assert!(
        refused.contains("\r\nretry-after: 1\r\n") && refused.contains("too-many"),
        "{refused}"
    );
    assert!(list(BIO).starts_with("HTTP/1.1 200"), "others are not concerned");
}

#[test]
fn a_refused_order_takes_no_room_in_the_store_and_its_key_gives_the_same_answer() {
    let (folder, config) = config();
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let whole = client.book(&file(1_000_000_000_000), None).unwrap().bookings.remove(0);
    let before = site.service.view().seq;
    // The link is taken for 800 of the next 1,000 seconds, and this takes 720.
    let mut more = file(900_000_000_000);
    let deadline = jiff::Timestamp::now() + Duration::from_secs(1000);
    more.file.as_mut().unwrap().deadline = Some(deadline);
    for number in 0..50 {
        let refused = problem(client.book(&more, Some(&format!("key {number}"))));
        assert_eq!(refused.kind, "urn:longhaul:circuits:no-room");
    }
    assert_eq!(site.service.view().seq, before, "nothing of it was kept");
    client.cancel(whole.id).unwrap();
    let again = problem(client.book(&more, Some("key 49")));
    assert_eq!(again.kind, "urn:longhaul:circuits:no-room", "as it was answered first");
    client.book(&more, Some("another")).unwrap();
    assert_eq!(site.service.view().seq, before + 2);
    drop(site);
    let location = site::config(&folder.path().join("book.db").display().to_string()).store;
    let mut store = store::open(&location, "checker", "").unwrap();
    let found = audit::verify(&store::read_all(store.as_mut()).unwrap(), None).unwrap();
    assert_eq!((found.records, found.booked), (before + 2, 2));
}

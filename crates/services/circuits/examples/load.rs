//! Durable bookings over REST: how many a second, and how long each takes.
//!
//!     cargo run --release -p longhaul-circuits --example load [-- REQUESTS [RATE [STORE]]]
//!
//! A service in this process, clients on connections of their own: first as fast as the service
//! answers, then RATE a second on a schedule, where a late answer makes nobody ask later. STORE is
//! a folder for the SQLite file (default: the current one, not a memory file system) or a
//! `postgres://` URL of an empty database. Of a folder it is measured, before and after, what a sync
//! takes there that does nothing else: as many a second as the service made on the schedule, for as
//! long. What the disk itself is late by shows there too.
#![allow(clippy::unwrap_used, reason = "a benchmark: anything unexpected ends it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use longhaul_circuits::server::{Server, Tokens};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::{Config, Role};
use longhaul_session::Token;

fn main() {
    let mut args = std::env::args().skip(1);
    let requests: usize = args.next().map_or(40_000, |n| n.parse().unwrap());
    let rate: f64 = args.next().map_or(2_000.0, |n| n.parse().unwrap());
    let store = args.next().unwrap_or_else(|| ".".into());
    let folder = tempfile::tempdir_in(if store.contains("://") { "." } else { &store }).unwrap();
    let store = match store.contains("://") {
        true => store,
        false => folder.path().join("book.db").display().to_string(),
    };
    let disk = (!store.contains("://")).then(|| folder.path().join("bare"));
    let scheduled = Duration::from_secs_f64(requests as f64 / rate);
    let bare = |pace: f64| {
        if let Some(file) = &disk {
            bare_syncs(file, pace, scheduled);
        }
    };
    bare(GROUPS);
    let config = Config::parse(&format!("store = \"{store}\"\n{LIMITS}{NETWORK}")).unwrap();
    let service = Service::start(config, Box::new(|text| eprintln!("{text}"))).unwrap();
    let token = Token::from_random([7; 16]);
    let mut tokens = Tokens::default();
    tokens.insert(&token, "all", Role::User);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(listener, service.clone(), tokens).unwrap();
    let address = server.address();
    let begun = Instant::now();
    let times = run(address, &token, requests, None);
    show("as fast as answered", &times, begun.elapsed(), groups(&service));
    let (begun, before) = (Instant::now(), groups(&service));
    let times = run(address, &token, requests, Some(rate));
    let asked = format!("{rate} a second asked");
    let (elapsed, made) = (begun.elapsed(), groups(&service) - before);
    show(&asked, &times, elapsed, made);
    println!(
        "{} bookings are open, {} records kept",
        service.view().open.len(),
        service.view().seq
    );
    server.stop().unwrap();
    service.stop();
    bare(made as f64 / elapsed.as_secs_f64());
}

fn show(what: &str, times: &Histogram<u64>, elapsed: Duration, groups: u64) {
    let seconds = elapsed.as_secs_f64();
    println!(
        "{what}: {:.0} durable bookings/s in {:.0} groups/s, {}",
        times.len() as f64 / seconds,
        groups as f64 / seconds,
        quantiles(times)
    );
}

fn quantiles(times: &Histogram<u64>) -> String {
    let ms = |part| times.value_at_quantile(part) as f64 / 1e3;
    let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(ms);
    format!("p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms, max {max:.2} ms")
}

/// Groups that were made durable.
fn groups(service: &Service) -> u64 {
    let text =
        longhaul_pages::encode(&service.metrics().registry(&service.view(), &service.status()));
    let name = "longhaul_circuits_commit_seconds_count ";
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

/// Measures how many times a second 16 KiB can be written over what is there and synced.
fn bare_syncs(path: &Path, pace: f64, length: Duration) {
    let mut file = File::create(path).unwrap();
    let piece = [1; 16384];
    (0..PIECES).for_each(|_| file.write_all(&piece).unwrap());
    file.sync_all().unwrap();
    let mut times = Histogram::<u64>::new(3).unwrap();
    let begin = Instant::now();
    for turn in 0..(pace * length.as_secs_f64()) as u64 {
        if turn % PIECES == 0 {
            file.rewind().unwrap();
        }
        let due = begin + Duration::from_secs_f64(turn as f64 / pace);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let begun = Instant::now();
        file.write_all(&piece).unwrap();
        file.sync_data().unwrap();
        times.record(begun.elapsed().as_micros() as u64).unwrap();
    }
    println!("{pace:.0} bare syncs of 16 KiB a second: {}", quantiles(&times));
}

/// Books on all connections; latencies in microseconds.
fn run(address: SocketAddr, token: &Token, requests: usize, rate: Option<f64>) -> Histogram<u64> {
    let each = requests / CONNECTIONS;
    let begin = Instant::now() + Duration::from_millis(50);
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let token = token.to_string();
            std::thread::spawn(move || {
                let mut times = Histogram::<u64>::new(3).unwrap();
                let stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut writer = stream;
                for turn in 0..each {
                    let due = rate.map(|rate| {
                        let turn = (turn * CONNECTIONS + number) as f64;
                        begin + Duration::from_secs_f64(turn / rate)
                    });
                    let due = due.unwrap_or_else(Instant::now);
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    book(&mut writer, &mut reader, &token, number * each + turn);
                    times.record(due.elapsed().as_micros() as u64).unwrap();
                }
                times
            })
        })
        .collect();
    let mut all = Histogram::<u64>::new(3).unwrap();
    for thread in threads {
        all.add(thread.join().unwrap()).unwrap();
    }
    all
}

/// Books files of 1 to 1000 MB on one of four links, so that many are open at a time.
fn book(writer: &mut TcpStream, reader: &mut BufReader<TcpStream>, token: &str, turn: usize) {
    let (bytes, link) = ((turn * 7919 % 1000 + 1) * 1_000_000, turn % 4);
    let body = format!(
        "{{\"links\":[\"l{link}\"],\"file\":{{\"bytes\":{bytes},\"max_rate_bps\":10000000000}}}}"
    );
    write!(
        writer,
        "POST /v1/bookings HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let created = line.contains(" 201 ");
    let mut length = 0;
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    assert!(created, "{}", String::from_utf8_lossy(&body));
}

const CONNECTIONS: usize = 16;
/// Groups a second that the service makes at 2,000 bookings a second on a quiet disk.
const GROUPS: f64 = 1800.0;
/// Of 16 KiB that a bare file has: as much as the log written ahead.
const PIECES: u64 = 4096;
/// All clients have one token.
const LIMITS: &str = "[limits]\nrequests_per_second = 1000000\nrequests_at_once = 1000000\n";
const NETWORK: &str = r#"
[[link]]
name = "l0"
from = "a"
to = "b"
capacity = "400Gbps"
[[link]]
name = "l1"
from = "a"
to = "b"
capacity = "400Gbps"
[[link]]
name = "l2"
from = "a"
to = "b"
capacity = "400Gbps"
[[link]]
name = "l3"
from = "a"
to = "b"
capacity = "400Gbps"
[[project]]
name = "all"
"#;

//! The service killed at random moments under load: what was acknowledged is there, once, and no
//! link carries more than it can.
//!
//! A hundred kills, as a long test: `cargo test -p longhaul-circuits --test kill -- --ignored`.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_circuits::api::{BookRequest, FileWant};
use longhaul_circuits::archive;
use longhaul_circuits::client::{Access, Client, ClientError};
use longhaul_circuits::ledger::{Event, Ledger, Record, audit};
use longhaul_circuits::service::config::Archive;
use longhaul_circuits::store::{self, Location};
use longhaul_needs::needs;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use site::{ASTRO, Site};

/// Answers that clients got: by key, the booking and its ranges.
type Answers = Mutex<BTreeMap<String, (u64, u64)>>;

#[test]
fn nothing_acknowledged_is_lost_over_a_few_kills() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("book.db").display().to_string();
    survive(&store, None, 6, 1);
}

#[test]
fn nothing_acknowledged_is_lost_while_the_log_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("book.db").display().to_string();
    survive(&store, Some(&folder.path().join("archive")), 6, 4);
}

#[test]
#[ignore = "takes a minute"]
fn nothing_acknowledged_is_lost_over_a_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("book.db").display().to_string();
    survive(&store, Some(&folder.path().join("archive")), 100, 2);
}

#[needs(postgresql)]
#[test]
fn nothing_acknowledged_is_lost_with_postgres() {
    let server = postgres::Server::start();
    let folder = tempfile::tempdir().unwrap();
    survive(&server.url(), Some(folder.path()), 4, 3);
}

/// Kills the service again and again while clients book, extend, release and cancel.
fn survive(store: &str, archive: Option<&Path>, kills: u32, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let answers = Answers::default();
    let ended = Answers::default();
    let done = AtomicBool::new(false);
    let turns = AtomicU64::new(0);
    let url = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (answers, ended, done, turns, url) = (&answers, &ended, &done, &turns, &url);
            scope.spawn(move || load(number, answers, ended, done, turns, url));
        }
        for kill in 1..=kills {
            if archive.is_some() {
                // While it starts, when it compacts the log.
                let mut child = spawn(store, archive);
                std::thread::sleep(Duration::from_micros(random.next_u64() % 150_000));
                child.kill().unwrap();
                child.wait().unwrap();
            }
            let mut child = spawn(store, archive);
            let address = address(&mut child);
            *url.lock().unwrap() = address;
            std::thread::sleep(Duration::from_micros(20_000 + random.next_u64() % 200_000));
            // On a machine so busy that no client has an answer yet, the last one lives until then.
            while kill == kills && answers.lock().unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(2));
            }
            // SIGKILL, at whatever it is doing.
            child.kill().unwrap();
            child.wait().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let (records, state) = records(store, archive);
    assert_eq!(state.is_some(), archive.is_some(), "an archive is used");
    check(&records, state.as_ref(), &answers.into_inner().unwrap(), &ended.into_inner().unwrap());
    println!("{kills} kills, {} requests, {} records", turns.into_inner(), records.len());
}

/// A client: what fails is sent again under its key, as the service says.
fn load(
    number: u64,
    answers: &Answers,
    ended: &Answers,
    done: &AtomicBool,
    turns: &AtomicU64,
    url: &Mutex<String>,
) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1000 + number);
    let mut turn = 0;
    let mut pending: Option<(String, BookRequest)> = None;
    while !done.load(Ordering::Relaxed) {
        let at = url.lock().unwrap().clone();
        if at.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let client = Client::new(&at, &site::token(ASTRO).to_string(), &Access::default()).unwrap();
        turns.fetch_add(1, Ordering::Relaxed);
        let (key, request) = pending.take().unwrap_or_else(|| {
            turn += 1;
            (format!("{number}-{turn}"), request(&mut random))
        });
        match client.book(&request, Some(&key)) {
            Ok(made) => {
                let booking = &made.bookings[0];
                answers.lock().unwrap().insert(key.clone(), (booking.id, booking.booked_bytes));
                if turn % 4 == 0 && client.release(booking.id).is_ok() {
                    ended.lock().unwrap().insert(key, (booking.id, 0));
                }
            }
            Err(ClientError::Problem(problem)) if problem.status == 409 => {}
            Err(_) => {
                pending = Some((key, request));
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

fn request(random: &mut Xoshiro256PlusPlus) -> BookRequest {
    let file = FileWant {
        bytes: 1_000_000 + random.next_u64() % 2_000_000_000,
        max_rate_bps: 1_000_000_000 * (1 + random.next_u64() % 10),
        ..FileWant::default()
    };
    let to = if random.next_u64().is_multiple_of(2) { "b" } else { "c" };
    BookRequest {
        from: Some("a".into()),
        to: Some(to.into()),
        file: Some(file),
        ..BookRequest::default()
    }
}

/// The log decides itself again and keeps capacity ([`audit::verify`]), and leads to the state that
/// stands for its beginning; every acknowledged booking is in it once, as acknowledged; what was
/// acknowledged as released is.
fn check(
    records: &[Record],
    state: Option<&Ledger>,
    answers: &BTreeMap<String, (u64, u64)>,
    ended: &BTreeMap<String, (u64, u64)>,
) {
    let found = audit::verify(records, state).unwrap();
    let ledger = Ledger::replay(records.to_vec()).unwrap().unwrap();
    let grid = ledger.grid().unwrap();
    let mut booked: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    let mut released = Vec::new();
    for record in records {
        let events = &record.outcome;
        for event in events {
            match event {
                Event::Booked { id, place, .. } => {
                    let key = record.order.key.as_ref().map_or("", |(key, _)| key);
                    let area = place.ranges.vector(0).unwrap().area();
                    booked.entry(key).or_default().push((*id, grid.bytes(area).get()));
                }
                Event::Released { id } => released.push(*id),
                _ => {}
            }
        }
    }
    assert!(booked.values().all(|made| made.len() == 1), "a key booked twice");
    for (key, acknowledged) in answers {
        let kept = booked.get(key.as_str()).unwrap_or_else(|| panic!("{key} was lost"));
        // A repeated request is answered with what the booking has become.
        assert_eq!(kept[0].0, acknowledged.0, "{key}");
        assert!(acknowledged.1 <= kept[0].1, "{key}");
    }
    for (key, (id, _)) in ended {
        assert!(released.contains(id), "the release of {key} was lost");
    }
    assert!(!answers.is_empty() && found.booked >= answers.len() as u64);
    println!(
        "{} acknowledged, {} booked, peak {} ppm",
        answers.len(),
        found.booked,
        found.peak_ppm
    );
}

/// All records, those of the archive too, and the state that stands for these.
fn records(store: &str, archive: Option<&Path>) -> (Vec<Record>, Option<Ledger>) {
    let location = match store.contains("://") {
        true => Location::Postgres { url: store.into(), lease: Duration::ZERO },
        false => Location::Sqlite { path: Path::new(store).into(), max_bytes: None },
    };
    let mut store = store::open(&location, "checker", "").unwrap();
    let state = store.state().unwrap().map(|(_, text)| Ledger::from_snapshot(&text).unwrap());
    let mut records = archive.map(|folder| archive::read(folder).unwrap()).unwrap_or_default();
    let kept = store::read_all(store.as_mut()).unwrap();
    records.extend(kept.into_iter().map(|record| (record.seq, record)));
    (records.into_values().collect(), state)
}

/// Starts this program again as a service.
fn spawn(store: &str, archive: Option<&Path>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_service_that_is_killed", "--ignored", "--nocapture"]);
    // It ends when its input does, should this program fail.
    command.env(STORE, store).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.envs(archive.map(|folder| (ARCHIVE, folder)));
    command.spawn().unwrap()
}

/// Where a service that was started listens.
fn address(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().expect("the service says where it listens").unwrap();
        if let Some(at) = line.strip_prefix(LISTENING) {
            break at.to_owned();
        }
    };
    // What it says later is read, so that it never waits for us.
    std::thread::spawn(move || lines.for_each(drop));
    address
}

/// No test: what [`spawn`] starts.
#[test]
#[ignore = "started by the others"]
fn the_service_that_is_killed() {
    let Ok(store) = std::env::var(STORE) else { return };
    let mut config = site::config(&store);
    // A killed leader cannot resign; the same node goes on at once.
    config.node = "the only one".into();
    config.archive =
        std::env::var_os(ARCHIVE).map(|folder| Archive { folder: folder.into(), after: 20 });
    let site = Site::start(config);
    println!("\n{LISTENING}{}", site.url());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

const CLIENTS: u64 = 6;
const STORE: &str = "LONGHAUL_TEST_STORE";
const ARCHIVE: &str = "LONGHAUL_TEST_ARCHIVE";
const LISTENING: &str = "listening at ";

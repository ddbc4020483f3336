//! One suite for every store.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/postgres.rs"]
mod postgres;

use std::path::Path;
use std::time::Duration;

use longhaul_circuits::ledger::{
    Ask, Command, Event, Note, Order, Place, Placing, Ranges, Record, Route,
};
use longhaul_circuits::store::{self, Location, Store, StoreError};
use longhaul_needs::needs;

/// A record that is hard to keep: extremes, quotes, other scripts.
fn record(seq: u64) -> Record {
    let request = Ask::File {
        volume: u64::MAX,
        max_rate: u32::MAX,
        earliest: seq,
        deadline: Some(u64::MAX - 1),
        policy: Placing::LeastPeak,
    };
    let note = Note { label: "\"nächtlich\" 夜\n'); --\\".into(), ..Note::default() };
    let path = Route(vec![0, 7]);
    let order = Order {
        actor: "t".into(),
        project: "astro".into(),
        operator: false,
        key: Some((format!("key {seq}"), "f".into())),
        command: Command::Book {
            requests: vec![request],
            paths: vec![path.clone()],
            held_until: None,
            note,
        },
    };
    let ranges = Ranges(vec![(seq, seq + 5, 3)]);
    let place = Place { request, path, ranges, promise: u64::MAX };
    let outcome = match seq % 2 {
        0 => vec![],
        _ => vec![Event::Booked { id: seq, series: None, held_until: None, place }],
    };
    Record { seq, tick: 1_700_000_000_000 + seq, order, outcome }
}

fn records(range: std::ops::RangeInclusive<u64>) -> Vec<Record> {
    range.map(record).collect()
}

type Opened = Result<Box<dyn Store>, StoreError>;

/// Tests that hold for every store. `open` opens it as a node.
fn contract(open: &dyn Fn(&str) -> Opened) {
    let mut store = open("one").unwrap();
    assert_eq!(store::read_all(store.as_mut()).unwrap(), []);
    let first = store.lead().unwrap();
    store.append(&records(1..=3)).unwrap();
    store.append(&[]).unwrap();
    store.append(&records(4..=1500)).unwrap();
    assert_eq!(store.read(2, 2).unwrap(), records(3..=4));

    // A position is taken once, and a group is kept whole or not at all.
    assert!(store.append(&records(1500..=1501)).is_err());
    assert!(store.append(&[record(1501), record(1501)]).is_err());
    store.append(&records(1501..=1501)).unwrap();
    store.renew().unwrap();
    drop(store);

    let mut store = open("one").unwrap();
    assert_eq!(store::read_all(store.as_mut()).unwrap(), records(1..=1501));
    assert!(store.lead().unwrap() > first, "each leader has an epoch of its own");
    store.append(&records(1502..=1502)).unwrap();

    // A state stands for the records before it, and a later one for more of them.
    assert_eq!(store.state().unwrap(), None);
    store.compact(1000, "up to \"1000\"").unwrap();
    assert_eq!(store.state().unwrap(), Some((1000, "up to \"1000\"".into())));
    assert_eq!(store::read_all(store.as_mut()).unwrap(), records(1001..=1502));
    assert_eq!(store.read(0, 1).unwrap(), [record(1001)]);
    store.compact(1499, "more").unwrap();
    drop(store);
    let mut store = open("one").unwrap();
    assert!(matches!(store.compact(1502, "of a stranger"), Err(StoreError::Fenced)));
    assert_eq!(store.state().unwrap(), Some((1499, "more".into())));
    assert_eq!(store::read_all(store.as_mut()).unwrap(), records(1500..=1502));
    store.lead().unwrap();
    store.resign();
}

fn sqlite(path: &Path, max_bytes: Option<u64>) -> Opened {
    store::open(&Location::Sqlite { path: path.into(), max_bytes }, "node", "")
}

#[test]
fn sqlite_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    contract(&|_| sqlite(&folder.path().join("book.db"), None));
}

#[test]
fn one_process_uses_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let _first = sqlite(&path, None).unwrap();
    assert!(matches!(sqlite(&path, None).err(), Some(StoreError::Led { .. })));
}

#[test]
fn a_full_file_says_so_and_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let mut store = sqlite(&path, Some(300_000)).unwrap();
    store.lead().unwrap();
    let mut kept = 0;
    let refused = loop {
        match store.append(&records(kept + 1..=kept + 20)) {
            Ok(()) => kept += 20,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert_eq!(store::read_all(store.as_mut()).unwrap(), records(1..=kept));
    drop(store);
    let mut store = sqlite(&path, None).unwrap();
    store.lead().unwrap();
    store.append(&records(kept + 1..=kept + 20)).unwrap();
}

#[test]
fn a_file_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    std::fs::write(&path, [b'x'; 8192]).unwrap();
    let error = sqlite(&path, None).err().unwrap().to_string();
    assert!(error.contains("not a database"), "{error}");
    assert!(sqlite(&folder.path().join("none/book.db"), None).is_err());
}

#[test]
fn a_place_that_takes_no_files_is_read_only() {
    // Nobody makes files there, root neither.
    let error = sqlite(Path::new("/sys/book.db"), None).err();
    assert!(matches!(error, Some(StoreError::ReadOnly)), "{error:?}");
}

#[needs(postgresql)]
#[test]
fn postgres_keeps_the_contract_and_fences_old_leaders() {
    let server = postgres::Server::start();
    let open = |url: &str, node: &str, lease: f64| {
        let lease = Duration::from_secs_f64(lease);
        store::open(&Location::Postgres { url: url.into(), lease }, node, &format!("at {node}"))
    };
    contract(&|node| open(&server.url(), node, 1000.0));

    let mut old = open(&server.url(), "old", 0.2).unwrap();
    old.lead().unwrap();
    old.append(&records(1503..=1503)).unwrap();
    let mut new = open(&server.url(), "new", 1000.0).unwrap();
    let by = loop {
        match new.lead() {
            Ok(_) => break "expired",
            Err(StoreError::Led { node, url }) => assert_eq!((&*node, &*url), ("old", "at old")),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(by, "expired");
    assert!(matches!(old.append(&records(1504..=1504)), Err(StoreError::Fenced)));
    assert!(matches!(old.renew(), Err(StoreError::Fenced)));
    assert!(matches!(old.lead(), Err(StoreError::Led { .. })));
    new.append(&records(1504..=1504)).unwrap();
    new.resign();
    old.lead().unwrap();
    assert_eq!(old.read(1503, 9).unwrap(), records(1504..=1504));

    // A database in recovery, or whose operator wants it so, is read-only.
    let url = format!("{}&options=-c%20default_transaction_read_only%3Don", server.url());
    let mut bound = open(&url, "bound", 1.0).unwrap();
    assert!(matches!(bound.append(&records(1505..=1505)), Err(StoreError::ReadOnly)));

    drop(server);
    assert!(matches!(old.renew(), Err(StoreError::Failed(_))));
}

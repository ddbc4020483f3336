use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use super::super::lead::own;
use super::super::{Config, Metrics, RwLock, View, watch};
use super::*;
use crate::drivers::Lease;
use crate::ledger::Command;
use crate::service::config::DriverSpec;
use crate::store::Location;

/// A store in memory, which fails when the test wants it.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    epoch: u64,
    records: Vec<Record>,
    fails: bool,
}

impl Memory {
    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> Result<T, StoreError> {
        let mut kept = self.0.lock().unwrap();
        match kept.fails {
            true => Err(StoreError::Failed("the database does not answer".into())),
            false => Ok(work(&mut kept)),
        }
    }
}

impl Store for Memory {
    fn lead(&mut self) -> Result<u64, StoreError> {
        self.with(|kept| {
            kept.epoch += 1;
            kept.epoch
        })
    }

    fn renew(&mut self) -> Result<(), StoreError> {
        self.with(|_| ())
    }

    fn read(&mut self, after: u64, _limit: u32) -> Result<Vec<Record>, StoreError> {
        self.with(|kept| kept.records.iter().filter(|one| one.seq > after).cloned().collect())
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.with(|kept| kept.records.extend_from_slice(records))
    }

    fn state(&mut self) -> Result<Option<(u64, String)>, StoreError> {
        Ok(None)
    }

    fn compact(&mut self, _seq: u64, _state: &str) -> Result<(), StoreError> {
        unreachable!("without an archive")
    }

    fn resign(&mut self) {}
}

/// A thread of one link, whose driver writes its orders to `folder`.
fn thread(folder: &Path, store: &Memory, location: Location) -> LedgerThread {
    let link = "[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\ncapacity = \"1Gbps\"";
    let mut config = Config::parse(link).unwrap();
    config.store = location;
    let (text, script) = (folder.join("text"), folder.join("script"));
    let orders = folder.join("orders");
    std::fs::write(&text, format!("#!/bin/sh\ncat >> {}\n", orders.display())).unwrap();
    // By another process, since nobody can run what a process just forked has open for writing.
    let mut install = std::process::Command::new("install");
    assert!(install.args(["-m", "755"]).args([&text, &script]).status().unwrap().success());
    config.drivers.insert("l".into(), DriverSpec::Command { program: script });
    let status = Status { ready: false, standby: false, text: String::new(), leader: None };
    let shared = Arc::new(Shared {
        metrics: Metrics::default(),
        view: RwLock::new(View::empty(&config)),
        health: Mutex::new(status),
        latest: watch::Sender::new(0),
        notice: Box::new(|text| println!("{text}")),
        config,
    });
    let drive = Drive::start(&shared).unwrap();
    LedgerThread::open(shared, Box::new(store.clone()), sync_channel(1).1, drive).unwrap()
}

/// Has the thread do something that it cannot keep.
fn fail(thread: &mut LedgerThread, store: &Memory) -> Lease {
    let lease = thread.leading.as_ref().unwrap().lease.clone();
    assert!(lease.holds());
    store.0.lock().unwrap().fails = true;
    let (reply, mut answer) = oneshot::channel();
    thread.turn(vec![(Box::new(own(Command::Replan)), reply)]);
    assert!(matches!(answer.try_recv().unwrap(), Err(ServiceError::Unavailable(_))));
    store.0.lock().unwrap().fails = false;
    lease
}

#[test]
fn a_leader_whose_database_fails_switches_no_more_until_it_leads_again() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Memory::default());
    let location = Location::Postgres { url: String::new(), lease: Duration::from_secs(3600) };
    let mut thread = thread(folder.path(), &store, location);
    let lease = fail(&mut thread, &store);
    assert!(!lease.holds(), "before anybody else can lead");
    thread.retry.0 = Instant::now();
    thread.turn(vec![]);
    let next = &thread.leading.as_ref().unwrap().lease;
    assert!(next.holds() && !lease.holds());
    assert_eq!((lease.epoch(), next.epoch()), (1, 2));
    // The driver may have slept through the first epoch, and gets the second.
    let orders = || std::fs::read_to_string(folder.path().join("orders")).unwrap_or_default();
    while !orders().contains("{\"do\":\"reset\",\"epoch\":2,\"link\":\"l\"}\n") {
        std::thread::sleep(Duration::from_millis(5));
    }
    thread.drive.stop();
}

#[test]
fn with_a_store_of_one_process_bookings_go_on_while_it_fails() {
    let (folder, store) = (tempfile::tempdir().unwrap(), Memory::default());
    let path = folder.path().join("no.db");
    let mut thread = thread(folder.path(), &store, Location::Sqlite { path, max_bytes: None });
    assert!(fail(&mut thread, &store).holds(), "nobody else can lead");
    thread.drive.stop();
}

//! The service when its store, its clock, its leader or its switch fails.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/site.rs"]
mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use longhaul_circuits::api::{BookRequest, Booking, FileWant, Problem};
use longhaul_circuits::client::{Client, ClientError};
use longhaul_circuits::ledger::{Command, Event, Order, Record, audit};
use longhaul_circuits::service::Service;
use longhaul_circuits::service::config::{Archive, Config, DriverSpec};
use longhaul_circuits::store::{self, Location};
use longhaul_needs::needs;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use site::{ASTRO, OPERATOR, Site};
use sqlx::Connection;

fn file(label: &str) -> BookRequest {
    let file = FileWant { bytes: 1_000_000, max_rate_bps: 1_000_000_000, ..FileWant::default() };
    BookRequest {
        links: Some(vec!["a-b".into()]),
        file: Some(file),
        start: Some(jiff::Timestamp::now() + Duration::from_secs(3600)),
        label: label.into(),
        ..BookRequest::default()
    }
}

fn problem<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Problem {
    match result {
        Err(ClientError::Problem(problem)) => *problem,
        other => panic!("{other:?}"),
    }
}

/// Tries until it works: how soon is no matter of this test, that it does is.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it never works");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn all(client: &Client) -> Vec<Booking> {
    client.list(true, None).unwrap().bookings
}

fn sqlite(path: &Path, max_bytes: Option<u64>) -> Location {
    Location::Sqlite { path: path.into(), max_bytes }
}

#[test]
fn a_full_store_is_reported_changes_nothing_and_is_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let mut config = site::config(&path.display().to_string());
    config.store = sqlite(&path, Some(200_000));
    config.quote = Duration::from_secs(600);
    let site = Site::start(config);
    let client = site.client(ASTRO);
    let quote = client.plan(&file("quoted")).unwrap().quote.unwrap().id;
    let label = "x".repeat(200);
    let full = (0..10_000).find_map(|_| client.book(&file(&label), None).err()).unwrap();
    let full = problem::<()>(Err(full));
    assert_eq!((full.status, full.kind.as_str()), (507, "urn:longhaul:circuits:store-full"));
    assert!(full.detail.contains("nothing was booked"), "{full:?}");
    assert!(!client.health().unwrap().ready || client.health().unwrap().status == "leading");
    let kept = all(&client);
    assert!(!kept.is_empty(), "what is kept can be read meanwhile");
    let free = client.availability("a-b").unwrap();
    let again = problem(client.book(&file(&label), None));
    assert_eq!(again.status, 507);
    for _ in 0..2 {
        assert_eq!(problem(client.take(&quote, None)).status, 507, "it is not lost by that");
    }
    drop(site);

    // With room it goes on with exactly what it acknowledged.
    let site = Site::of_file(&path);
    let client = site.client(ASTRO);
    assert_eq!(all(&client), kept);
    let now = client.availability("a-b").unwrap();
    assert_eq!(now.free.last().unwrap().rate_bps, free.free.last().unwrap().rate_bps);
    client.book(&file("more"), None).unwrap();
    drop(site);
    let mut store = store::open(&sqlite(&path, None), "checker", "").unwrap();
    let found = audit::verify(&store::read_all(store.as_mut()).unwrap(), None).unwrap();
    assert_eq!(found.booked as usize, kept.len() + 1);
}

/// An administrator who mounts the file system again, or the kernel after a fault, does the like.
#[needs(immutable_files)]
#[test]
fn a_store_that_turns_read_only_is_reported_changes_nothing_and_is_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let mut config = site::config(&path.display().to_string());
    config.quote = Duration::from_secs(600);
    let site = Site::start(config);
    let client = site.client(ASTRO);
    client.book(&file("kept"), None).unwrap();
    let quote = client.plan(&file("quoted")).unwrap().quote.unwrap().id;
    let state = || {
        let free = ["a-b", "b-c", "a-c"].map(|link| {
            let free = client.availability(link).unwrap().free;
            // The first begins now, and what is shown ends so much later.
            let begin = free.iter().skip(1).map(|range| range.start);
            (begin.collect::<Vec<_>>(), free.iter().map(|r| r.rate_bps).collect::<Vec<_>>())
        });
        (all(&client), free, site.service.view().seq)
    };
    let before = state();
    let frozen = Frozen::new(&[path.clone(), folder.path().join("book.db-wal")]);
    for _ in 0..3 {
        let refused = problem(client.book(&file("more"), None));
        let kind = "urn:longhaul:circuits:store-read-only";
        assert_eq!((refused.status, refused.kind.as_str()), (503, kind), "{refused:?}");
        assert!(refused.detail.contains("nothing was booked"), "{refused:?}");
        let kept = problem(client.take(&quote, None));
        assert_eq!(kept.kind, kind, "{kept:?}");
        assert_eq!(state(), before);
        assert!(client.plan(&file("shown")).unwrap().plan.is_some());
    }
    let health = client.health().unwrap();
    assert!(!health.ready && health.status.contains("read-only"), "{health:?}");
    drop(frozen);
    until(|| client.book(&file("more"), None).ok());
    client.take(&quote, None).unwrap();
    drop(site);
    let mut store = store::open(&sqlite(&path, None), "checker", "").unwrap();
    let found = audit::verify(&store::read_all(store.as_mut()).unwrap(), None).unwrap();
    assert_eq!(found.booked, 3);
}

/// Files to which nobody can write, not even who has them open, until it is dropped.
struct Frozen(Vec<std::fs::File>);

impl Frozen {
    fn new(paths: &[PathBuf]) -> Self {
        let freeze = |path| {
            let file = std::fs::File::open(path).unwrap();
            let flags = ioctl_getflags(&file).unwrap();
            ioctl_setflags(&file, flags | IFlags::IMMUTABLE).unwrap();
            file
        };
        Self(paths.iter().map(freeze).collect())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for file in &self.0 {
            let flags = ioctl_getflags(file).unwrap();
            ioctl_setflags(file, flags - IFlags::IMMUTABLE).unwrap();
        }
    }
}

/// With its records the store is as good: the service says so, and goes on.
#[test]
fn a_log_that_cannot_be_archived_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let site = Site::of_file(&path);
    let booked = site.client(ASTRO).book(&file("kept"), None).unwrap().bookings.remove(0);
    drop(site);
    let records = || {
        let mut store = store::open(&sqlite(&path, None), "checker", "").unwrap();
        store::read_all(store.as_mut()).unwrap()
    };
    let before = records();

    let no_folder = folder.path().join("a file");
    std::fs::write(&no_folder, "of something else").unwrap();
    let mut config = site::config(&path.display().to_string());
    config.archive = Some(Archive { folder: no_folder, after: 1 });
    let (sender, notices) = mpsc::channel();
    let notice = move |text: &str| drop(sender.send(text.to_owned()));
    let service = Service::start(config, Box::new(notice)).unwrap();
    let notice = notices.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(notice.contains("not compacted") && notice.contains("a file"), "{notice}");
    service.stop();
    assert_eq!(records()[..before.len()], before[..]);

    let site = Site::of_file(&path);
    assert_eq!(all(&site.client(ASTRO))[0].id, booked.id);
}

#[test]
fn a_clock_that_was_set_back_does_not_undo_what_has_passed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    drop(Site::of_file(&path));
    // Before the clock was set right, it was an hour ahead.
    let mut store = store::open(&sqlite(&path, None), "n", "").unwrap();
    store.lead().unwrap();
    let last = store::read_all(store.as_mut()).unwrap().pop().unwrap();
    let record = Record {
        seq: last.seq + 1,
        tick: last.tick + 3_600_000,
        order: Order {
            actor: "op".into(),
            project: "net".into(),
            operator: true,
            key: None,
            command: Command::Replan,
        },
        outcome: vec![Event::Replanned { moved: vec![] }],
    };
    store.append(&[record]).unwrap();
    drop(store);
    let site = Site::of_file(&path);
    let client = site.client(ASTRO);
    let health = client.health().unwrap();
    assert!(health.ready && health.clock_ahead_seconds > 3000.0, "{health:?}");
    let soon = Some(jiff::Timestamp::now() + Duration::from_secs(1800));
    let past = problem(client.book(&BookRequest { start: soon, ..file("") }, None));
    assert!(past.detail.contains("has passed"), "by the service's time: {past:?}");
    let soon = BookRequest { start: None, ..file("") };
    let made = client.book(&soon, None).unwrap().bookings.remove(0);
    assert!(made.start >= health.now);
    drop(site);
    let site = Site::of_file(&path);
    assert!(site.client(ASTRO).show(made.id).is_ok());
    drop(site);
    let mut store = store::open(&sqlite(&path, None), "n", "").unwrap();
    audit::verify(&store::read_all(store.as_mut()).unwrap(), None).unwrap();
}

#[test]
fn a_stop_does_not_wait_for_half_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::of_file(&folder.path().join("book.db"));
    let mut stream = TcpStream::connect(site.address).unwrap();
    let token = site::token(ASTRO);
    let head = "POST /v1/bookings HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n";
    write!(stream, "{head}authorization: Bearer {token}\r\nexpect: 100-continue\r\n\r\n").unwrap();
    // It goes on once the service waits for the body.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream.write_all(b"{").unwrap();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        drop(site);
        done.send(()).unwrap();
    });
    // As long as this client waits, which is for ever.
    ended.recv_timeout(Duration::from_secs(60)).expect("it stops");
    drop(stream);
}

#[test]
fn a_store_of_other_rules_or_links_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    drop(Site::of_file(&path));
    let start = |config: Config| {
        let started = Service::start(config, Box::new(|_| {}));
        started.err().unwrap().to_string()
    };
    let mut rules = site::config(&path.display().to_string());
    rules.rules.guard = 5;
    assert!(start(rules).contains("founded with other rules"));
    let mut links = site::config(&path.display().to_string());
    links.links[0].capacity = 1;
    assert!(start(links).contains("a link does not change"));
    let site = Site::of_file(&path);
    assert!(start(site::config(&path.display().to_string())).contains("leads"));
    drop(site);
}

#[test]
fn new_links_have_names_for_urls_and_commands_and_old_ones_keep_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book.db");
    let config = |name: &str, from: &str| {
        let mut config = site::config(&path.display().to_string());
        (config.links[0].name, config.links[0].from) = (name.into(), from.into());
        config
    };
    for (name, from) in [("a/b", "a"), ("..", "a"), ("-l", "a"), ("a-b", "x/y"), ("a-b", "-a")] {
        let started = Service::start(config(name, from), Box::new(|_| {}));
        let refused = started.err().unwrap().to_string();
        assert!(refused.contains("no /") && refused.contains(name), "{refused}");
    }
    drop(Site::of_file(&path));
    // Founded when such names were taken.
    let mut store = store::open(&sqlite(&path, None), "n", "").unwrap();
    store.lead().unwrap();
    let last = store::read_all(store.as_mut()).unwrap().pop().unwrap();
    let link = config("x/y", "x/").links.remove(0);
    let command = Command::AddLink(link);
    let (actor, project) = ("op".into(), "net".into());
    let record = Record {
        seq: last.seq + 1,
        tick: last.tick,
        order: Order { actor, project, operator: true, key: None, command },
        outcome: vec![Event::LinkAdded { link: 3 }],
    };
    store.append(&[record]).unwrap();
    drop(store);
    let site = Site::start(config("x/y", "x/"));
    let request = BookRequest { links: Some(vec!["x/y".into()]), ..file("kept") };
    site.client(ASTRO).book(&request, None).unwrap();
    assert!(!site.client(ASTRO).availability("x/y").unwrap().free.is_empty());
}

#[test]
fn a_program_runs_at_every_boundary() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name| folder.path().join(name);
    let (script, orders, policies) = (at("switch"), at("orders"), at("policies"));
    let text = format!(
        "#!/bin/sh\ncut -d ' ' -f 41 /proc/self/stat >> {}\ncat >> {}\n",
        policies.display(),
        orders.display()
    );
    let written = folder.path().join("written");
    std::fs::write(&written, text).unwrap();
    // By another process: a file that this one has open for writing, a command that it is just
    // starting has too, and then nobody can run it.
    let mut install = std::process::Command::new("install");
    assert!(install.args(["-m", "755"]).args([&written, &script]).status().unwrap().success());
    let mut config = site::config(&folder.path().join("book.db").display().to_string());
    config.drivers.insert("a-b".into(), DriverSpec::Command { program: script });
    let site = Site::start(config);
    let mut request = file("run 17");
    request.start = None;
    // Five seconds: a machine that stalls for less tells of both boundaries.
    request.file.as_mut().unwrap().bytes = 625_000_000;
    let made = site.client(ASTRO).book(&request, None).unwrap().bookings.remove(0);
    let lines = until(|| {
        let text = std::fs::read_to_string(&orders).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        (lines.len() == 3).then_some(lines)
    });
    assert_eq!((lines[0]["do"].as_str(), lines[0]["link"].as_str()), (Some("reset"), Some("a-b")));
    for (line, rate) in [(&lines[1], 1_000_000_000_u64), (&lines[2], 0)] {
        assert_eq!(
            (line["booking"].as_u64(), line["rate_bps"].as_u64()),
            (Some(made.id), Some(rate))
        );
        assert_eq!(line["label"], "run 17");
    }
    let finish = made.finish.as_nanosecond() as u64;
    assert_eq!(lines[1].get("due_nanos"), Some(&serde_json::Value::Null), "it began at once");
    assert_eq!(lines[1]["until_nanos"].as_u64(), Some(finish));
    assert_eq!(lines[2]["due_nanos"].as_u64(), Some(finish));
    // It is scheduled like anything that this machine runs (the 41st field, proc(5)).
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let own = longhaul_sys::processes::stat_field(&stat, 41).unwrap();
    let policies = std::fs::read_to_string(policies).unwrap();
    assert!(policies.lines().all(|policy| policy == own), "{policies}");
}

#[needs(postgresql)]
#[test]
fn two_nodes_share_a_database_and_one_leads() {
    let server = postgres::Server::start();
    let node = |name: &str| {
        let mut config = site::config(&server.url());
        (config.node, config.url) = (name.into(), format!("http://{name}.example"));
        // So long that a busy machine does not end it: it is ended when nobody renews it.
        config.store = Location::Postgres { url: server.url(), lease: Duration::from_secs(20) };
        Site::start(config)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect = || runtime.block_on(sqlx::PgConnection::connect(&server.url())).unwrap();
    let first = node("first");
    let second = node("second");
    let kept = file("kept");
    let made = first.client(ASTRO).book(&kept, Some("key")).unwrap();
    let refused = problem(second.client(ASTRO).book(&kept, Some("key")));
    assert_eq!((refused.status, refused.kind.as_str()), (503, "urn:longhaul:circuits:not-leader"));
    assert_eq!(refused.leader.as_deref(), Some("http://first.example"));
    let health = second.client(ASTRO).health().unwrap();
    assert!(health.standby && !health.ready, "{health:?}");
    assert_eq!(health.leader.as_deref(), Some("http://first.example"));
    let metrics = |site: &Site| {
        longhaul_pages::encode(
            &site.service.metrics().registry(&site.service.view(), &site.service.status()),
        )
    };
    let (leads, waits) = (metrics(&first), metrics(&second));
    for (text, expected) in [(&leads, "ready 1"), (&leads, "standby 0"), (&waits, "ready 0")] {
        assert!(text.contains(&format!("longhaul_circuits_{expected}\n")), "{text}");
    }
    assert!(waits.contains("longhaul_circuits_standby 1\n"), "{waits}");
    assert!(leads.contains("open_bookings 1\n") && leads.contains("link_booked_ratio{"));
    assert!(!waits.contains("open_bookings") && !waits.contains("link_booked_ratio"));
    // A leader with nothing to do goes on leading.
    let mut connection = connect();
    let mut lease = || -> String {
        let asked = sqlx::query_scalar("SELECT expires::text FROM leader");
        runtime.block_on(asked.fetch_one(&mut connection)).unwrap()
    };
    let before = lease();
    until(|| (lease() != before).then_some(()));
    assert!(first.client(ASTRO).health().unwrap().ready);
    drop(first);
    let again = until(|| second.client(ASTRO).book(&kept, Some("key")).ok());
    assert_eq!(again.bookings[0].id, made.bookings[0].id, "the new leader knows the key");

    // A database that takes no more writes, and then does.
    let read_only = |on: bool| {
        let mut connection = connect();
        runtime.block_on(async {
            let set = match on {
                true => "ALTER SYSTEM SET default_transaction_read_only = on",
                false => "ALTER SYSTEM RESET default_transaction_read_only",
            };
            sqlx::raw_sql(set).execute(&mut connection).await.unwrap();
            sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut connection).await.unwrap();
        });
    };
    read_only(true);
    let client = second.client(OPERATOR);
    let before = all(&client);
    let refused = until(|| second.client(ASTRO).book(&file("more"), None).err());
    let refused = problem::<()>(Err(refused));
    assert_eq!(refused.kind, "urn:longhaul:circuits:store-read-only", "{refused:?}");
    let after: Vec<Booking> =
        all(&client).into_iter().filter(|booking| booking.label != "more").collect();
    assert_eq!(after, before);
    read_only(false);
    until(|| second.client(ASTRO).book(&file("more"), None).ok());
    drop(second);
    let location = Location::Postgres { url: server.url(), lease: Duration::ZERO };
    let mut store = store::open(&location, "checker", "").unwrap();
    audit::verify(&store::read_all(store.as_mut()).unwrap(), None).unwrap();
}

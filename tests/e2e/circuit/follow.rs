//! How well a booking is followed, over an emulated circuit whose rate varies as it was booked.
//! Figures, not assertions: they are of use on a machine that does nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use longhaul_circuits::api::{BookRequest, HoldWant};
use longhaul_lab::{Conditions, LinkSpec, Node, RateChange, Testbed, TestbedOptions, Topology};
use longhaul_sys::clock::{self, WallTime};
use longhaul_units::{Bytes, Instant, Rate};
use serde_json::Value;

use super::client;
use crate::program::{PROGRAM, is_root};
use crate::test::{Test, limited};
use crate::trees::{assert_same, noise};

/// Megabits per second of the four ranges, and their length.
const RATES: [u64; 4] = [100, 400, 200, 800];
const RANGE: Duration = Duration::from_secs(2);
/// From the making of the testbed to the first range.
const LEAD: Duration = Duration::from_secs(5);
/// A little less than the four ranges carry.
const SIZE: usize = 340_000_000;

#[test]
#[ignore = "takes half a minute, and its figures need a machine that does nothing else"]
fn figures_of_a_circuit_whose_rate_varies() {
    if !is_root("make network namespaces") {
        return;
    }
    limited(|test| {
        fs::write(test.here("file"), noise(9, SIZE)).unwrap();
        println!(
            "| over | s after the first range began | used | sent | lost | of that late | over IP |"
        );
        println!("|---|---|---|---|---|---|---|");
        run(test, "VBTP", &["--circuit-to", "192.0.2.3"], "198.51.100.2");
        run(test, "fixed, mean rate", &["--profile", "fixed", "--rate", "375Mbps"], "192.0.2.3");
        run(test, "auto", &[], "192.0.2.3");
        run(test, "TCP", &["--carrier", "tcp"], "192.0.2.3");
    });
}

/// One copy; those without a circuit of their own begin with the first range.
fn run(test: &Test, name: &str, words: &[&str], to: &str) {
    let testbed = Testbed::new(&topology(), &TestbedOptions::default()).unwrap();
    let begin = testbed.began() + LEAD;
    let (host, peer) = testbed.ends();
    let _ = fs::remove_dir_all(test.path("there"));
    fs::create_dir(test.path("there")).unwrap();
    let start = |host, words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(words).current_dir(test.folder()).env("HOME", test.folder());
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        testbed.spawn(host, command).unwrap()
    };
    let mut server = start(peer, &["serve", "--root", "there", "--token-file", "token"]);
    let circuit = words.first() == Some(&"--circuit-to");
    let service = circuit.then(|| {
        let store = test.path("follow.db");
        for end in ["", "-shm", "-wal", ".lock"] {
            let _ = fs::remove_file(format!("{}{end}", store.display()));
        }
        fs::write(test.path("follow.toml"), config(&store, &test.path("token"))).unwrap();
        let service = start(host, &["circuits", "serve", "--config", "follow.toml"]);
        host.run(|| others(begin)).unwrap();
        service
    });
    let url = "http://127.0.0.1:7430/a/b";
    let at_service: &[&str] = if circuit { &["--circuit", url] } else { &[] };
    let destination = format!("lh://{to}/copy");
    let fixed = ["cp", "--json", "--token-file", "token", "here/file", &destination];
    if !circuit {
        clock::sleep_until(begin);
    }
    let started = clock::now();
    let copying = start(host, &[&fixed[..], words, at_service].concat());
    let done = copying.wait_with_output().unwrap();
    let json: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    assert_same(&test.here("file"), &test.there("copy"));
    let link = testbed.topology().link("circuit").unwrap();
    let counted = testbed.stats(link).unwrap().forward;
    let seconds = json["seconds"].as_f64().unwrap();
    let end = (started - begin).as_secs_f64() - (begin - started).as_secs_f64() + seconds;
    let used = json.get("circuit").map_or("-".to_owned(), |circuit| {
        let bytes = |field: &str| circuit[field].as_f64().unwrap();
        let late = circuit["left_seconds"].as_f64().unwrap()
            - circuit["planned_seconds"].as_f64().unwrap();
        format!(
            "{:.2} % of what the vector allowed; left {late:+.3} s after the planned end",
            bytes("sent_bytes") / bytes("allowed_bytes") * 100.0
        )
    });
    println!(
        "| {name} | {end:.2} | {used} | {} | {} | {} | {} |",
        counted.path.offered,
        counted.path.offered - counted.path.delivered,
        counted.queue_while_late,
        json["circuit"]["ip_bytes"]
    );
    let _ = server.kill();
    let _ = server.wait();
    if let Some(mut service) = service {
        let _ = service.kill();
        let _ = service.wait();
    }
    testbed.close().unwrap();
}

fn topology() -> Topology {
    let delay = Some(Duration::from_millis(25));
    let link = |name: &str, both| LinkSpec { name: name.into(), ..LinkSpec::between_hosts(both) };
    let changes = (1..).zip(&RATES[1..]).map(|(number, mbps)| RateChange {
        at: LEAD + RANGE * number,
        rate: Rate::from_mbps(*mbps),
    });
    let circuit = Conditions {
        delay,
        rate: Some(Rate::from_mbps(RATES[0])),
        queue: Some(Bytes::new(128 << 10)),
        rates: Some(changes.collect()),
        ..Conditions::default()
    };
    let ip = Conditions { delay, rate: Some(Rate::from_mbps(100)), ..Conditions::default() };
    Topology {
        name: "vbtp-follow".into(),
        about: String::new(),
        nodes: vec![Node::new("host"), Node::new("peer")],
        links: vec![link("ip", ip), link("circuit", circuit)],
    }
}

fn config(store: &Path, token: &Path) -> String {
    format!(
        "store = \"{}\"\n[rules]\nguard = \"1ms\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\ncapacity = \"800Mbps\"\n\
         [[project]]\nname = \"p\"\n[[access]]\ntoken_file = \"{}\"\nproject = \"p\"\nrole = \
         \"operator\"\n",
        store.display(),
        token.display()
    )
}

/// Bookings of others, which leave the four rates free. Ticks are not those of the emulated circuit,
/// which is up to a tick behind: the guard covers that.
fn others(begin: Instant) {
    let client = client_when_it_is_up();
    let now = WallTime::now().as_nanos() / 1_000_000;
    let begin_ms = now + (begin - clock::now()).as_millis() as u64;
    let hold = |from_ms: u64, to_ms: u64, mbps: u64| {
        let rate = mbps * 1_000_000;
        let want = HoldWant {
            // And a guard.
            duration_ms: to_ms - from_ms - 1,
            min_rate_bps: rate,
            max_rate_bps: rate,
            latest_start: None,
        };
        let start = Timestamp::from_millisecond(from_ms.cast_signed()).unwrap();
        let request = BookRequest {
            links: Some(vec!["l".into()]),
            hold: Some(want),
            start: Some(start),
            ..BookRequest::default()
        };
        client.book(&request, None).unwrap();
    };
    let most = RATES[3];
    let busy_from = now + 200;
    hold(busy_from, begin_ms, most);
    for (number, mbps) in (0..).zip(&RATES[..3]) {
        let from = begin_ms + number * RANGE.as_millis() as u64;
        hold(from, from + RANGE.as_millis() as u64, most - mbps);
    }
    clock::sleep_until(begin.before(LEAD / 2));
}

fn client_when_it_is_up() -> longhaul_circuits::client::Client {
    let client = client("http://127.0.0.1:7430");
    crate::test::until("the service", || client.health().ok().filter(|health| health.ready));
    client
}

//! Errors of system calls, one after the other, at each end of a push, a pull and a pipe: that what is
//! lost is as little as possible, and that the reason given is the reason. `calls.txt` lists the calls,
//! `manual.toml` their errors, and `table.txt` says what must come of each.
//!
//! A hundred are drawn, and those in `found.txt`, which once ended otherwise, are tried again. `LONGHAUL_ERRORS_SEED` and `LONGHAUL_ERRORS_COUNT` replay a draw, `LONGHAUL_ERRORS_CASE` one
//! case; `cargo xtask errors` sets `LONGHAUL_ERRORS_ALL`, to words that the cases must have.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod case;
mod check;
mod errno;
mod place;
mod scene;
mod table;
mod tree;
#[path = "../common/trees.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod trees;

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use longhaul_needs::needs;
use longhaul_sys::faults::{Attempt, Call, Verdict};

use case::{Case, Draw, Site};
use check::Result;
use place::Places;
use scene::{End, Kind, Scene};
use table::Table;

#[needs(supervision)]
#[test]
fn errors_of_system_calls_end_as_the_table_says() {
    if let Ok(text) = env::var("LONGHAUL_ERRORS_CASE") {
        return run(&[Case::parse(&text)]);
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // One draw, always the same, until `cargo xtask errors` has been through all cases.
    let seed = number("LONGHAUL_ERRORS_SEED").unwrap_or(1);
    let mut draw = Draw::new(seed);
    let mut cases = case::all(&mut draw);
    if let Ok(wanted) = env::var("LONGHAUL_ERRORS_ALL") {
        cases.retain(|case| has(case, &wanted));
    } else {
        let count = number("LONGHAUL_ERRORS_COUNT").unwrap_or(COUNT);
        eprintln!("replay: LONGHAUL_ERRORS_SEED={seed} LONGHAUL_ERRORS_COUNT={count}");
        let drawn = (0..count).map(|_| cases[draw.below(cases.len() as u64) as usize].clone());
        cases = drawn.collect();
    }
    run(&cases);
}

#[needs(supervision)]
#[test]
fn errors_that_once_ended_otherwise_end_as_the_table_says() {
    let cases: Vec<_> = include_str!("found.txt").lines().map(Case::parse).collect();
    run(&cases);
}

/// With all errors only, since it takes a while: a call that is new has its line, and so its errors.
#[needs(supervision)]
#[test]
fn every_call_for_a_file_or_socket_is_listed() {
    let listed = case::sites();
    let mut missing = Vec::new();
    for (kind, tcp, end) in scenes() {
        let made = record(kind, tcp, end);
        missing.extend(made.into_iter().filter(|(site, _)| !listed.contains_key(site)));
    }
    let lines: Vec<_> = missing.iter().map(|(site, count)| format!("{site} {count}")).collect();
    assert!(
        lines.is_empty(),
        "calls.txt lacks, with how often each is made:\n{}",
        lines.join("\n")
    );
}

fn run(cases: &[Case]) {
    let table = Table::read();
    let next = AtomicUsize::new(0);
    let (wrong, missed) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let work = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(case) = cases.get(number) else { return };
        if number > 0 && number.is_multiple_of(500) {
            eprintln!("{number} of {}", cases.len());
        }
        match check::run(case, &table) {
            Result::AsTheTableSays => {}
            Result::NotReached => {
                missed.fetch_add(1, Ordering::Relaxed);
            }
            Result::Wrong(what) => {
                eprintln!("LONGHAUL_ERRORS_CASE='{case}'\n{what}\n");
                wrong.lock().unwrap().push(case.to_string());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let (wrong, missed) = (wrong.into_inner().unwrap(), missed.into_inner());
    eprintln!("{} errors, {missed} of them in calls that were not made so often", cases.len());
    assert!(wrong.is_empty(), "{} are not as the table says:\n{}", wrong.len(), wrong.join("\n"));
    assert!(missed * 2 <= cases.len(), "most calls of calls.txt are not made so often any more");
}

/// True where a case has each of the words, or one of those with bars between.
fn has(case: &Case, wanted: &str) -> bool {
    let text = case.to_string();
    let words: Vec<&str> = text.split(' ').collect();
    wanted.split_whitespace().all(|one| one.split('|').any(|word| words.contains(&word)))
}

/// The calls that one process makes, and how often.
fn record(kind: Kind, tcp: bool, end: End) -> BTreeMap<Site, u64> {
    let scene = Scene::new(kind, tcp);
    let places = Places { folder: scene.folder().to_owned(), kind };
    let calls: Vec<Call> = Call::all().collect();
    let mut seen = BTreeMap::new();
    let mut decide = |attempt: &Attempt| {
        // Over TCP only its sockets are used otherwise.
        if let Some(place) = places.of(attempt).filter(|place| !tcp || *place == "tcp") {
            let (call, place) = (attempt.call.name, place.to_owned());
            *seen.entry(Site { kind, tcp, end, call, place }).or_default() += 1;
        }
        Verdict::Proceed
    };
    scene.run(end, &calls, &mut decide);
    seen
}

fn scenes() -> Vec<(Kind, bool, End)> {
    let mut all = Vec::new();
    for kind in [Kind::Push, Kind::Pull, Kind::Pipe] {
        for tcp in [false, true] {
            all.extend([(kind, tcp, End::Server), (kind, tcp, End::Client)]);
            if kind == Kind::Pipe {
                all.push((kind, tcp, End::Receiver));
            }
        }
    }
    all
}

const COUNT: u64 = 100;
/// Most of the time a process waits for another.
const THREADS: usize = 6;

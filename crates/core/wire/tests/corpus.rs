//! Replays what the fuzz targets have found worth keeping (`fuzz/corpus`).

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

#[path = "../../../../fuzz/src/wire.rs"]
mod checks;

use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> =
        std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() > 4, "the corpus of {target} is missing");
    inputs.sort();
    for input in inputs {
        println!("{}", input.display());
        check(&std::fs::read(input).unwrap());
    }
}

#[test]
fn header() {
    replay("header", checks::header);
}

#[test]
fn frames() {
    replay("frames", checks::frames);
}

#[test]
fn feedback() {
    replay("feedback", checks::feedback);
}

#[test]
fn messages() {
    replay("messages", checks::messages);
}

#[test]
fn records() {
    replay("records", checks::records);
}

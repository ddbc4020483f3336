//! Replays what the fuzz targets have found worth keeping (`fuzz/corpus`).

#[path = "../../../../fuzz/src/wire.rs"]
mod checks;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

use corpus::replay;

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

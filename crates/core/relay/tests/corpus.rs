//! Replays what the fuzz target has found worth keeping (`fuzz/corpus`).

#[path = "../../../../fuzz/src/relay.rs"]
mod checks;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

#[test]
fn relay() {
    corpus::replay("relay", checks::relay);
}

//! Replays what the fuzz targets have found worth keeping (`fuzz/corpus`).

#[path = "../../../../fuzz/src/session.rs"]
mod checks;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

use corpus::replay;

#[test]
fn handshake() {
    replay("handshake", checks::handshake);
}

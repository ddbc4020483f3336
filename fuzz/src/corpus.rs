//! For the tests of the crates: runs a target over what fuzzing has found worth keeping.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::path::Path;

/// Calls `check` with each input of a target's corpus.
pub fn replay(target: &str, check: fn(&[u8])) {
    // Of a crate of the main workspace.
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

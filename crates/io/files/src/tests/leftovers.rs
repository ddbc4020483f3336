//! Interrupted copies that are looked for.

use longhaul_sys::files::ConfinedDir;
use longhaul_units::Bytes;

use super::Scratch;
use crate::{Look, UnfinishedCopies};

#[test]
fn a_look_takes_no_more_memory_for_paths_than_it_may_and_says_so() {
    let scratch = Scratch::new();
    for number in 0..100 {
        scratch.directory(&format!("served/many/{number:0100}"));
    }
    scratch.file(&format!("served/.longhaul-{:032}/record", 1), "");
    let root = ConfinedDir::open_root(scratch.at("served")).unwrap();
    let all = |room| {
        let mut copies = UnfinishedCopies::below(&root).limit_names(room);
        std::iter::from_fn(|| copies.step()).collect::<Vec<_>>()
    };
    let found = |looks: &[Look]| looks.iter().filter(|it| matches!(it, Look::Copy(_))).count();
    let enough = all(Bytes::from_mib(1));
    assert_eq!(found(&enough), 1);
    assert!(!enough.iter().any(|it| matches!(it, Look::Failed(..))), "{enough:?}");
    let less = all(Bytes::new(2_000));
    assert_eq!(found(&less), 1);
    let failed = |it: &Look| matches!(it, Look::Failed(path, _) if path == b"many");
    assert!(less.iter().any(failed), "{less:?}");
}

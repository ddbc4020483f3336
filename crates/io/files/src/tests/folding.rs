//! Destinations that fold names. Hard links and bind mounts stand for one: two names, one thing.

use std::process::Command;

use longhaul_needs::needs;

use super::super::folding::{Folding, folds};
use super::*;

#[test]
fn folding_shows_in_the_record() {
    let scratch = Scratch::new();
    scratch.file("record", "record");
    let open = || std::fs::File::open(scratch.at("")).unwrap();
    assert!(!folds(open(), "record").unwrap());
    scratch.file("RECORD", "another's");
    assert!(!folds(open(), "record").unwrap());
    std::fs::remove_file(scratch.at("RECORD")).unwrap();
    std::fs::hard_link(scratch.at("record"), scratch.at("RECORD")).unwrap();
    assert!(folds(open(), "record").unwrap());
    scratch.file("from", "from");
    let copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
    assert!(copy.to.folding.is_none());
}

#[test]
fn of_two_files_with_one_name_the_second_is_refused() {
    let scratch = Scratch::new();
    for name in ["README", "LARGE", "other"] {
        let len = if name == "LARGE" { 2 << 20 } else { 10 };
        scratch.file(&format!("from/{name}"), bytes(len, 1));
        scratch.file(&format!("to/from/{name}"), "old");
    }
    std::os::unix::fs::symlink("other", scratch.at("from/LINK")).unwrap();
    let mut copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
    // These are as if this copy had put them there already.
    let mut folding = Folding::default();
    let to = std::fs::File::open(scratch.at("to/from")).unwrap();
    for (first, second) in [("readme", "README"), ("large", "LARGE"), ("link", "LINK")] {
        scratch.file(&format!("to/from/{first}"), first);
        let _ = std::fs::remove_file(scratch.at("to/from").join(second));
        std::fs::hard_link(scratch.at("to/from").join(first), scratch.at("to/from").join(second))
            .unwrap();
        folding.note(&to, first.as_bytes());
    }
    copy.to.folding = Some(Mutex::new(folding));
    copy.run();
    let mut failures = copy.failures();
    failures.sort();
    let expected = [("from/LARGE", "large"), ("from/LINK", "link"), ("from/README", "readme")];
    let expected = expected.map(|(second, first)| {
        let reason = format!(
            "cannot give it its name: the file system of the destination takes its name for that \
             of '{first}', which is copied too"
        );
        (second.to_string(), reason)
    });
    assert_eq!(failures, expected);
    for first in ["readme", "large", "link"] {
        assert_eq!(scratch.read(&format!("to/from/{first}")), first);
    }
    // What was there before is replaced, as everywhere, and has its name from then on.
    assert!(std::fs::read(scratch.at("to/from/other")).unwrap() == bytes(10, 1));
    let folding = copy.to.folding.as_ref().map(lock).expect("it was set");
    assert!(folding.check(&to, b"other").is_err());
    assert!(folding.check(&to, b"new").is_ok());
}

#[needs(mounts)]
#[test]
fn nothing_of_the_second_directory_gets_into_the_first() {
    let scratch = Scratch::new();
    for (name, seed) in [("Docs", 1), ("docs", 2)] {
        scratch.file(&format!("from/{name}/same"), bytes(50_000, seed));
        scratch.file(&format!("from/{name}/only {name}"), bytes(2 << 20, seed));
        scratch.file(&format!("from/{name}/sub/deep"), bytes(10, seed));
    }
    let first = scratch.directory("to/from/Docs");
    let second = scratch.directory("to/from/docs");
    let bound = Command::new("mount").arg("--bind").args([&first, &second]).status();
    assert!(bound.unwrap().success());
    let mut copy = Copy::new(SourceTree::local(&[scratch.at("from")], false), &scratch.at("to"));
    copy.to.folding = Some(Mutex::default());
    copy.run();
    let failures = copy.failures();
    drop(copy);
    let there = snapshot(&first);
    let unmounted = Command::new("umount").arg(&second).status();
    assert!(unmounted.unwrap().success());
    let kept = if there.contains_key(&b"only Docs"[..]) { "Docs" } else { "docs" };
    let lost = if kept == "Docs" { "docs" } else { "Docs" };
    let contents = |tree: &BTreeMap<Vec<u8>, (u32, i64, i64, Vec<u8>)>| {
        tree.iter().map(|(path, about)| (path.clone(), about.3.clone())).collect::<BTreeMap<_, _>>()
    };
    assert!(contents(&there) == contents(&snapshot(&scratch.at("from").join(kept))));
    // The directory, what is in it, and the directory below that.
    assert_eq!(failures.len(), 5, "{failures:?}");
    assert!(failures.iter().all(|(path, _)| path.starts_with(&format!("from/{lost}"))));
    let (_, reason) =
        failures.iter().find(|(path, _)| *path == format!("from/{lost}")).expect("it is reported");
    assert!(reason.contains("takes its name for that of"), "{reason}");
}

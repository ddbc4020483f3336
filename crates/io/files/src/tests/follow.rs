//! Links are copied as what they point at, and none leads out of what is served.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use longhaul_sys::files::ConfinedDir;
use longhaul_wire::KeptAttributes;

use super::*;

/// Files and directories, and links of all kinds to them.
fn tree(scratch: &Scratch) -> PathBuf {
    scratch.file("outside/secret", "secret");
    scratch.file("served/beside/file", "beside");
    scratch.file("served/tree/file", "file");
    scratch.file("served/tree/large", bytes(1_500_000, 1));
    scratch.file("served/tree/sub/in", "in");
    for (name, target) in [
        ("to file", "file"),
        ("to large", "large"),
        ("to sub", "sub"),
        ("to link", "to sub/in"),
        ("to beside", "../beside"),
        ("sub/to file", "../file"),
        ("nowhere", "none"),
        ("itself", "itself"),
        ("sub/up", ".."),
        ("out", "../../outside/secret"),
        ("out directory", "../../outside"),
    ] {
        symlink(target, scratch.at("served/tree").join(name)).unwrap();
    }
    scratch.at("served/tree")
}

fn check(scratch: &Scratch, tree: SourceTree, leads_out: bool) {
    let copy = Copy::new(tree.keeping(KeptAttributes::FOLLOW, true), &scratch.directory("to"));
    copy.run();
    let failures = copy.failures();
    for (path, word) in [("tree/nowhere", "leads nowhere"), ("tree/itself", "leads back")] {
        assert!(failures.iter().any(|it| it.0 == path && it.1.contains(word)), "{failures:?}");
    }
    // Of a directory that holds it there is no copy in it, by no other name either.
    let back = ["tree/sub/up", "tree/to sub/up"];
    for path in back {
        assert!(failures.iter().any(|it| it.0 == path && it.1.contains("back")), "{failures:?}");
    }
    let contents = |path: &str| std::fs::read(scratch.at("to/tree").join(path)).ok();
    for (path, expected) in [
        ("to file", &b"file"[..]),
        ("to large", &bytes(1_500_000, 1)),
        ("to sub/in", b"in"),
        ("to sub/to file", b"file"),
        ("to link", b"in"),
        ("to beside/file", b"beside"),
        ("sub/to file", b"file"),
    ] {
        assert!(contents(path).as_deref() == Some(expected), "{path}");
    }
    assert!(!scratch.at("to/tree/to file").is_symlink());
    let out = [contents("out"), contents("out directory/secret")];
    match leads_out {
        true => assert_eq!(out, [Some(b"secret".to_vec()), Some(b"secret".to_vec())]),
        false => {
            assert_eq!(out, [None, None]);
            for path in ["tree/out", "tree/out directory"] {
                assert!(failures.iter().any(|it| it.0 == path), "{failures:?}");
            }
        }
    }
    assert_eq!(failures.len(), if leads_out { 4 } else { 6 }, "{failures:?}");
}

#[test]
fn links_are_followed_wherever_they_lead_at_the_users_own_host() {
    let scratch = Scratch::new();
    let tree = tree(&scratch);
    check(&scratch, SourceTree::local(&[tree], false), true);
}

#[test]
fn links_are_followed_within_what_is_served_and_not_out_of_it() {
    let scratch = Scratch::new();
    tree(&scratch);
    let root = Arc::new(ConfinedDir::open_root(scratch.at("served")).unwrap());
    check(&scratch, SourceTree::below(root, &[b"tree".to_vec()], false), false);
}

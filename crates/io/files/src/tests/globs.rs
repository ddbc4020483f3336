//! Patterns in sources below what is served.

use std::os::unix::fs::symlink;

use longhaul_sys::files::ConfinedDir;
use longhaul_units::Bytes;

use super::*;
use crate::expand_sources;
use crate::glob::expand;

fn expanded(root: &ConfinedDir, path: &str) -> Vec<String> {
    let found = expand(root, path.as_bytes(), Bytes::from_mib(1)).unwrap();
    found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn patterns_match_names_in_each_directory_and_what_is_there_as_written_is_that() {
    let scratch = Scratch::new();
    for path in ["run-1/a1", "run-2/a1", "run-2/a2", "run-2/.a3", "run-10/b", "[x]/a", "x/a"] {
        scratch.file(&format!("served/{path}"), "contents");
    }
    scratch.file("outside/host1", "secret");
    scratch.directory(&format!("served/run-2/.longhaul-{:032}", 1));
    symlink("../outside", scratch.at("served/run-3")).unwrap();
    let root = ConfinedDir::open_root(scratch.at("served")).unwrap();
    assert_eq!(expanded(&root, "run-?/a?"), ["run-1/a1", "run-2/a1", "run-2/a2"]);
    assert_eq!(expanded(&root, "/run-*/b"), ["run-10/b"]);
    assert_eq!(expanded(&root, "run-2/.a*"), ["run-2/.a3"]);
    assert_eq!(expanded(&root, "run-2/.*"), ["run-2/.a3"]);
    assert_eq!(expanded(&root, "[x]/*"), ["[x]/a"]);
    assert_eq!(expanded(&root, "[xy]/*"), ["x/a"]);
    symlink("nowhere", scratch.at("served/x/dangling")).unwrap();
    assert_eq!(expanded(&root, "x/*"), ["x/a", "x/dangling"]);
    assert_eq!(expanded(&root, "[xy]/dangling"), ["x/dangling"]);
    // Nothing matches, also not through a link that leads out.
    for none in ["run-3/host*", "none*", "run-1/a1/*", "../*", "run-*/../../out*"] {
        assert_eq!(expanded(&root, none), [none]);
    }
    assert!(expand(&root, b"run-[z-a]", Bytes::from_mib(1)).is_err());
    assert!(expand(&root, b"run-*", Bytes::new(40)).is_err());
    let sources = |copy_contents| {
        let sources = ["run-[12]".into(), "run-?/a1".into()];
        expand_sources(&root, &sources, copy_contents, Bytes::from_mib(1))
    };
    assert!(sources(false).unwrap_err().reason.starts_with("run-1/a1 and run-2/a1 have one name"));
    assert_eq!(sources(true).unwrap().len(), 4);
}

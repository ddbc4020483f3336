//! Listings of what is served.

use std::os::unix::fs::symlink;

use longhaul_sys::files::ConfinedDir;
use longhaul_units::Bytes;
use longhaul_wire::ListedKind;

use super::*;
use crate::identify::is_hidden_name;
use crate::listing::{Found, Listing};

const MEMORY: Bytes = Bytes::from_mib(1);

/// Lists `path`, sorted: `name`, `name/`, `name -> target` or `name?`, and `name: reason`.
fn list(scratch: &Scratch, path: &str, recursive: bool) -> Result<Vec<String>, String> {
    list_within(scratch, path, recursive, MEMORY)
}

fn list_within(
    scratch: &Scratch,
    path: &str,
    recursive: bool,
    memory: Bytes,
) -> Result<Vec<String>, String> {
    let root = ConfinedDir::open_root(scratch.at("served")).unwrap().without(is_hidden_name);
    let listing =
        Listing::open(&root, path.as_bytes(), recursive, memory).map_err(|end| end.reason)?;
    let mut found: Vec<String> = listing
        .map(|found| match found {
            Found::There(listed) => match listed.kind {
                ListedKind::File => format!("{} {}", listed.path, listed.size),
                ListedKind::Directory => format!("{}/", listed.path),
                ListedKind::Link { target } => {
                    format!("{} -> {}", listed.path, target.escape_ascii())
                }
                ListedKind::Other => format!("{}?", listed.path),
            },
            Found::Unlisted { path, end } => format!("{}: {end}", path.escape_ascii()),
        })
        .collect();
    found.sort();
    Ok(found)
}

fn served() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("outside/secret", "secret");
    scratch.file("served/tree/sub/leaf", "leaf");
    scratch.file("served/tree/file", "a file");
    scratch.directory("served/empty");
    symlink("../../outside", scratch.at("served/tree/out")).unwrap();
    symlink("tree/sub", scratch.at("served/in")).unwrap();
    scratch
}

#[test]
fn what_is_in_a_directory_is_listed_and_what_is_below_it_where_that_is_wanted() {
    let scratch = served();
    let all = ["empty/", "in -> tree/sub", "tree/"];
    assert_eq!(list(&scratch, "", false).unwrap(), all);
    assert_eq!(list(&scratch, ".", false).unwrap(), all);
    let below = ["file 6", "out -> ../../outside", "sub/", "sub/leaf 4"];
    assert_eq!(list(&scratch, "tree", true).unwrap(), below);
    assert_eq!(list(&scratch, "empty", true).unwrap(), [""; 0]);
    assert_eq!(list(&scratch, "tree/file", true).unwrap(), [" 6"]);
    // As a source of a copy, the path itself goes through links.
    assert_eq!(list(&scratch, "in", false).unwrap(), ["leaf 4"]);
}

#[test]
fn nothing_outside_or_of_an_unfinished_copy_is_listed() {
    let scratch = served();
    let escapes = "the path leads out of the directory";
    for path in ["tree/out", "..", "tree/../../outside", "/etc"] {
        assert_eq!(list(&scratch, path, false).unwrap_err(), escapes, "{path}");
    }
    assert_eq!(list(&scratch, "none", true).unwrap_err(), "no such file or directory");
    let hidden = format!(".longhaul-{}", "0".repeat(32));
    assert!(is_hidden_name(hidden.as_bytes()));
    scratch.file(&format!("served/{hidden}/contents"), "not whole");
    assert_eq!(list(&scratch, "", false).unwrap(), ["empty/", "in -> tree/sub", "tree/"]);
    assert_eq!(list(&scratch, &hidden, false).unwrap_err(), escapes);
}

#[test]
fn directories_beyond_the_memory_for_names_are_reported() {
    let scratch = served();
    for number in 0..40 {
        scratch.directory(&format!("served/many/{}{number}", "n".repeat(200)));
    }
    let found = list_within(&scratch, "many", true, Bytes::new(2_000)).unwrap();
    assert_eq!(found.len(), 40);
    let reported = found.iter().filter(|line| line.contains("no memory left")).count();
    assert!((30..40).contains(&reported), "{reported}");
}

//! New directories, filled out of sight.

use std::fs::Permissions;
use std::os::unix::fs::symlink;

use longhaul_needs::needs;

use super::*;

/// A tree of small files in directories within each other.
fn small_files(scratch: &Scratch) -> PathBuf {
    for number in 0..120 {
        scratch.file(&format!("from/f{number}"), bytes(10_000, number));
        scratch.file(&format!("from/sub/f{number}"), bytes(10_000, number + 1));
        scratch.file(&format!("from/sub/deep/f{number}"), bytes(10_000, number + 2));
    }
    scratch.directory("from/nothing in it");
    scratch.file("from/empty/empty", "");
    symlink("nowhere", scratch.at("from/sub/link")).unwrap();
    std::fs::set_permissions(scratch.at("from/sub"), Permissions::from_mode(0o550)).unwrap();
    scratch.at("from")
}

fn tree(from: &Path) -> SourceTree {
    SourceTree::local(&[from.to_path_buf()], false)
}

/// The transfer's own directory.
fn hidden(scratch: &Scratch) -> PathBuf {
    let name = identify::hidden_name(&transfer_id(&[b"test"], b"", true), 0);
    scratch.at(std::str::from_utf8(&name).unwrap())
}

fn received_some(sink: &Sink) -> bool {
    sink.stats().received_bytes > 1 << 20
}

#[test]
fn a_new_directory_is_seen_when_it_holds_its_files() {
    let scratch = Scratch::new();
    let from = small_files(&scratch);
    let copy = Copy::new(tree(&from), &scratch.at("to"));
    copy.run_until(received_some);
    assert!(!scratch.at("to").exists());
    copy.run_until(|_| scratch.at("to").exists());
    assert!(scratch.names("to").len() >= 119, "a few come in two pieces");
    copy.run();
    assert_eq!(copy.failures(), []);
    drop(copy);
    assert_eq!(snapshot(&from), snapshot(&scratch.at("to")));
    assert_eq!(scratch.names(""), ["from", "to"]);
}

#[test]
fn a_directory_that_appears_meanwhile_keeps_what_is_in_it() {
    let scratch = Scratch::new();
    let from = small_files(&scratch);
    let copy = Copy::new(tree(&from), &scratch.at("to"));
    copy.run_until(received_some);
    scratch.file("to/other", "other");
    scratch.file("to/f7", "in the way of a file");
    std::fs::set_permissions(scratch.at("to"), Permissions::from_mode(0o771)).unwrap();
    scratch.file("to/sub/deep/other", "other");
    copy.run();
    assert_eq!(copy.failures(), []);
    drop(copy);
    assert_eq!(std::fs::metadata(scratch.at("to")).unwrap().mode() & 0o7777, 0o771);
    for path in ["to/other", "to/sub/deep/other"] {
        assert_eq!(scratch.read(path), "other");
        std::fs::remove_file(scratch.at(path)).unwrap();
    }
    let (from, to) = (snapshot(&from), snapshot(&scratch.at("to")));
    assert!(from.keys().eq(to.keys()));
    assert!(from.iter().all(|(path, about)| about.3 == to[path].3));
    assert_eq!(scratch.names(""), ["from", "to"]);
}

#[test]
fn an_obstacle_to_a_new_directory_is_reported_and_not_followed() {
    for is_link in [false, true] {
        let scratch = Scratch::new();
        let from = small_files(&scratch);
        scratch.directory("elsewhere");
        let copy = Copy::new(tree(&from), &scratch.at("to"));
        copy.run_until(received_some);
        if is_link {
            symlink(scratch.at("elsewhere"), scratch.at("to")).unwrap();
        } else {
            scratch.file("to", "somebody else's");
        }
        copy.run();
        let failures = copy.failures();
        assert!(failures.iter().any(|(path, _)| path == "from/f1"), "{failures:?}");
        assert!(failures.iter().any(|(path, _)| path == "from/sub/deep/f1"), "{failures:?}");
        let reason = if is_link { "link" } else { "no directory is where its directory should be" };
        assert!(failures.iter().any(|(_, text)| text.contains(reason)), "{failures:?}");
        assert_eq!(copy.confirmed(), 0);
        assert_eq!(scratch.names("elsewhere"), [""; 0]);
        if !is_link {
            assert_eq!(scratch.read("to"), "somebody else's");
        }
        drop(copy);
        // Out of the way, the same copy succeeds.
        std::fs::remove_file(scratch.at("to")).unwrap();
        super::copy(&from, &scratch.at("to"));
        assert_eq!(snapshot(&from), snapshot(&scratch.at("to")));
        assert_eq!(scratch.names(""), ["elsewhere", "from", "to"]);
    }
}

#[test]
fn whole_files_in_a_directory_that_never_appeared_are_not_copied_again() {
    let scratch = Scratch::new();
    for number in 0..900 {
        scratch.file(&format!("from/f{number}"), bytes(10_000, number));
    }
    let from = scratch.at("from");
    let first = Copy::new(tree(&from), &scratch.at("to"));
    for _ in 0..3 {
        first.wait();
        let before = lock(&first.sink).stats().received_bytes;
        first.run_until(|sink| sink.stats().received_bytes > before + (2 << 20));
    }
    drop(first);
    assert!(!scratch.at("to").exists());

    // One is changed, one is gone, and something half-written lies among the rest.
    let left = std::fs::read_dir(hidden(&scratch)).unwrap().map(|entry| entry.unwrap().path());
    let left = left.filter(|path| path.is_dir()).collect::<Vec<_>>();
    let [left] = &left[..] else { panic!("{left:?}") };
    let whole: Vec<_> = std::fs::read_dir(left).unwrap().map(|name| name.unwrap()).collect();
    assert!(whole.len() > 300, "{}", whole.len());
    scratch.file(&format!("from/{}", whole[0].file_name().display()), "changed");
    std::fs::remove_file(from.join(whole[1].file_name())).unwrap();
    std::fs::write(left.join("half"), "hal").unwrap();

    let second = Copy::new(tree(&from), &scratch.at("to"));
    second.run();
    assert_eq!(second.failures(), []);
    assert!(second.resumed() >= 3_000_000, "{}", second.resumed());
    drop(second);
    assert_eq!(snapshot(&from), snapshot(&scratch.at("to")));
    assert_eq!(scratch.names(""), ["from", "to"]);
}

#[test]
fn a_directory_that_was_recorded_and_removed_is_copied_again() {
    let scratch = Scratch::new();
    let from = small_files(&scratch);
    let first = Copy::new(tree(&from), &scratch.at("to"));
    first.run_until(|_| scratch.at("to").exists());
    first.wait();
    first.run_until(|sink| sink.stats().confirmed > 100);
    drop(first);
    std::fs::remove_dir_all(scratch.at("to")).unwrap();
    copy(&from, &scratch.at("to"));
    assert_eq!(snapshot(&from), snapshot(&scratch.at("to")));
    assert_eq!(scratch.names(""), ["from", "to"]);
}

#[test]
fn small_files_that_came_to_nothing_leave_nothing() {
    let scratch = Scratch::new();
    let from = small_files(&scratch);
    let copy = Copy::new(tree(&from), &scratch.at("to"));
    copy.run_until(|sink| sink.stats().received_bytes > 0);
    assert!(hidden(&scratch).is_dir());
    drop(copy);
    assert_eq!(scratch.names(""), ["from"]);
}

#[needs(root)]
#[test]
fn a_new_directory_in_one_that_was_there_has_its_group() {
    let scratch = Scratch::new();
    scratch.file("from/shared/new/f", "f");
    let shared = scratch.directory("to/from/shared");
    std::os::unix::fs::chown(&shared, None, Some(NOBODY)).unwrap();
    std::fs::set_permissions(&shared, Permissions::from_mode(0o2775)).unwrap();
    copy(&scratch.at("from"), &scratch.at("to"));
    let metadata = std::fs::metadata(shared.join("new")).unwrap();
    assert_eq!((metadata.gid(), metadata.mode() & 0o2000), (NOBODY, 0o2000));
}

//! Places: the habits of `cp`, confinement, and links.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use longhaul_sys::files::ConfinedDir;
use rustix::fs::{AtFlags, unlinkat};

use super::*;
use crate::hidden::{RECORD, leave_hidden, remove_hidden};
use crate::sink::sync::tests::take_synced;

/// Copies `sources` to `to`, a path in the scratch directory with a slash behind it or not.
fn cp(scratch: &Scratch, sources: &[&str], to: &str) -> Result<Vec<(String, String)>, String> {
    let sources: Vec<PathBuf> = sources.iter().map(|path| scratch.at(path)).collect();
    let tree = SourceTree::local(&sources, false);
    let to = scratch.at(to);
    let copy = Copy::with(tree, Destination::Local(&to), sources.len() > 1);
    let copy = copy.map_err(|error| error.to_string())?;
    copy.run();
    Ok(copy.failures())
}

fn prepared() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("file", "file");
    scratch.file("tree/sub/leaf", "leaf");
    scratch.file("old", "old");
    scratch.directory("there");
    scratch
}

#[test]
fn a_file_goes_where_cp_puts_it() {
    for (to, at) in [
        ("new", "new"),
        ("old", "old"),
        ("there", "there/file"),
        ("there/", "there/file"),
        ("there/.", "there/file"),
        ("there/new", "there/new"),
        ("fresh/", "fresh/file"),
        ("fresh/deep/", "fresh/deep/file"),
    ] {
        let scratch = prepared();
        assert_eq!(cp(&scratch, &["file"], to), Ok(vec![]), "{to}");
        assert_eq!(scratch.read(at), "file", "{to}");
    }
    let scratch = prepared();
    let error = cp(&scratch, &["file"], "missing/new").unwrap_err();
    assert!(error.ends_with("/missing: no such directory"), "{error}");
    let error = cp(&scratch, &["file"], "old/new").unwrap_err();
    assert!(error.ends_with("/old: is not a directory"), "{error}");
    let error = cp(&scratch, &["file"], "old/").unwrap_err();
    assert!(error.ends_with("/old/: is not a directory"), "{error}");
    symlink("loop", scratch.at("loop")).unwrap();
    for (to, words) in [
        ("loop/", "cannot open it: it is a link that leads back to itself, or too many in a row"),
        (&"x".repeat(300), "the name is too long for the file system of the destination"),
    ] {
        let error = cp(&scratch, &["file"], to).unwrap_err();
        assert!(error.ends_with(words), "{error}");
    }
    std::fs::remove_file(scratch.at("loop")).unwrap();
    assert_eq!(scratch.names(""), ["file", "old", "there", "tree"]);
}

#[test]
fn a_tree_goes_where_cp_puts_it() {
    for (from, to, at) in [
        ("tree", "new", "new"),
        ("tree/", "new", "new"),
        ("tree", "there", "there/tree"),
        ("tree/", "there/", "there/tree"),
        ("tree", "fresh/", "fresh/tree"),
        ("tree/.", "there", "there"),
        ("tree/.", "new", "new"),
        ("tree/.", "fresh/", "fresh"),
        ("tree/sub/..", "there", "there"),
    ] {
        let scratch = prepared();
        assert_eq!(cp(&scratch, &[from], to), Ok(vec![]), "{from} {to}");
        assert_eq!(scratch.read(&format!("{at}/sub/leaf")), "leaf", "{from} {to}");
    }
    let scratch = prepared();
    let failures = cp(&scratch, &["tree"], "old").unwrap();
    assert_eq!(
        failures[0],
        ("tree".into(), "a file of that name is in the way at the destination".into())
    );
    assert_eq!(scratch.read("old"), "old");
    scratch.directory("there/file/sub");
    let failures = cp(&scratch, &["file"], "there").unwrap();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].1.ends_with("a directory of that name is in the way"), "{failures:?}");
}

#[test]
fn a_file_that_is_called_like_a_stand_in_keeps_no_tree_from_being_copied() {
    let scratch = prepared();
    scratch.file("one/(not copied 1)", "mine");
    scratch.file("one/file", "file");
    scratch.file("two/file", "another");
    let failures = cp(&scratch, &["one/.", "two/."], "both").unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(scratch.read("both/(not copied 1)"), "mine");
    assert_eq!(scratch.read("both/file"), "file");
}

#[test]
fn several_sources_go_into_a_directory() {
    let scratch = prepared();
    let sources = ["file", "tree", "missing", "there/../file"];
    let failures = cp(&scratch, &sources, "there").unwrap();
    assert_eq!(failures[0], ("missing".into(), "no such file or directory on this host".into()));
    let [_, (stand_in, reason)] = &failures[..] else { panic!("{failures:?}") };
    assert!(stand_in.starts_with("file (not copied 1, "), "{stand_in}");
    assert_eq!(reason, "another source has the same name");
    assert_eq!(scratch.read("there/file"), "file");
    assert_eq!(scratch.read("there/tree/sub/leaf"), "leaf");
    // Contents of several, which may not overlap.
    scratch.file("other/sub", "other");
    scratch.file("other/one", "one");
    let failures = cp(&scratch, &["tree/.", "other/."], "both").unwrap();
    let [(stand_in, reason)] = &failures[..] else { panic!("{failures:?}") };
    assert!(stand_in.starts_with("sub (not copied 1, "), "{stand_in}");
    assert_eq!(reason, "another source holds the same name");
    assert_eq!(scratch.read("both/one"), "one");
    assert_eq!(scratch.read("both/sub/leaf"), "leaf");
}

#[test]
fn contents_are_copied_behind_what_failed_and_behind_files() {
    let scratch = prepared();
    scratch.file("tree/top", "top");
    scratch.file("not a directory", "");
    let sources = ["missing/.", "not a directory/.", "file", "tree/."];
    let failures = cp(&scratch, &sources, "there").unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(scratch.read("there/file"), "file");
    assert_eq!(scratch.read("there/top"), "top");
    assert_eq!(scratch.read("there/sub/leaf"), "leaf");
}

#[test]
fn sources_are_followed_and_links_in_them_are_not() {
    let scratch = prepared();
    symlink("tree", scratch.at("to tree")).unwrap();
    symlink("sub", scratch.at("tree/to sub")).unwrap();
    assert_eq!(cp(&scratch, &["to tree"], "new"), Ok(vec![]));
    assert_eq!(scratch.read("new/sub/leaf"), "leaf");
    assert_eq!(std::fs::read_link(scratch.at("new/to sub")).unwrap(), Path::new("sub"));
}

#[test]
fn a_served_tree_is_left_by_no_path() {
    let scratch = prepared();
    scratch.file("secret", "secret");
    let served = scratch.directory("served");
    scratch.file("served/in/data", "data");
    symlink("../secret", scratch.at("served/out")).unwrap();
    symlink("in", scratch.at("served/again")).unwrap();
    let root = Arc::new(ConfinedDir::open_root(&served).unwrap());
    let pull = |paths: &[&str], to: &str| {
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let tree = SourceTree::below(Arc::clone(&root), &paths, false);
        let copy = Copy::with(tree, Destination::Local(&scratch.at(to)), true).unwrap();
        copy.run();
        copy.failures()
    };
    for path in ["../secret", "out", "in/../../secret"] {
        let failures = pull(&[path], "there");
        assert_eq!(failures.len(), 1, "{path}");
        assert!(failures[0].1.contains("leads out"), "{failures:?}");
    }
    let absolute = scratch.at("secret");
    assert_eq!(pull(&[absolute.to_str().unwrap()], "there").len(), 1);
    assert_eq!(pull(&["in", "again", "missing"], "there").len(), 1);
    assert_eq!(scratch.read("there/in/data"), "data");
    assert_eq!(scratch.read("there/again/data"), "data");
    // All that is served: the link comes as a link.
    assert_eq!(pull(&[""], "all"), []);
    assert_eq!(std::fs::read_link(scratch.at("all/out")).unwrap(), Path::new("../secret"));
    assert!(!scratch.names("all").contains(&"secret".to_string()));
}

#[test]
fn a_served_destination_is_left_by_no_path() {
    let scratch = prepared();
    let served = scratch.directory("served");
    scratch.directory("served/in");
    symlink("../there", scratch.at("served/out")).unwrap();
    symlink("in", scratch.at("served/again")).unwrap();
    let root = ConfinedDir::open_root(&served).unwrap();
    let push = |path: &str, is_directory| {
        let tree = SourceTree::local(&[scratch.at("file")], false);
        let to = Destination::Below { root: &root, path: path.as_bytes() };
        Copy::with(tree, to, is_directory).map(|copy| {
            copy.run();
            copy.failures()
        })
    };
    for path in ["../there", "out", "out/new", "in/../../there", "/tmp"] {
        for is_directory in [false, true] {
            let result = push(path, is_directory);
            assert!(matches!(result, Err(DestinationError::Escapes { .. })), "{path} {result:?}");
        }
    }
    assert_eq!(scratch.names("there"), [""; 0]);
    assert_eq!(push("", false).unwrap(), []);
    assert_eq!(push("again", false).unwrap(), []);
    assert_eq!(push("made/here/", false).unwrap(), []);
    assert_eq!(push("in/renamed", false).unwrap(), []);
    for path in ["file", "in/file", "made/here/file", "in/renamed"] {
        assert_eq!(scratch.read(&format!("served/{path}")), "file", "{path}");
    }
}

#[test]
fn no_link_at_the_destination_is_followed() {
    let scratch = prepared();
    let elsewhere = scratch.directory("elsewhere");
    scratch.directory("there/tree");
    symlink(&elsewhere, scratch.at("there/tree/sub")).unwrap();
    let failures = cp(&scratch, &["tree"], "there").unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert!(failures.iter().any(|(path, _)| path == "tree/sub"), "{failures:?}");
    assert!(failures.iter().all(|(_, reason)| reason.contains("are not followed")));
    assert_eq!(scratch.names("elsewhere"), [""; 0]);
    // In the place of a file it is replaced.
    symlink(scratch.at("old"), scratch.at("there/file")).unwrap();
    assert_eq!(cp(&scratch, &["file"], "there"), Ok(vec![]));
    assert_eq!(scratch.read("old"), "old");
    assert!(std::fs::symlink_metadata(scratch.at("there/file")).unwrap().is_file());
}

#[test]
fn a_link_planted_while_files_arrive_is_not_followed() {
    let scratch = prepared();
    scratch.directory("elsewhere");
    scratch.directory("new/tree/sub");
    let copy = Copy::new(SourceTree::local(&[scratch.at("tree")], false), &scratch.at("new"));
    copy.run_until(|sink| sink.stats().received_bytes > 0);
    std::fs::rename(scratch.at("new/tree/sub"), scratch.at("moved")).unwrap();
    symlink(scratch.at("elsewhere"), scratch.at("new/tree/sub")).unwrap();
    copy.run();
    let failures = copy.failures();
    assert!(failures.iter().any(|(path, _)| path == "tree/sub/leaf"), "{failures:?}");
    assert_eq!(scratch.names("elsewhere"), [""; 0]);
    assert_eq!(scratch.names("moved"), [""; 0]);
}

#[test]
fn devices_fifos_and_sockets_are_never_replaced() {
    let scratch = prepared();
    scratch.file("tree/large", vec![7; 2 << 20]);
    symlink("leaf", scratch.at("tree/link")).unwrap();
    let special = |path: &str| {
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, scratch.at(path), kind, mode, 0).unwrap();
    };
    let is_file = |path: &str| std::fs::symlink_metadata(scratch.at(path)).unwrap().is_file();
    // As the destination, here and at a server, also through a link.
    special("there/fifo");
    std::os::unix::net::UnixListener::bind(scratch.at("there/socket")).unwrap();
    symlink("fifo", scratch.at("there/to fifo")).unwrap();
    for to in ["there/fifo", "there/socket", "there/to fifo"] {
        let error = cp(&scratch, &["file"], to).unwrap_err();
        assert!(error.contains("never replaced"), "{error}");
        let root = ConfinedDir::open_root(&scratch.path).unwrap();
        let tree = SourceTree::local(&[scratch.at("file")], false);
        let below = Destination::Below { root: &root, path: to.as_bytes() };
        let error = Copy::with(tree, below, false).err();
        assert!(matches!(error, Some(DestinationError::Special { .. })), "{error:?}");
        assert!(!is_file(to));
    }
    // What the system has open leads to an ordinary file at times, as `/dev/stdout` does.
    let open = std::fs::File::open(scratch.at("file")).unwrap();
    let open = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    symlink(&open, scratch.at("there/stdout")).unwrap();
    let error = cp(&scratch, &["tree/sub/leaf"], "there/stdout").unwrap_err();
    assert!(error.contains("never replaced"), "{error}");
    assert_eq!(scratch.names("there"), ["fifo", "socket", "stdout", "to fifo"]);
    std::fs::remove_file(scratch.at("there/stdout")).unwrap();
    // In a directory, and in a tree.
    special("there/file");
    scratch.directory("there/tree/sub");
    for path in ["there/tree/sub/leaf", "there/tree/large", "there/tree/link"] {
        special(path);
    }
    let failures = cp(&scratch, &["file", "tree"], "there").unwrap();
    assert_eq!(failures.len(), 4, "{failures:?}");
    for (path, reason) in failures {
        assert!(reason.contains("a FIFO of that name is in the way"), "{path}: {reason}");
        assert!(!is_file(&format!("there/{path}")));
    }
}

#[test]
fn the_hidden_directory_of_another_transfer_is_neither_read_nor_written() {
    let scratch = prepared();
    let hidden = ".longhaul-00112233445566778899aabbccddeeff";
    for top in ["served", "served/deep"] {
        scratch.file(&format!("{top}/{hidden}/record"), "theirs");
        symlink(hidden, scratch.at(top).join("link")).unwrap();
        symlink("link", scratch.at(top).join("link to link")).unwrap();
    }
    scratch.file("served/plain/f", "f");
    symlink("deep/../plain", scratch.at("served/fine")).unwrap();
    let root = ConfinedDir::open_root(scratch.at("served")).unwrap();
    let root = Arc::new(root.without(is_hidden_name));
    let capital = hidden.to_uppercase();
    for place in [hidden, "link", "link to link", &capital] {
        for path in [place.to_string(), format!("deep/{place}"), format!("plain/../deep/{place}")] {
            for tail in ["", "/.", "/record", "/..", "/new", "/new/"] {
                let path = format!("{path}{tail}");
                for is_directory in [false, true] {
                    let tree = SourceTree::local(&[scratch.at("file")], false);
                    let to = Destination::Below { root: &root, path: path.as_bytes() };
                    let refused = Copy::with(tree, to, is_directory).err();
                    use DestinationError::{Escapes, Hidden};
                    assert!(matches!(refused, Some(Escapes { .. } | Hidden { .. })), "{path}");
                }
                let tree = SourceTree::below(Arc::clone(&root), &[path.clone().into()], false);
                let copy = Copy::with(tree, Destination::Local(&scratch.at("got")), true).unwrap();
                copy.run();
                assert_eq!(copy.failures().len(), 1, "{path}");
            }
        }
    }
    assert!(!scratch.at("got").exists(), "it was made for nothing");
    for top in ["served", "served/deep"] {
        assert_eq!(scratch.names(&format!("{top}/{hidden}")), ["record"]);
        assert_eq!(scratch.read(&format!("{top}/{hidden}/record")), "theirs");
    }
    // Nor by an entry, nor by a destination on this host; other links lead where they did.
    scratch.file(&format!("tree/sub/{capital}"), "mine");
    let failures = cp(&scratch, &["tree"], "there").unwrap();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].1.contains("hidden directory"), "{failures:?}");
    let error = cp(&scratch, &["file"], &format!("served/{hidden}/record")).unwrap_err();
    assert!(error.contains("hidden directory"), "{error}");
    let tree = SourceTree::local(&[scratch.at("file")], false);
    let to = Destination::Below { root: &root, path: b"fine" };
    Copy::with(tree, to, false).unwrap().run();
    assert_eq!(scratch.read("served/plain/file"), "file");
}

#[test]
fn a_run_that_ends_leaves_the_next_one_its_hidden_directory() {
    let scratch = Scratch::new();
    let (at, root) = (scratch.at(""), ConfinedDir::open_root(scratch.at("")).unwrap());
    let hide = || Destination::Local(&at).hide(&root, &[7; 16]).unwrap();
    let ending = hide();
    unlinkat(&ending.directory, RECORD, AtFlags::empty()).unwrap();
    let next = hide();
    leave_hidden(&root, &ending.name, &ending.directory).unwrap();
    assert!(next.record.metadata().unwrap().nlink() > 0);
    remove_hidden(&root, &next.name, &next.directory).unwrap();
    assert!(scratch.names("").is_empty());
    leave_hidden(&root, &ending.name, &ending.directory).unwrap();
}

#[test]
fn hidden_directories_are_neither_copied_nor_written_to() {
    let scratch = prepared();
    let hidden = ".longhaul-00112233445566778899aabbccddeeff";
    scratch.file(&format!("tree/{hidden}/part"), "part");
    assert_eq!(cp(&scratch, &["tree"], "new"), Ok(vec![]));
    assert_eq!(scratch.names("new"), ["sub"]);
    // A source that names the sink's own hidden directory.
    let own = identify::hidden_name(&transfer_id(&[b"test"], b"", true), 0);
    let own = String::from_utf8(own).unwrap();
    scratch.file(&own, "not a record");
    let copy = Copy::new(SourceTree::local(&[scratch.at(&own)], false), &scratch.at("there"));
    copy.run();
    assert!(copy.failures()[0].1.contains("hidden directory"), "{:?}", copy.failures());
}

/// Copies on this thread; the directories, as paths in the scratch directory, that were synced before
/// anything was confirmed.
fn synced_before_confirming(scratch: &Scratch, copy: &Copy, directories: &[&str]) -> Vec<bool> {
    let _ = take_synced();
    copy.run_until(|sink| sink.stats().confirmed > 0);
    let synced = take_synced();
    let inode = |path: &&str| std::fs::metadata(scratch.at(path)).unwrap().ino();
    directories.iter().map(|path| synced.contains(&inode(path))).collect()
}

#[test]
fn new_parents_of_a_destination_are_durable_before_anything_is_confirmed() {
    let scratch = prepared();
    let above = ["", "a", "a/b"];
    let open = |to: &str| {
        let tree = SourceTree::local(&[scratch.at("file")], false);
        Copy::with(tree, Destination::Local(&scratch.at(to)), false).unwrap()
    };
    // A run that is killed leaves them made; the next one finds them.
    drop(open("a/b/c/"));
    assert_eq!(synced_before_confirming(&scratch, &open("a/b/c/"), &above), [true; 3]);
    // Where nobody asks for a directory none is made.
    assert_eq!(synced_before_confirming(&scratch, &open("a/b/c/new"), &above), [false; 3]);
}

#[test]
fn nothing_is_synced_above_what_a_destination_is_confined_to() {
    let scratch = prepared();
    let served = ConfinedDir::open_root(scratch.at("there")).unwrap();
    let tree = SourceTree::local(&[scratch.at("file")], false);
    let to = Destination::Below { root: &served, path: b"x/../x/y/" };
    let copy = Copy::with(tree, to, false).unwrap();
    let above = ["there/x", "there", ""];
    assert_eq!(synced_before_confirming(&scratch, &copy, &above), [true, true, false]);
}

#[test]
fn names_above_that_nobody_here_could_have_made_are_left_alone() {
    let scratch = prepared();
    let open = scratch.directory("there/open");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(scratch.at("there"), PermissionsExt::from_mode(0o711)).unwrap();
    without_rights(|| {
        let tree = SourceTree::local(&[scratch.at("file")], false);
        let to = scratch.at("there/open/x/");
        let copy = Copy::with(tree, Destination::Local(&to), false).unwrap();
        let above = ["there/open", "there", ""];
        assert_eq!(synced_before_confirming(&scratch, &copy, &above), [true, false, false]);
    });
}

/// Confirmed files have to be where the user looks for them.
#[test]
fn a_destination_directory_that_was_exchanged_is_noticed() {
    let exchanges: [fn(&Scratch); 2] = [|_| {}, |scratch| drop(scratch.directory("there"))];
    for put_another in exchanges {
        for to in ["there/", "there/new"] {
            for confined in [false, true] {
                let scratch = prepared();
                let root = ConfinedDir::open_root(scratch.at("")).unwrap();
                let path = scratch.at(to);
                let place = match confined {
                    true => Destination::Below { root: &root, path: to.as_bytes() },
                    false => Destination::Local(&path),
                };
                let tree = SourceTree::local(&[scratch.at("file")], false);
                let copy = Copy::with(tree, place, false).unwrap();
                std::fs::rename(scratch.at("there"), scratch.at("moved")).unwrap();
                put_another(&scratch);
                let failure = copy.run_to_failure();
                assert!(failure.contains("was moved or replaced"), "{to}: {failure}");
                assert_eq!(copy.confirmed(), 0, "{to}");
            }
        }
    }
}

#[test]
fn a_destination_directory_may_be_reached_another_way_meanwhile() {
    let scratch = prepared();
    symlink("there", scratch.at("link")).unwrap();
    let tree = SourceTree::local(&[scratch.at("file")], false);
    let copy = Copy::with(tree, Destination::Local(&scratch.at("link/")), false).unwrap();
    std::fs::rename(scratch.at("there"), scratch.at("moved")).unwrap();
    symlink("moved", scratch.at("there")).unwrap();
    copy.run();
    assert_eq!(scratch.read("link/file"), "file");
}

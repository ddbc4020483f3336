//! Where this user may not do all that a copy would: `cp -n` and the copy say the same.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use longhaul_needs::needs;
use rustix::fs::XattrFlags;

use crate::program::{Ended, NOBODY, Program};
use crate::storage::as_nobody;
use crate::test::{Test, limited};

/// A server that is not root.
fn serve(test: &Test) -> (Program<'_>, String) {
    let serves = ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
    let allows = ["--allow-read", "--allow-write", "--allow-delete"];
    give(&test.path("there"));
    let (server, at) = as_nobody(test, &[&serves[..], &allows].concat());
    (server, format!("lh://{at}/"))
}

fn cp(test: &Test, words: &[&str]) -> Ended {
    Program::start(test, &[&["cp", "--token-file", "token"][..], words].concat()).end()
}

/// Makes it as `from` is, in place of what is there.
fn fill(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
}

/// Paths behind a word, of the lines that begin with it.
fn lines<'e>(ended: &'e Ended, word: &str) -> BTreeSet<&'e str> {
    ended.stdout.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim_start).collect()
}

#[needs(root)]
#[test]
fn what_cannot_be_mended_of_another_users_file_does_not_count_as_mended() {
    limited(|test| {
        let (_server, at) = serve(test);
        let (from, to) = (test.here("m"), test.there("m"));
        fs::create_dir(&from).unwrap();
        let names = ["own", "other"];
        names.iter().for_each(|name| fs::write(from.join(name), "x").unwrap());
        let note = "or of each unchanged file, be set, as of another user's: such keep theirs";
        for (more, is_old) in [("-c", true), ("-cX", true), ("-X", false), ("-a", false)] {
            fill(&from, &to);
            for name in names {
                let file = to.join(name);
                mode(&file, 0o604);
                rustix::fs::setxattr(&file, "user.more", b"1", XattrFlags::empty()).unwrap();
                if is_old {
                    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
                    fs::File::open(&file).unwrap().set_modified(old).unwrap();
                }
            }
            [&to, &to.join("own")].iter().for_each(|path| give(path));
            for (option, expected) in
                [("-n", &["m/own"][..]), ("-v", &["m/own"]), ("-n", &[]), ("-v", &[])]
            {
                let ended = cp(test, &[option, more, "here/m", &at]);
                ended.assert_succeeded();
                assert_eq!(lines(&ended, "mended "), expected.iter().copied().collect(), "{more}");
                assert_eq!(ended.stdout.lines().count(), expected.len(), "{more} {ended:?}");
                let is_noted = is_old && option == "-v";
                assert_eq!(ended.stderr.contains(note), is_noted, "{more} {ended:?}");
                assert!(!ended.stderr.contains("what was copied has"), "{more} {ended:?}");
                let not_kept = ended.stderr.contains("of 1 entry could not be kept");
                assert_eq!(not_kept, option == "-v", "{more} {ended:?}");
            }
        }
    });
}

#[needs(root)]
#[test]
fn another_users_directory_takes_contents_and_keeps_its_time() {
    limited(|test| {
        let (_server, at) = serve(test);
        fs::create_dir(test.here("m")).unwrap();
        fs::write(test.here("m/file"), "x").unwrap();
        fs::create_dir(test.there("to")).unwrap();
        mode(&test.there("to"), 0o777);
        let ended = cp(test, &["here/m/.", &format!("{at}to/")]);
        ended.assert_succeeded();
        assert!(ended.stderr.contains("modification time of each directory"), "{ended:?}");
        assert_eq!(fs::read_dir(test.there("to")).unwrap().count(), 1);
    });
}

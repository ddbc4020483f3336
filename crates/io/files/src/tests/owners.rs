//! Hidden directories that are not this user's alone.

use std::fs::{File, Permissions};
use std::os::unix::fs::{chown, symlink};

use longhaul_needs::needs;
use longhaul_objects::limits::GROUP_SIZE;

use super::*;

/// A pull into a directory that anybody may write to, of which a part has come.
fn begin(scratch: &Scratch) {
    let copy = Copy::new(SourceTree::local(&[scratch.at("from/f")], false), &scratch.at("to"));
    copy.run_until(|sink| sink.stats().received_bytes >= 5 * GROUP_SIZE);
    copy.exchange();
    lock(&copy.sink).wind_up();
    while copy.act() {}
    assert!(lock(&copy.sink).is_wound_up());
}

/// The same copy again, to its end; how much it went on from.
fn go_on(scratch: &Scratch) -> u64 {
    let copy = Copy::new(SourceTree::local(&[scratch.at("from/f")], false), &scratch.at("to"));
    copy.run();
    assert_eq!(copy.failures(), []);
    let read = |path: &str| std::fs::read(scratch.at(path)).unwrap();
    assert!(read("to/f") == read("from/f"));
    copy.resumed()
}

/// Of a copy into `to`, by the number of its name.
fn hidden(scratch: &Scratch, number: u8) -> PathBuf {
    let name = identify::hidden_name(&transfer_id(&[b"test"], b"", true), number);
    scratch.at("to").join(std::str::from_utf8(&name).unwrap())
}

fn prepared(mode: u32) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("from/f", bytes(8 * GROUP_SIZE as usize + 5, 1));
    scratch.directory("to");
    std::fs::set_permissions(scratch.at("to"), Permissions::from_mode(mode)).unwrap();
    scratch
}

fn owner(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().uid()
}

#[test]
fn a_record_that_is_no_file_is_left_alone_and_noted() {
    for is_link in [false, true] {
        let scratch = prepared(0o755);
        begin(&scratch);
        let record = hidden(&scratch, 0).join("record");
        std::fs::remove_file(&record).unwrap();
        if is_link {
            symlink("/etc/hostname", &record).unwrap();
        } else {
            assert!(std::process::Command::new("mkfifo").arg(&record).status().unwrap().success());
        }
        let copy = Copy::new(SourceTree::local(&[scratch.at("from/f")], false), &scratch.at("to"));
        copy.run();
        assert_eq!(copy.failures(), []);
        assert_eq!((copy.to.notes(), copy.resumed()), (longhaul_wire::Summary::LEFT_ALONE, 0));
    }
}

#[needs(root)]
#[test]
fn another_users_hidden_directory_is_not_gone_on_with() {
    let scratch = prepared(0o1777);
    without_rights(|| begin(&scratch));
    let theirs = hidden(&scratch, 0);
    assert_eq!(owner(&theirs), NOBODY);
    let before = snapshot(&theirs);
    assert_eq!(go_on(&scratch), 0);
    assert_eq!(owner(&scratch.at("to/f")), 0);
    assert_eq!(snapshot(&theirs), before);
    // Its owner goes on from it.
    std::fs::remove_file(scratch.at("to/f")).unwrap();
    without_rights(|| assert!(go_on(&scratch) > 0));
    assert_eq!(scratch.names("to"), ["f"]);
}

#[needs(root)]
#[test]
fn a_copy_begun_under_another_name_goes_on_when_the_first_is_free() {
    let scratch = prepared(0o1777);
    without_rights(|| begin(&scratch));
    begin(&scratch);
    let (theirs, own) = (hidden(&scratch, 0), hidden(&scratch, 1));
    assert_eq!((owner(&theirs), owner(&own)), (NOBODY, 0));
    std::fs::remove_dir_all(theirs).unwrap();
    assert!(go_on(&scratch) > 0);
    assert_eq!(scratch.names("to"), ["f"]);
}

/// A directory of the same owner that others could have written to is no better.
#[test]
fn a_hidden_directory_that_others_may_have_written_to_is_not_used() {
    let spoilings: [fn(&Path); 6] = [
        |hidden| std::fs::set_permissions(hidden, Permissions::from_mode(0o777)).unwrap(),
        |hidden| {
            std::fs::rename(hidden, hidden.with_file_name("moved")).unwrap();
            symlink("moved", hidden).unwrap();
        },
        |hidden| {
            std::fs::remove_dir_all(hidden).unwrap();
            File::create(hidden).unwrap();
        },
        |hidden| {
            let record = hidden.join("record");
            std::fs::hard_link(&record, hidden.with_file_name("linked")).unwrap();
        },
        |hidden| {
            let mode = Permissions::from_mode(0o666);
            std::fs::set_permissions(hidden.join("record"), mode).unwrap();
        },
        |hidden| {
            std::fs::remove_file(hidden.join("record")).unwrap();
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, hidden.join("record"), kind, mode, 0).unwrap();
        },
    ];
    for (number, spoil) in spoilings.into_iter().enumerate() {
        let scratch = prepared(0o777);
        begin(&scratch);
        spoil(&hidden(&scratch, 0));
        assert_eq!(go_on(&scratch), 0, "{number}");
        assert!(!hidden(&scratch, 1).exists(), "{number}");
    }
}

#[test]
fn an_unpublished_file_that_has_a_name_elsewhere_is_received_anew() {
    let scratch = prepared(0o777);
    begin(&scratch);
    let hidden = hidden(&scratch, 0);
    let files = std::fs::read_dir(&hidden).unwrap().map(|file| file.unwrap().path());
    let file = files.into_iter().find(|file| !file.ends_with("record")).unwrap();
    std::fs::hard_link(&file, scratch.at("theirs")).unwrap();
    assert_eq!(go_on(&scratch), 0);
    let inode = |path: &str| std::fs::metadata(scratch.at(path)).unwrap().ino();
    assert_ne!(inode("to/f"), inode("theirs"));
}

/// CIFS, FUSE and NFS may show another owner than who has made a file.
#[needs(root)]
#[test]
fn owners_are_not_asked_for_where_nobody_else_may_write() {
    let scratch = prepared(0o755);
    begin(&scratch);
    chown(hidden(&scratch, 0), Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(hidden(&scratch, 0), Permissions::from_mode(0o755)).unwrap();
    assert!(go_on(&scratch) > 0);
}

#[needs(root)]
#[test]
fn taking_every_name_of_a_transfer_stops_no_copy() {
    let scratch = prepared(0o1777);
    let planted: Vec<_> = (0..20).map(|number| hidden(&scratch, number)).collect();
    without_rights(|| {
        planted.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let mode = Permissions::from_mode(0o777);
        std::fs::set_permissions(&planted[0], mode).unwrap();
    });
    assert_eq!(go_on(&scratch), 0);
    assert_eq!(scratch.names("to").len(), 21);
    assert!(planted.iter().all(|path| path.read_dir().unwrap().next().is_none()));
}

/// Of a link, or a directory that is another user's, nothing says that this copy has begun.
#[needs(root)]
#[test]
fn another_users_hidden_directory_does_not_make_a_copy_look_begun() {
    let scratch = prepared(0o1777);
    scratch.file("to/old", "old");
    without_rights(|| std::fs::create_dir(hidden(&scratch, 0)).unwrap());
    let transfer = transfer_id(&[b"test"], b"", true);
    let options = SinkOptions {
        is_directory: false,
        is_name: false,
        contents: true,
        transfer,
        fsync: Fsync::End,
        direct: false,
        only_empty: true,
        goes_on: true,
        dry_run: false,
        stays: false,
        keeps_modes: false,
        keeps: Default::default(),
    };
    let opened = SinkTree::open(Destination::Local(&scratch.at("to")), &options);
    assert!(matches!(opened.err(), Some(DestinationError::NotEmpty { .. })));
}

/// As on a file system that shows every file as another user's, and open to all.
#[needs(root)]
#[test]
fn files_like_those_just_made_are_this_users() {
    use super::super::trust::Trust;
    let scratch = prepared(0o777);
    let root = longhaul_sys::files::ConfinedDir::open_root(scratch.at("to")).unwrap();
    let name = identify::hidden_name(&[1; 16], 0);
    let own = Trust::Own { uid: rustix::process::geteuid().as_raw(), shown: 0 };
    assert_eq!(Trust::within(&root).unwrap(), own);
    assert_eq!(own.learn(&root, &name), own);
    // As such a file system has it: what was just made is this user's, whatever it looks like.
    let shown = Trust::Own { uid: NOBODY, shown: 0o077 };
    let stat = rustix::fs::stat(scratch.at("to")).unwrap();
    assert!(!shown.has_directory(&stat) && !own.has_directory(&stat));
    chown(scratch.at("to"), Some(NOBODY), Some(NOBODY)).unwrap();
    let stat = rustix::fs::stat(scratch.at("to")).unwrap();
    assert!(shown.has_directory(&stat));
    assert!(scratch.names("to").is_empty());
}

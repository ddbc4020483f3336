//! Somebody who writes to the unpublished file of a copy between two runs.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::program::Program;
use crate::test::{Test, limited, until};
use crate::trees::{
    assert_same, is_hidden, names, noise, record_len, recorded_groups, whole_groups,
};

#[test]
fn files_altered_after_a_stop_are_copied_again_and_nothing_else() {
    limited(|test| {
        let Altered { recorded, resumed, .. } = altered(test, Signal::INT);
        assert_eq!(resumed, recorded - 1);
    });
}

#[test]
fn files_altered_after_a_kill_are_copied_again_and_the_rest_is_kept() {
    limited(|test| {
        let Altered { whole, resumed, .. } = altered(test, Signal::KILL);
        // Data behind the last checkpoint goes again.
        assert!(resumed > 0 && resumed < whole, "{resumed} of {whole}");
    });
}

/// Groups of a file that was altered between two runs.
struct Altered {
    whole: u64,
    /// By the record.
    recorded: u64,
    resumed: u64,
}

/// Ends a pull by `signal`, alters the first group of what it has left, and pulls again.
fn altered(test: &Test, signal: Signal) -> Altered {
    let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
    let data = noise(78, 96 << 20);
    fs::write(test.there("file"), &data).unwrap();
    let (here, from) = (test.path("here"), format!("lh://{at}/file"));
    let client = Program::cp(test, &["--rate", "100Mbps", &from, "here/"]);
    let first = until("a record", || record_len(&here).filter(|len| *len > 0));
    until("something durable", || record_len(&here).filter(|len| *len > first));
    client.signal(signal);
    client.end();
    let whole = whole_groups(&here, &data) as u64;
    let recorded = recorded_groups(&here) as u64;
    alter(&unpublished(&here));
    let again = Program::cp(test, &[&from, "here/"]).end();
    again.assert_succeeded();
    assert_eq!(again.json()["verified"], true);
    let resumed = again.json()["resumed_bytes"].as_u64().unwrap();
    assert_same(&test.here("file"), &test.there("file"));
    assert_eq!(names(&here), ["file"]);
    server.signal(Signal::TERM);
    server.end().assert_succeeded();
    Altered { whole, recorded, resumed: resumed >> 20 }
}

/// Changes a byte, and puts size and modification time back.
fn alter(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1000).unwrap();
    file.set_times(FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
    let after = file.metadata().unwrap();
    let about = |metadata: &fs::Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    assert_eq!(about(&before), about(&after));
}

/// The only unpublished file below `root`.
fn unpublished(root: &Path) -> PathBuf {
    let hidden = fs::read_dir(root).unwrap().flatten().find(|entry| is_hidden(&entry.file_name()));
    let mut files = fs::read_dir(hidden.unwrap().path()).unwrap().flatten();
    files.find(|file| file.file_name() != "record").unwrap().path()
}

/// A user who may write at the destination can put a FIFO there, which would be read for ever.
#[test]
fn a_record_that_is_no_file_is_left_alone() {
    limited(|test| {
        fs::write(test.there("file"), noise(33, 6_000_000)).unwrap();
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let copy = |words: &[&str]| {
            let source = format!("lh://{at}/file");
            Program::cp(test, &[words, &[&source, "here/file"]].concat())
        };
        let first = copy(&["--rate", "20Mbps"]);
        let record = until("a record", || {
            let hidden = names(&test.path("here")).into_iter().find(|name| is_hidden(name))?;
            Some(test.here("").join(hidden).join("record")).filter(|record| record.exists())
        });
        first.signal(Signal::KILL);
        assert_eq!(first.end().status, None);
        fs::remove_file(&record).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&record).status().unwrap();
        assert!(made.success());
        let ended = copy(&[]).end();
        ended.assert_succeeded();
        assert!(ended.stderr.contains("beside here/file is a hidden directory"), "{ended:?}");
        assert!(record.exists());
        assert_same(&test.there("file"), &test.here("file"));
    });
}

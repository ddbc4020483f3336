//! Pulls from a server that sends what nobody asked for: its messages are scripted, the client's side
//! is the program's own.

use std::time::Duration as Wait;

use longhaul_carriers::mailboxes::Mailboxes;
use longhaul_carriers::upper_layer::UpperLayer;
use longhaul_connection::Wish;
use longhaul_files::DestinationError;
use longhaul_session::Token;
use longhaul_units::Bytes;
use longhaul_wire::{Attributes, Entry, EntryKind, EntryPath, Message, SourceMessage};

use super::*;
use crate::testing::AtEnd;

/// A directory of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("longhaul-pull-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        let mut names: Vec<_> = std::fs::read_dir(&self.0).unwrap().map(name).collect();
        names.retain(|name| !name.starts_with(".longhaul-"));
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(sources: &[&[u8]], copy_contents: bool, to: &FilePath) -> CopyOptions {
    let connect = ConnectOptions {
        idle_timeout: Wait::from_secs(1),
        stall_timeout: Duration::ZERO,
        ..ConnectOptions::new(Endpoint::new("127.0.0.1", 1), Token::from_random([1; 16]))
    };
    let sources = sources.iter().map(|path| path.to_vec()).collect();
    let paths = CopyPaths::Pull { sources, destination: to.into() };
    CopyOptions { copy_contents, ..CopyOptions::new(connect, paths) }
}

/// The client's side of the copy, to which a server speaks.
fn client(options: &CopyOptions) -> Result<Part, Failure> {
    check(options).unwrap();
    let mailboxes = Mailboxes::new(Vec::new());
    let shared = Shared::client(&Wish::Copy(request(options)), mailboxes);
    let part = (&shared, Budget::new(options.connect.memory));
    Part::new(options, (None, None), Arc::default(), part)
}

fn sink(client: &Part) -> &SinkDriver {
    let Driver::Sink(sink) = &client.driver else { unreachable!() };
    sink
}

fn directory(path: &[u8]) -> Entry {
    let path = EntryPath::new(path.to_vec()).unwrap();
    let kind = EntryKind::Directory;
    let attributes = Attributes::default();
    Entry { kind, mode: 0o755, modified: 0, size: 0, identity: [0; 16], path, attributes }
}

fn file(path: &[u8]) -> Entry {
    Entry { kind: EntryKind::File, ..directory(path) }
}

/// Says that there are `entries` and no more, and does what is to be done then.
fn send(client: &Part, entries: Vec<Entry>) -> Result<(), String> {
    let count = entries.len() as u64;
    for message in [
        SourceMessage::Manifest { first_entry: 0, entries, objects: Vec::new() },
        SourceMessage::ManifestEnd { entries: count, objects: 0, bytes: Bytes::ZERO },
    ] {
        let mut bytes = Vec::new();
        Message::Source(message).encode(&mut bytes).unwrap();
        client.shared.on_stream_bytes(&bytes).map_err(|violation| violation.to_string())?;
    }
    let shared = &client.shared;
    std::thread::scope(|scope| {
        let working = scope.spawn(|| sink(client).work(shared));
        while !working.is_finished() && !shared.lock().is_done() {
            let mut out = Vec::new();
            shared.next_message(&mut out);
            std::thread::yield_now();
        }
        shared.stop();
        working.join().unwrap().map_err(|error| error.to_string())
    })
}

#[test]
fn a_server_cannot_put_what_was_not_asked_for_beside_it() {
    let scratch = Scratch::new("names");
    std::fs::write(scratch.0.join(".bashrc"), "mine").unwrap();
    let (data, dir): (&[u8], &[u8]) = (b"data", b"dir/sub");
    let odd: &[u8] = b"odd\xff\nname";
    for sources in [&[data][..], &[dir], &[data, dir], &[odd], &[b"data/"]] {
        for wrong in [
            vec![file(b".bashrc")],
            vec![directory(b".ssh"), file(b".ssh/authorized_keys")],
            vec![directory(b""), file(b".bashrc")],
            vec![directory(b"dir"), file(b"dir/sub")],
            vec![file(b"odd\xfe\nname")],
        ] {
            let client = client(&options(sources, false, &scratch.0)).ok().unwrap();
            let error = send(&client, wrong).unwrap_err();
            assert!(error.contains("was not asked for"), "{error}");
            drop(client);
            assert_eq!(scratch.names(), [".bashrc"], "{sources:?}");
            assert_eq!(std::fs::read(scratch.0.join(".bashrc")).unwrap(), b"mine");
        }
    }
    // With the new name as destination as well.
    let client = client(&options(&[data], false, &scratch.0.join("new"))).ok().unwrap();
    send(&client, vec![file(b".bashrc")]).unwrap_err();
    assert_eq!(scratch.names(), [".bashrc"]);
}

#[test]
fn what_was_asked_for_arrives_under_its_name() {
    let scratch = Scratch::new("asked");
    let client = client(&options(&[b"data", b"odd\xff"], false, &scratch.0)).ok().unwrap();
    send(&client, vec![directory(b"data"), file(b"data/.bashrc"), file(b"odd\xff")]).unwrap();
    let names: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(scratch.0.join("data/.bashrc").is_file());
}

#[test]
fn the_null_device_takes_a_file_and_stays() {
    let null = FilePath::new("/dev/null");
    let device = |metadata: std::fs::Metadata| {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        assert!(metadata.file_type().is_char_device());
        metadata.ino()
    };
    let before = device(std::fs::symlink_metadata(null).unwrap());
    let one = client(&options(&[b"data"], false, null)).ok().unwrap();
    send(&one, vec![file(b"data")]).unwrap();
    assert!(one.discards() && one.shared.failures().is_empty());
    // A tree has no place there.
    for dry_run in [true, false] {
        let options = CopyOptions { dry_run, ..options(&[b"data"], false, null) };
        let tree = client(&options).ok().unwrap();
        let error = send(&tree, vec![directory(b"data"), file(b"data/x")]).unwrap_err();
        assert_eq!(error, "/dev/null: it takes a single file, and the source is a directory");
        assert!(tree.shared.failures().is_empty());
    }
    assert_eq!(device(std::fs::symlink_metadata(null).unwrap()), before);
}

#[test]
fn contents_go_into_no_directory_that_holds_something() {
    let scratch = Scratch::new("contents");
    std::fs::write(scratch.0.join(".bashrc"), "mine").unwrap();
    for (sources, contents) in [(&[&b"data"[..]][..], true), (&[b""], false), (&[b"a", b"b"], true)]
    {
        let refused = client(&options(sources, contents, &scratch.0)).err();
        let Some(Failure::Destination(error)) = refused else { panic!("{sources:?}") };
        assert!(matches!(error, DestinationError::NotEmpty { .. }), "{error}");
        assert!(error.to_string().contains("--merge"), "{error}");
    }
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    // Where they may, they do.
    let merging = CopyOptions { merge: true, ..options(&[b"data"], true, &scratch.0) };
    send(&client(&merging).ok().unwrap(), vec![directory(b""), file(b".bashrc")]).unwrap();
    assert_eq!(std::fs::read(scratch.0.join(".bashrc")).unwrap(), b"");
    // Another copy that is under way there vouches for nothing: neither of the same directory as a whole.
    let whole = client(&options(&[b"data"], false, &scratch.0)).ok().unwrap();
    let refused = client(&options(&[b"data"], true, &scratch.0)).err();
    assert!(
        matches!(refused, Some(Failure::Destination(DestinationError::NotEmpty { .. }))),
        "{refused:?}"
    );
    drop(whole);
    // An empty directory, a new one, and one that the same copy has begun to fill.
    for to in ["empty", "new"] {
        let to = scratch.0.join(to);
        if to.ends_with("empty") {
            std::fs::create_dir(&to).unwrap();
        }
        for _ in 0..2 {
            let begun = client(&options(&[b"data"], true, &to)).ok().unwrap();
            let half = SourceMessage::Manifest {
                first_entry: 0,
                entries: vec![directory(b""), directory(b"sub"), directory(b"next")],
                objects: Vec::new(),
            };
            let mut bytes = Vec::new();
            Message::Source(half).encode(&mut bytes).unwrap();
            begun.shared.on_stream_bytes(&bytes).unwrap();
            std::thread::scope(|scope| {
                let _ends = AtEnd(|| begun.shared.stop());
                let working = scope.spawn(|| sink(&begun).work(&begun.shared));
                while !to.join("sub").exists() {
                    assert!(!working.is_finished(), "the sink has ended");
                    std::thread::yield_now();
                }
            });
        }
        let whole = client(&options(&[b"data"], true, &to)).ok().unwrap();
        send(&whole, vec![directory(b""), directory(b"sub"), file(b"sub/f")]).unwrap();
        assert!(to.join("sub/f").is_file());
        assert!(client(&options(&[b"data"], true, &to)).is_err());
    }
}

#[test]
fn a_request_that_no_server_reads_is_refused_here() {
    let refused = |rules: usize, len| {
        let mut options = options(&[b"data"], false, FilePath::new("here"));
        let pattern = vec![b'a'; len];
        let rule = longhaul_wire::FilterRule { kind: longhaul_wire::FilterKind::Exclude, pattern };
        options.rules = vec![rule; rules];
        check_size(&Wish::Copy(request(&options))).map_err(|error| error.to_string())
    };
    assert_eq!(refused(1, MAX_PATH), Ok(()));
    assert!(refused(1, MAX_PATH + 1).unwrap_err().contains("4096 bytes at most"));
    assert!(refused(300, MAX_PATH).unwrap_err().contains("less than 1 MiB together"));
}

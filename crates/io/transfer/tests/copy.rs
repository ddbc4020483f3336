//! Copies between two ends of this program over loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use longhaul_objects::Fsync;
use longhaul_session::Token;
use longhaul_transfer::{
    CarrierChoice, CopyError, CopyOptions, CopyReport, Location, Progress, ServeEvent,
    ServeOptions, Stop, copy, serve,
};
use longhaul_wire::Protect;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("here")).unwrap();
        fs::create_dir_all(path.join("there")).unwrap();
        Self(path)
    }

    fn here(&self) -> PathBuf {
        self.0.join("here")
    }

    fn there(&self) -> PathBuf {
        self.0.join("there")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn token(seed: u8) -> Token {
    Token::from_random([seed; 16])
}

fn serve_options(root: PathBuf) -> ServeOptions {
    ServeOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        root,
        tokens: vec![token(1)],
        once: false,
        allow_read: true,
        allow_write: true,
        connections_max: 8,
        idle_timeout: Duration::from_secs(10),
    }
}

/// Runs `work` against a server of `options`; returns its result and what the server told.
fn with_server<T: Send>(
    options: &ServeOptions,
    work: impl FnOnce(SocketAddr) -> T + Send,
) -> (T, Vec<ServeEvent>) {
    let stop = Stop::default();
    let (send, receive) = mpsc::channel();
    let (told, address) = mpsc::channel();
    let result = std::thread::scope(|scope| {
        let stopped = stop.clone();
        scope.spawn(move || {
            let events = |event: ServeEvent| {
                if let ServeEvent::Listening(at) = &event {
                    told.send(*at).unwrap();
                }
                send.send(event).unwrap();
            };
            serve(options, &events, &stopped).unwrap();
        });
        let address = address.recv_timeout(Duration::from_secs(10)).unwrap();
        let result = work(address);
        // The server notices the client's goodbye on its own time.
        std::thread::sleep(Duration::from_millis(300));
        stop.request();
        result
    });
    (result, receive.try_iter().collect())
}

fn options(sources: Vec<Location>, destination: Location) -> CopyOptions {
    CopyOptions {
        sources,
        destination,
        destination_is_directory: false,
        copy_contents: false,
        token: token(1),
        profile: "auto".into(),
        rate: None,
        protect: Protect::Aead,
        carrier: CarrierChoice::Auto,
        lanes: 1,
        fsync: Fsync::End,
        idle_timeout: Duration::from_secs(10),
    }
}

fn remote(server: SocketAddr, path: &str) -> Location {
    Location::Remote {
        host: server.ip().to_string(),
        port: server.port(),
        path: path.as_bytes().to_vec(),
    }
}

fn run(options: &CopyOptions) -> Result<CopyReport, CopyError> {
    copy(options, &Progress::default(), &Stop::default())
}

/// Bytes that no compressor or repetition can hide errors in.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::write(root.join("big"), noise(1, 9_000_001)).unwrap();
    fs::write(root.join("a/nothing"), b"").unwrap();
    for i in 0..200 {
        fs::write(root.join(format!("a/b/f{i}")), noise(i, 37 * i as usize)).unwrap();
    }
    std::os::unix::fs::symlink("b/f3", root.join("a/link")).unwrap();
}

fn assert_same(a: &Path, b: &Path) {
    let list = |root: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(a), list(b), "{} and {}", a.display(), b.display());
    for name in list(a) {
        let (x, y) = (a.join(&name), b.join(&name));
        let (mx, my) = (fs::symlink_metadata(&x).unwrap(), fs::symlink_metadata(&y).unwrap());
        assert_eq!(mx.file_type(), my.file_type());
        if mx.is_dir() {
            assert_same(&x, &y);
        } else if mx.is_symlink() {
            assert_eq!(fs::read_link(&x).unwrap(), fs::read_link(&y).unwrap());
        } else {
            assert!(fs::read(&x).unwrap() == fs::read(&y).unwrap(), "{} differs", x.display());
            assert_eq!(mx.modified().unwrap(), my.modified().unwrap());
        }
    }
}

#[test]
fn a_tree_is_pushed_in_every_protection() {
    for &protect in Protect::ALL {
        let scratch = Scratch::new(&format!("push-{protect}"));
        make_tree(&scratch.here().join("tree"));
        let (result, events) = with_server(&serve_options(scratch.there()), |server| {
            let source = Location::Local(scratch.here().join("tree"));
            run(&CopyOptions { protect, ..options(vec![source], remote(server, "")) })
        });
        let report = result.unwrap_or_else(|error| panic!("{protect}: {error}; {events:?}"));
        assert_same(&scratch.here().join("tree"), &scratch.there().join("tree"));
        assert!(report.verified, "{report:?}");
        assert_eq!(report.files, 207);
        let ended = events.iter().any(|e| matches!(e, ServeEvent::Ended { outcome: Ok(_), .. }));
        assert!(ended, "{events:?}");
        // Nothing but the tree is left behind.
        assert_eq!(fs::read_dir(scratch.there()).unwrap().count(), 1);
    }
}

#[test]
fn tcp_carries_too() {
    for protect in [Protect::Clear, Protect::Aead] {
        let scratch = Scratch::new(&format!("tcp-{protect}"));
        make_tree(&scratch.here().join("tree"));
        let (result, events) = with_server(&serve_options(scratch.there()), |server| {
            let source = Location::Local(scratch.here().join("tree"));
            let carrier = CarrierChoice::Tcp;
            let options = options(vec![source], remote(server, "copy"));
            run(&CopyOptions { protect, carrier, lanes: 2, ..options })
        });
        let report = result.unwrap_or_else(|error| panic!("{protect}: {error}; {events:?}"));
        assert_same(&scratch.here().join("tree"), &scratch.there().join("copy"));
        assert_eq!(report.carrier, "tcp");
    }
}

#[test]
fn a_tree_is_pulled() {
    let scratch = Scratch::new("pull");
    make_tree(&scratch.there().join("tree"));
    let (result, events) = with_server(&serve_options(scratch.there()), |server| {
        run(&options(vec![remote(server, "tree")], Location::Local(scratch.here().join("copy"))))
    });
    let report = result.unwrap_or_else(|error| panic!("{error}; {events:?}"));
    assert_same(&scratch.there().join("tree"), &scratch.here().join("copy"));
    assert!(report.verified);
}

#[test]
fn a_wrong_token_gets_nothing() {
    let scratch = Scratch::new("token");
    fs::write(scratch.here().join("f"), b"secret").unwrap();
    let (result, events) = with_server(&serve_options(scratch.there()), |server| {
        let source = Location::Local(scratch.here().join("f"));
        run(&CopyOptions { token: token(2), ..options(vec![source], remote(server, "")) })
    });
    assert!(matches!(result, Err(CopyError::Connect(_))), "{result:?}");
    assert!(events.iter().any(|e| matches!(e, ServeEvent::Refused { .. })), "{events:?}");
    assert_eq!(fs::read_dir(scratch.there()).unwrap().count(), 0);
}

#[test]
fn a_read_only_server_refuses_a_push() {
    let scratch = Scratch::new("readonly");
    fs::write(scratch.here().join("f"), b"x").unwrap();
    let mut serving = serve_options(scratch.there());
    serving.allow_write = false;
    let (result, _) = with_server(&serving, |server| {
        let source = Location::Local(scratch.here().join("f"));
        run(&options(vec![source], remote(server, "")))
    });
    assert!(matches!(result, Err(CopyError::Refused { .. })), "{result:?}");
}

#[test]
fn several_lanes_carry_one_file() {
    let scratch = Scratch::new("lanes");
    fs::write(scratch.here().join("f"), noise(5, 30_000_000)).unwrap();
    let (result, events) = with_server(&serve_options(scratch.there()), |server| {
        let source = Location::Local(scratch.here().join("f"));
        run(&CopyOptions { lanes: 4, ..options(vec![source], remote(server, "g")) })
    });
    result.unwrap_or_else(|error| panic!("{error}; {events:?}"));
    assert!(
        fs::read(scratch.here().join("f")).unwrap() == fs::read(scratch.there().join("g")).unwrap()
    );
}

#[test]
fn a_missing_source_is_an_error_that_names_it() {
    let scratch = Scratch::new("missing");
    let (result, _) = with_server(&serve_options(scratch.there()), |server| {
        let source = Location::Local(scratch.here().join("not-there"));
        run(&options(vec![source], remote(server, "")))
    });
    let report = result.unwrap();
    assert!(!report.verified);
    assert!(report.failures[0].0.contains("not-there"), "{report:?}");
}

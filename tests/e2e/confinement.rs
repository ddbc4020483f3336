//! Nothing leads out of the server's root.

use std::fs;
use std::os::unix::fs::symlink;

use longhaul::ErrorKind;

use crate::program::Program;
use crate::server::{Server, pull, push, run};
use crate::test::{Test, limited};
use crate::trees::{assert_same, names, noise};

#[test]
fn no_path_leads_a_pull_out_of_the_root() {
    limited(|test| {
        prepare(test);
        let secret = test.path("outside/secret");
        let server = Server::start(test);
        for path in [
            "../outside/secret",
            "out/secret",
            "absolute/secret",
            "link-to-secret/",
            "sub/../../outside/secret",
            "sub/up/outside/secret",
            secret.to_str().unwrap(),
            "/etc/hostname",
        ] {
            let result = run(test, &pull(server.address, path.as_bytes(), &test.here("got")));
            match result {
                // The link itself may be copied, as a link.
                Ok(report) if report.failures.is_empty() => {
                    assert!(test.here("got").is_symlink(), "{path}: {report:?}");
                    fs::remove_file(test.here("got")).unwrap();
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind, ErrorKind::Refused | ErrorKind::Lost) => {}
                Err(error) => panic!("{path}: {error:?}"),
            }
            let got = names(&test.path("here"));
            assert!(got.is_empty(), "{path}: {got:?}");
        }
    });
}

#[test]
fn links_in_a_tree_are_copied_as_links() {
    limited(|test| {
        prepare(test);
        let server = Server::start(test);
        let report = run(test, &pull(server.address, b"", &test.here("all"))).unwrap();
        assert!(report.failures.is_empty(), "{report:?}");
        assert_same(&test.path("there"), &test.here("all"));
        assert!(test.here("all/out").is_symlink());
    });
}

#[test]
fn no_path_leads_a_push_out_of_the_root() {
    limited(|test| {
        prepare(test);
        let secret = fs::read(test.path("outside/secret")).unwrap();
        fs::write(test.path("mine"), noise(2, 70_000)).unwrap();
        let server = Server::start(test);
        for directory in [false, true] {
            for path in [
                "../outside/new",
                "../outside/secret",
                "out/new",
                "out/secret",
                "absolute/new",
                "sub/up/outside/new",
                "sub/../../outside/new",
                "out",
                "absolute",
            ] {
                let mut options = push(&test.path("mine"), server.address, path.as_bytes());
                options.destination_is_directory = directory;
                match run(test, &options) {
                    Err(error) if matches!(error.kind, ErrorKind::Refused | ErrorKind::Lost) => {}
                    Ok(report) if !report.failures.is_empty() => {}
                    // A link in the way may be replaced by the file; it is not followed.
                    Ok(report) => {
                        assert_eq!(path, "out", "{report:?}");
                        assert!(test.there(path).is_file());
                    }
                    Err(error) => panic!("{path}: {error:?}"),
                }
                assert_eq!(names(&test.path("outside")), ["secret"], "{path}");
                assert_eq!(fs::read(test.path("outside/secret")).unwrap(), secret, "{path}");
            }
        }
    });
}

#[test]
fn a_tree_does_not_grow_through_a_link() {
    limited(|test| {
        prepare(test);
        // A directory here is a link that leads out there.
        fs::create_dir_all(test.path("mine/out/deep")).unwrap();
        fs::create_dir_all(test.path("mine/absolute")).unwrap();
        fs::write(test.path("mine/out/new"), noise(3, 5_000)).unwrap();
        fs::write(test.path("mine/out/deep/new"), noise(4, 5_000)).unwrap();
        fs::write(test.path("mine/absolute/secret"), noise(5, 5_000)).unwrap();
        fs::write(test.path("mine/plain"), noise(6, 5_000)).unwrap();
        let secret = fs::read(test.path("outside/secret")).unwrap();
        let server = Server::start(test);
        let mut options = push(&test.path("mine"), server.address, b"");
        options.copy_contents = true;
        let report = run(test, &options).unwrap();
        assert!(!report.failures.is_empty(), "{report:?}");
        assert_same(&test.path("mine/plain"), &test.there("plain"));
        assert_eq!(names(&test.path("outside")), ["secret"]);
        assert_eq!(fs::read(test.path("outside/secret")).unwrap(), secret);
    });
}

/// A root with links that lead out of it, to a directory with a secret.
fn prepare(test: &Test) {
    fs::create_dir(test.path("outside")).unwrap();
    fs::write(test.path("outside/secret"), noise(1, 50_000)).unwrap();
    fs::create_dir(test.there("sub")).unwrap();
    symlink("../outside", test.there("out")).unwrap();
    symlink(test.path("outside"), test.there("absolute")).unwrap();
    symlink("../outside/secret", test.there("link-to-secret")).unwrap();
    symlink("../..", test.there("sub/up")).unwrap();
}

/// `--follow`: of what is served at most.
#[test]
fn links_that_are_followed_are_what_they_point_at_and_lead_nowhere_else_at_a_server() {
    limited(|test| {
        let (_server, at) = Program::serve(test, "127.0.0.1:0", &["--allow-read", "--allow-write"]);
        for (pushes, from) in [(true, test.here("tree")), (false, test.there("tree"))] {
            fs::create_dir_all(from.join("sub")).unwrap();
            fs::write(from.join("sub/file"), "file").unwrap();
            symlink("sub", from.join("link")).unwrap();
            symlink("../../token", from.join("out")).unwrap();
            let place = format!("lh://{at}/{}", if pushes { "pushed" } else { "tree" });
            let words: [&str; 2] =
                if pushes { ["here/tree", &place] } else { [&place, "here/pulled"] };
            let copy = [&["cp", "--token-file", "token", "--follow", "-T"][..], &words].concat();
            let ended = Program::start(test, &copy).end();
            let to = if pushes { test.there("pushed") } else { test.here("pulled") };
            assert!(!to.join("link").is_symlink(), "{ended:?}");
            assert_eq!(fs::read(to.join("link/file")).unwrap(), b"file");
            // The user's own host shows what this user can read.
            assert_eq!(ended.status, Some(if pushes { 0 } else { 1 }), "{ended:?}");
            assert_eq!(to.join("out").exists(), pushes, "{ended:?}");
            let out = "it is a symbolic link that leads out of the root at the server";
            assert!(pushes || ended.stderr.contains(out), "{ended:?}");
        }
    });
}

//! Patterns in sources of a pull: the server expands them, and what is there as written is that.

use std::collections::BTreeSet;
use std::fs;

use longhaul::{CopyOptions, CopyPaths};

use crate::server::{Server, pull, run};
use crate::test::{Test, limited};

fn names(test: &Test, directory: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(test.here(directory)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn copy(server: &Server, sources: &[&str], test: &Test, to: &str) -> CopyOptions {
    let mut options = pull(server.address, b"", &test.here(to));
    let sources = sources.iter().map(|path| path.as_bytes().to_vec()).collect();
    options.paths = CopyPaths::Pull { sources, destination: test.here(to) };
    options
}

#[test]
fn what_a_pattern_matches_is_copied_and_one_that_matches_nothing_fails_by_name() {
    limited(|test| {
        for path in ["run-1/a1.h5", "run-2/a2.h5", "run-2/a22.h5", "run-2/b", "[ab]/x", "a/y"] {
            let path = test.there(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "contents").unwrap();
        }
        let server = Server::start(test);
        let report = run(test, &copy(&server, &["run-*/a?.h5"], test, "files")).unwrap();
        assert_eq!(report.failures.count, 0, "{report:?}");
        assert_eq!(names(test, "files"), BTreeSet::from(["a1.h5", "a2.h5"].map(String::from)));

        let report = run(test, &copy(&server, &["run-?", "a/y"], test, "trees")).unwrap();
        assert_eq!(report.failures.count, 0, "{report:?}");
        assert_eq!(names(test, "trees"), BTreeSet::from(["run-1", "run-2", "y"].map(String::from)));
        assert_eq!(names(test, "trees/run-2").len(), 3);

        let report = run(test, &copy(&server, &["[ab]"], test, "written")).unwrap();
        assert_eq!(report.failures.count, 0, "{report:?}");
        assert_eq!(names(test, "written"), BTreeSet::from(["x".to_owned()]), "a new name");
        let error = run(test, &copy(&server, &["run-[12]"], test, "both")).unwrap_err();
        assert!(error.to_string().contains("2 names match: write a slash behind DST"), "{error}");

        std::os::unix::fs::symlink("nowhere", test.there("run-1/dangling")).unwrap();
        let report = run(test, &copy(&server, &["run-1/*"], test, "links")).unwrap();
        assert_eq!(report.failures.count, 1, "{report:?}");
        let failed = report.failures.sample[0].to_string();
        assert!(failed.starts_with("dangling: no such file"), "{failed}");
        assert_eq!(names(test, "links"), BTreeSet::from(["a1.h5".to_owned()]));
        let report = run(test, &copy(&server, &["run-*/b", "none*"], test, "partly")).unwrap();
        assert_eq!(report.failures.count, 1, "{report:?}");
        assert!(report.failures.sample[0].to_string().contains("none*"), "{report:?}");
        assert_eq!(names(test, "partly").iter().filter(|name| *name == "b").count(), 1);

        fs::write(test.there("run-1/b"), "other").unwrap();
        let error = run(test, &copy(&server, &["run-*/b"], test, "twice")).unwrap_err();
        assert!(error.to_string().contains("run-1/b and run-2/b have one name"), "{error}");
        let error = run(test, &copy(&server, &["run-[z-a]"], test, "wrong")).unwrap_err();
        assert!(error.to_string().contains("wrong set of characters"), "{error}");
    });
}

/// Of several sources too: the first tells nothing of the directory that all go into.
#[test]
fn contents_of_what_is_no_directory_fail_once_by_its_name() {
    limited(|test| {
        let server = Server::start(test);
        fs::write(test.there("a"), "a").unwrap();
        fs::create_dir(test.there("b")).unwrap();
        fs::write(test.there("b/in"), "in").unwrap();
        for (number, (sources, failed)) in [
            (&["a*"][..], &["a"][..]),
            (&["a"], &["a"]),
            (&["*"], &["a"]),
            (&["none", "b"], &["none"]),
            (&["a", "none"], &["a", "none"]),
        ]
        .into_iter()
        .enumerate()
        {
            let mut options = copy(&server, sources, test, &number.to_string());
            options.copy_contents = true;
            let report = run(test, &options).unwrap();
            let found: Vec<_> = report.failures.sample.iter().map(|it| &it.path[..]).collect();
            assert_eq!(found, failed, "{report:?}");
            assert_eq!(report.failures.count, failed.len() as u64);
        }
    });
}

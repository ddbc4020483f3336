//! Copies: the contents that arrive, and their names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use longhaul::{CarrierChoice, ConnectOptions, CopyOptions, CopyPaths, ServeEvent};
use longhaul_needs::needs;
use longhaul_wire::Protect;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::Signal;

use crate::program::Program;
use crate::relay::Relay;
use crate::server::{Copying, Server, over, pull, push, run, slowly};
use crate::test::{limited, until};
use crate::trees::{assert_same, is_hidden, make_tree, names, noise};

#[test]
fn a_tree_is_pushed_in_every_protection() {
    limited(|test| {
        make_tree(&test.here("tree"));
        for &protect in Protect::ALL {
            let server = Server::start(test);
            let to = protect.to_string();
            let options = push(&test.here("tree"), server.address, to.as_bytes());
            let report = run(test, &over(options, |by| by.protect = protect)).unwrap();
            assert_same(&test.here("tree"), &test.there(&to));
            assert!(report.verified, "{report:?}");
            assert_eq!((report.files, report.resumed_bytes), (207, 0));
            assert_eq!(server.outcome(), Ok(report.bytes));
        }
        // Nothing else is left behind.
        assert_eq!(names(&test.path("there")).len(), Protect::ALL.len());
    });
}

#[test]
fn a_tree_is_pulled() {
    limited(|test| {
        make_tree(&test.there("tree"));
        let server = Server::start(test);
        let options = pull(server.address, b"tree", &test.here("copy"));
        let options = over(options, |by| by.carrier = CarrierChoice::Udp);
        let report = run(test, &options).unwrap();
        assert_same(&test.there("tree"), &test.here("copy"));
        assert!(report.verified);
        assert_eq!(report.link.carrier, "udp");
        assert_eq!(names(&test.path("here")), ["copy"]);
    });
}

#[test]
fn a_terabyte_of_holes_costs_its_data_there_and_back() {
    limited(|test| {
        let file = fs::File::create(test.here("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        for number in 0..16u64 {
            file.write_all_at(&[number as u8 + 1; 1 << 16], number << 36).unwrap();
        }
        for (name, back) in [("there", "back"), ("tcp", "over tcp")] {
            let by_tcp = name == "tcp";
            let carrier = if by_tcp { CarrierChoice::Tcp } else { CarrierChoice::Udp };
            let server = Server::start(test);
            let options = push(&test.here("sparse"), server.address, name.as_bytes());
            let report = run(test, &over(options, |by| by.carrier = carrier)).unwrap();
            assert_eq!((report.files, report.bytes), (1, 1 << 20));
            let server = Server::start(test);
            let options = pull(server.address, name.as_bytes(), &test.here(back));
            let report = run(test, &over(options, |by| by.carrier = carrier)).unwrap();
            assert!(report.verified && report.bytes == 1 << 20, "{report:?}");
            let copy = fs::File::open(test.here(back)).unwrap();
            let there = copy.metadata().unwrap();
            assert_eq!(there.len(), 1 << 40);
            assert!(there.blocks() * 512 <= 2 << 20);
            for number in 0..16u64 {
                let mut read = vec![9; 1 << 17];
                copy.read_exact_at(&mut read, number << 36).unwrap();
                assert!(read[..1 << 16].iter().all(|byte| *byte == number as u8 + 1));
                assert!(read[1 << 16..].iter().all(|byte| *byte == 0));
            }
        }
    });
}

#[test]
fn tcp_carries_too() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let server = Server::start(test);
        for protect in [Protect::Clear, Protect::Aead] {
            let to = protect.to_string();
            let options = push(&test.here("tree"), server.address, to.as_bytes());
            let tcp = |lanes| {
                move |by: &mut ConnectOptions| {
                    (by.protect, by.carrier, by.lanes) = (protect, CarrierChoice::Tcp, lanes);
                }
            };
            let options = over(options, tcp(2));
            let report = run(test, &options).unwrap();
            assert_same(&test.here("tree"), &test.there(&to));
            assert_eq!(report.link.carrier, "tcp");

            let options = pull(server.address, to.as_bytes(), &test.here(&to));
            run(test, &over(options, tcp(3))).unwrap();
            assert_same(&test.here("tree"), &test.here(&to));
        }
    });
}

#[test]
fn several_lanes_carry_one_file() {
    limited(|test| {
        fs::write(test.here("f"), noise(5, 30_000_000)).unwrap();
        let server = Server::start(test);
        let options = push(&test.here("f"), server.address, b"g");
        run(test, &over(options, |by| by.lanes = 4)).unwrap();
        assert_same(&test.here("f"), &test.there("g"));
        let options = pull(server.address, b"g", &test.here("h"));
        run(test, &over(options, |by| by.lanes = 3)).unwrap();
        assert_same(&test.here("f"), &test.here("h"));
    });
}

#[test]
fn several_sources_go_into_a_directory_or_nowhere() {
    limited(|test| {
        for (name, seed) in [("a", 1), ("b", 2)] {
            fs::write(test.here(name), noise(seed, 10_000)).unwrap();
        }
        let server = Server::start(test);
        let several = |to: &[u8]| {
            let mut options = push(&test.here("a"), server.address, to);
            let sources = ["a", "b"].map(|name| test.here(name)).to_vec();
            options.paths = CopyPaths::Push { sources, destination: to.to_vec() };
            run(test, &options)
        };
        assert_eq!(several(b"new/deep").unwrap().files, 2);
        assert_same(&test.here("b"), &test.there("new/deep/b"));
        // A file in the place of the directory is not replaced by one of the sources.
        fs::write(test.there("taken"), "kept").unwrap();
        several(b"taken").unwrap_err();
        assert_eq!(fs::read(test.there("taken")).unwrap(), b"kept");
    });
}

#[needs(direct_io)]
#[test]
fn large_files_go_past_the_page_cache_of_either_host() {
    limited(|test| {
        // Not whole blocks, and one file that is too small for it.
        fs::create_dir(test.here("tree")).unwrap();
        fs::write(test.here("tree/large"), noise(7, 5_000_001)).unwrap();
        fs::write(test.here("tree/small"), noise(8, 5_001)).unwrap();
        let server = Server::with(test, |options| options.direct = true);
        run(test, &push(&test.here("tree"), server.address, b"up")).unwrap();
        let mut options = pull(server.address, b"up", &test.here("down"));
        options.direct = true;
        run(test, &options).unwrap();
        let in_cache = |path: &Path| {
            let file = fs::File::open(path).unwrap();
            let mut byte = [0];
            let into = &mut [io::IoSliceMut::new(&mut byte)];
            let read = preadv2(&file, into, 0, ReadWriteFlags::NOWAIT);
            read != Err(Errno::AGAIN)
        };
        // One that was written without is in the cache.
        assert!(in_cache(&test.here("tree/large")));
        assert!(!in_cache(&test.there("up/large")));
        assert!(!in_cache(&test.here("down/large")));
        assert_same(&test.here("tree"), &test.here("down"));
    });
}

#[test]
fn a_copy_without_hashes_goes_there_and_back_where_the_path_is_protected() {
    limited(|test| {
        fs::write(test.here("f"), noise(6, 5_000_000)).unwrap();
        let server = Server::start(test);
        let ways = [CarrierChoice::Udp, CarrierChoice::Tcp]
            .into_iter()
            .flat_map(|carrier| [Protect::Aead, Protect::Integrity].map(|way| (carrier, way)));
        for (carrier, protect) in ways {
            let to = format!("{carrier:?}-{protect}");
            let options = push(&test.here("f"), server.address, to.as_bytes());
            assert!(!run(test, &unverified(options, carrier, protect)).unwrap().verified);
            assert_same(&test.here("f"), &test.there(&to));
            let options = pull(server.address, to.as_bytes(), &test.here(&to));
            let report = run(test, &unverified(options, carrier, protect)).unwrap();
            assert!(!report.verified && report.failures.is_empty());
            assert_same(&test.here("f"), &test.here(&to));
        }
        let options = push(&test.here("f"), server.address, b"unchecked");
        let options = unverified(options, CarrierChoice::Auto, Protect::Clear);
        let error = run(test, &options).unwrap_err().to_string();
        assert!(error.contains("nothing would notice corrupted data"), "{error}");
        assert!(!test.there("unchecked").exists());
    });
}

fn unverified(options: CopyOptions, carrier: CarrierChoice, protect: Protect) -> CopyOptions {
    let mut options = over(options, |by| (by.carrier, by.protect) = (carrier, protect));
    options.verify = false;
    options
}

#[test]
fn many_small_files_go_there_and_back() {
    limited(|test| {
        for i in 0..5_000u64 {
            let folder = test.here(&format!("tree/{}", i % 50));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(i.to_string()), noise(i, (i % 3000) as usize)).unwrap();
        }
        let server = Server::start(test);
        let report = run(test, &push(&test.here("tree"), server.address, b"")).unwrap();
        assert_eq!(report.files, 5_051);
        assert_same(&test.here("tree"), &test.there("tree"));
        run(test, &pull(server.address, b"tree", &test.here("back"))).unwrap();
        assert_same(&test.here("tree"), &test.here("back"));
    });
}

#[test]
fn an_empty_file_and_an_empty_directory_are_copied() {
    limited(|test| {
        fs::write(test.here("empty"), b"").unwrap();
        fs::create_dir(test.here("bare")).unwrap();
        let server = Server::start(test);
        for carrier in [CarrierChoice::Udp, CarrierChoice::Tcp] {
            for name in ["empty", "bare"] {
                let to = format!("{name}-{carrier:?}");
                let options = push(&test.here(name), server.address, to.as_bytes());
                let report = run(test, &over(options, |by| by.carrier = carrier)).unwrap();
                assert_eq!((report.files, report.bytes, report.verified), (1, 0, true));
                assert_same(&test.here(name), &test.there(&to));
                let options = pull(server.address, to.as_bytes(), &test.here(&to));
                run(test, &over(options, |by| by.carrier = carrier)).unwrap();
                assert_same(&test.here(name), &test.here(&to));
            }
        }
    });
}

#[test]
fn names_are_bytes() {
    limited(|test| {
        let strange: [&[u8]; 5] =
            [b"\xff\xfe", b"line\nbreak", b"%41", b"back\\slash", "gr\u{fc}n".as_bytes()];
        fs::create_dir(test.here("tree")).unwrap();
        for (i, name) in strange.iter().enumerate() {
            let folder = test.here("tree").join(OsStr::from_bytes(name));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(OsStr::from_bytes(name)), noise(i as u64, 999)).unwrap();
        }
        let server = Server::start(test);
        run(test, &push(&test.here("tree"), server.address, b"\xfd\xfc")).unwrap();
        let there = test.path("there").join(OsStr::from_bytes(b"\xfd\xfc"));
        assert_same(&test.here("tree"), &there);
        run(test, &pull(server.address, b"\xfd\xfc/\xff\xfe", &test.here("back"))).unwrap();
        assert_same(&there.join(OsStr::from_bytes(b"\xff\xfe")), &test.here("back"));
    });
}

#[test]
fn two_copies_at_once_do_not_mix() {
    limited(|test| {
        for (i, name) in ["a", "b"].iter().enumerate() {
            fs::write(test.here(name), noise(i as u64, 2_000_000)).unwrap();
            fs::write(test.there(&format!("from-{name}")), noise(9 + i as u64, 2_000_000)).unwrap();
        }
        let server = Server::start(test);
        let mut copies = Vec::new();
        for name in ["a", "b"] {
            let options = push(&test.here(name), server.address, format!("to-{name}").as_bytes());
            copies.push(Copying::start(test, slowly(options)));
            let from = format!("from-{name}");
            let options = pull(server.address, from.as_bytes(), &test.here(&from));
            copies.push(Copying::start(test, slowly(options)));
        }
        for copying in copies {
            copying.end().unwrap();
        }
        for name in ["a", "b"] {
            assert_same(&test.here(name), &test.there(&format!("to-{name}")));
            let from = format!("from-{name}");
            assert_same(&test.there(&from), &test.here(&from));
        }
        let began = |event: &&ServeEvent| matches!(event, ServeEvent::Began { .. });
        assert_eq!(server.events().iter().filter(began).count(), 4);
    });
}

#[test]
fn the_same_copy_twice_at_once_is_refused() {
    limited(|test| {
        fs::write(test.here("f"), noise(1, 10_000_000)).unwrap();
        let server = Server::start(test);
        // The first is under way until the second has been refused, and not longer.
        let relay = Relay::paced(server.address, 2_000_000);
        let first = Copying::start(test, push(&test.here("f"), relay.address, b"f"));
        first.moved(300_000);
        let error = run(test, &push(&test.here("f"), relay.address, b"f")).unwrap_err();
        assert!(error.to_string().contains("under way already"), "{error}");
        relay.hurry();
        first.end().unwrap();
        assert_same(&test.here("f"), &test.there("f"));
    });
}

#[test]
fn two_sources_of_one_name_are_refused_before_anything_is_done() {
    limited(|test| {
        for side in ["here", "there"] {
            for folder in ["a", "b"] {
                fs::create_dir_all(test.path(side).join(folder)).unwrap();
                fs::write(test.path(side).join(folder).join("f"), folder).unwrap();
            }
        }
        let server = Server::start(test);
        let there = |path: &str| format!("lh://{}/{path}", server.address);
        for words in [
            ["here/a/f", "here/b/f/", &there("new/")],
            [&there("a/f"), &there("b//f"), "here/new/"],
        ] {
            let copy = Program::cp(test, &words).end();
            assert_eq!(copy.status, Some(2), "{copy:?}");
            assert!(copy.stderr.contains("two sources are called f"), "{copy:?}");
        }
        assert_eq!(names(&test.path("here")), ["a", "b"]);
        assert_eq!(names(&test.path("there")), ["a", "b"]);
    });
}

#[test]
fn contents_do_not_go_onto_a_file() {
    limited(|test| {
        for side in ["here", "there"] {
            fs::create_dir(test.path(side).join("tree")).unwrap();
            fs::write(test.path(side).join("tree/in"), "in").unwrap();
            fs::write(test.path(side).join("file"), "file").unwrap();
        }
        let server = Server::start(test);
        let there = |path: &str| format!("lh://{}/{path}", server.address);
        for words in [["here/tree/.", &there("file")], [&there("tree/."), "here/file"]] {
            Program::cp(test, &words).end().assert_failed("file: is not a directory");
        }
        assert_eq!(names(&test.path("here")), ["file", "tree"]);
        assert_eq!(names(&test.path("there")), ["file", "tree"]);
    });
}

#[test]
fn errors_of_a_command_are_printed_whole_and_on_lines_of_their_own() {
    limited(|test| {
        let long = format!("lh://192.0.2.1/{}", "long/".repeat(1_000));
        for (words, message) in [
            (
                &["here/f", "lh://192.0.2.1/", "--carrier", "pigeon"][..],
                "[possible values: auto, udp, tcp]",
            ),
            (&["here/f"], "what to copy, and where to?"),
            (
                &["here/f", &long],
                "a path at a server has 4096 bytes at most, and this one has 4999",
            ),
            (&["@a:\nb", "here/"], "@a:\\nb: the user is missing"),
        ] {
            let copy = Program::cp(test, words).end();
            assert_eq!(copy.status, Some(2), "{copy:?}");
            let error = copy.json()["error"].as_str().unwrap().to_owned();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains("--help") && !error.contains("Usage"), "{error}");
        }
    });
}

#[test]
fn a_pull_names_what_no_entry_can_have() {
    limited(|test| {
        for folder in ["a", "b"] {
            fs::create_dir(test.there(folder)).unwrap();
            fs::write(test.there(folder).join("f"), folder).unwrap();
        }
        // Made step by step, because no call takes a path as long as this.
        let mut deep = fs::File::open(test.there("a")).unwrap();
        let leaf = format!("{}leaf", "e".repeat(90));
        for n in 0..21 {
            let name = if n < 20 { "d".repeat(200) } else { leaf.clone() };
            mkdirat(&deep, &name, Mode::RWXU).unwrap();
            deep = openat(&deep, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
        let server = Server::start(test);
        let there = |path: &str| format!("lh://{}/{path}", server.address);
        let both = [&there("a/."), &there("b/."), "here/new/"];
        let copy = Program::cp(test, &both).end();
        copy.assert_failed("longhaul: f: another source holds the same name\n");
        // The name is there, and where it is.
        copy.assert_failed(&format!("/...{leaf}: its path is longer than 4096 bytes: ddd"));
        copy.assert_failed(&format!("/{leaf}\n"));
        assert!(!copy.stderr.contains("(not copied"), "{copy:?}");
        assert_eq!(fs::read(test.here("new/f")).unwrap().len(), 1);
    });
}

#[test]
fn special_files_are_skipped_with_a_note_and_the_copy_is_complete() {
    limited(|test| {
        for folder in [test.here("up"), test.there("down")] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("f"), "f").unwrap();
            make_fifo(&folder.join("p"));
            // Its name has to be short.
            let _socket = std::os::unix::net::UnixListener::bind(folder.join("s")).unwrap();
        }
        let server = Server::start(test);
        let there = |path: &str| format!("lh://{}/{path}", server.address);
        for (from, to) in [("here/up", there("")), (&there("down"), "here/".to_owned())] {
            // The second finds nothing to go on from.
            for unchanged in [0, 2] {
                let copy = Program::cp(test, &[from, &to]).end();
                copy.assert_succeeded();
                let json = copy.json();
                assert_eq!(json["unchanged"]["files"], unchanged, "{json}");
                assert_eq!((&json["failed"], &json["skipped"]), (&0.into(), &2.into()), "{json}");
                assert_eq!(json["files"], 2 - unchanged, "{json}");
                assert_eq!(json["verified"], true, "{json}");
                let skips = json["skips"].as_array().unwrap();
                assert!(skips.iter().all(|skip| skip["code"] == "skipped"), "{json}");
                let fifo =
                    skips.iter().find(|skip| skip["reason"].as_str().unwrap().contains("FIFO"));
                assert!(fifo.unwrap()["path"].as_str().unwrap().ends_with("/p"), "{json}");
            }
        }
        for copied in [test.there("up"), test.here("down")] {
            assert_eq!(names(&copied), ["f"]);
            assert_no_hidden(copied.parent().unwrap());
        }
        // One that is a source itself, too; people get a note.
        let words = ["cp", "--token-file", "token", "here/up/p", &there("alone")];
        let copy = Program::start(test, &words).end();
        copy.assert_succeeded();
        assert!(copy.stderr.contains("note: p: it is a FIFO, which is not copied"), "{copy:?}");
        assert!(copy.stderr.contains("; 1 entry skipped"), "{copy:?}");
        assert_no_hidden(&test.path("there"));
        assert!(!test.there("alone").exists());
    });
}

#[test]
fn entries_that_fail_are_named_with_their_code_and_the_rest_arrives() {
    limited(|test| {
        fs::create_dir(test.here("tree")).unwrap();
        fs::write(test.here("tree/f"), "f").unwrap();
        fs::write(test.here("tree/g"), "g").unwrap();
        fs::create_dir_all(test.there("tree/g")).unwrap();
        let server = Server::start(test);
        let copy = Program::cp(test, &["here/tree", &format!("lh://{}/", server.address)]).end();
        copy.assert_failed(
            "tree/g: cannot give it its name at the destination: a directory of that name is in the way",
        );
        copy.assert_failed("Where the reason can be mended, run the same command again");
        let json = copy.json();
        assert_eq!((&json["failed"], &json["skipped"]), (&1.into(), &0.into()), "{json}");
        assert_eq!(json["failures"][0]["code"], "in-the-way", "{json}");
        assert_eq!((&json["bytes"], &json["bytes_done"]), (&1.into(), &1.into()), "{json}");
        assert_same(&test.here("tree/f"), &test.there("tree/f"));
    });
}

pub fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// Nothing of a transfer is left in `folder`, or soon will not be.
fn assert_no_hidden(folder: &Path) {
    let is_gone = || !names(folder).iter().any(|name| is_hidden(name));
    until("the hidden directory is gone", || is_gone().then_some(()));
}

#[test]
fn names_with_ends_of_lines_and_escape_codes_forge_nothing_at_either_end() {
    limited(|test| {
        let forged = "a\n10.0.0.7:443: done, 1 GB\u{1b}[2J\u{202e}";
        for folder in [test.here("tree"), test.there("tree")] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(forged), "x").unwrap();
            make_fifo(&folder.join(format!("{forged}, a FIFO")));
        }
        // Neither takes the place of a directory.
        for folder in [test.there("up"), test.here("down")] {
            fs::create_dir_all(folder.join("tree").join(forged)).unwrap();
        }
        let (server, at) = Program::serve(test, "127.0.0.1:0", &[]);
        let push = Program::cp(test, &["here/tree", &format!("lh://{at}/up")]).end();
        let pull = Program::cp(test, &[&format!("lh://{at}/tree"), "here/down"]).end();
        server.signal(Signal::TERM);
        let served = server.end();
        push.assert_failed("a\\n10.0.0.7:443: done, 1 GB\\u{1b}");
        for output in [&push.stderr, &pull.stderr, &served.stderr] {
            assert!(output.contains("10.0.0.7:443"), "{output}");
            assert!(!output.lines().any(|line| line.starts_with("10.0.0.7")), "{output}");
            assert!(!output.contains(['\u{1b}', '\u{202e}', '\r']), "{output}");
        }
    });
}

#[test]
fn nothing_is_left_where_a_source_is_missing_but_what_was_copied() {
    limited(|test| {
        fs::create_dir_all(test.here("old")).unwrap();
        for file in [test.here("f"), test.there("f")] {
            fs::write(file, "x").unwrap();
        }
        let server = Server::start(test);
        let there = |path: &str| format!("lh://{}/{path}", server.address);
        let left = |at: &Path| names(at).into_iter().map(|it| it.into_string().unwrap()).collect();
        let expect = |at: &Path, expected: &[&str]| {
            let left: Vec<String> = left(at);
            assert_eq!(left, expected, "{}", at.display());
        };
        let cp = |words: &[&str]| Program::cp(test, words).end().assert_failed("");
        for to in ["here/new/", "here/a/b/", "here/name", "here/old", "here/old/"] {
            cp(&[&there("missing"), to]);
            cp(&[&there("missing/."), to]);
            expect(&test.path("here"), &["f", "old"]);
            expect(&test.here("old"), &[]);
        }
        cp(&[&there("f"), &there("missing"), "here/both/"]);
        expect(&test.here("both"), &["f"]);
        for to in ["", "new/", "a/b/", "name"] {
            cp(&["here/missing", &there(to)]);
            expect(&test.path("there"), &["f"]);
        }
        cp(&["here/f", "here/missing", &there("both/")]);
        expect(&test.there("both"), &["f"]);
        // Where nothing shows what is there, the record does.
        let blind = Server::with(test, |options| options.access[0].allow_read = false);
        cp(&["here/f", "here/missing", &format!("lh://{}/blind/", blind.address)]);
        assert_eq!(names(&test.there("blind")).iter().filter(|name| is_hidden(name)).count(), 1);
    });
}

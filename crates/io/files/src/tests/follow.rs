//! Links are copied as what they point at, and none leads out of what is served.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use longhaul_sys::files::ConfinedDir;
use longhaul_wire::KeptAttributes;

use super::*;

/// Files and directories, and links of all kinds to them.
fn tree(scratch: &Scratch) -> PathBuf {
    scratch.file("outside/secret", "secret");
    scratch.file("served/beside/file", "beside");
    scratch.file("served/tree/file", "file");
    scratch.file("served/tree/large", bytes(1_500_000, 1));
    scratch.file("served/tree/sub/in", "in");
    for (name, target) in [
        ("to file", "file"),
        ("to large", "large"),
        ("to sub", "sub"),
        ("to link", "to sub/in"),
        ("to beside", "../beside"),
        ("sub/to file", "../file"),
        ("nowhere", "none"),
        ("through file", "file/in"),
        ("itself", "itself"),
        ("sub/up", ".."),
        ("out", "../../outside/secret"),
        ("out directory", "../../outside"),
    ] {
        symlink(target, scratch.at("served/tree").join(name)).unwrap();
    }
    scratch.at("served/tree")
}

fn check(scratch: &Scratch, tree: SourceTree, leads_out: bool) {
    let copy = Copy::new(tree.keeping(KeptAttributes::FOLLOW, true), &scratch.directory("to"));
    copy.run();
    let failures = copy.failures();
    for (path, word) in [
        ("tree/nowhere", "leads nowhere"),
        ("tree/through file", "leads nowhere"),
        ("tree/itself", "leads back"),
    ] {
        assert!(failures.iter().any(|it| it.0 == path && it.1.contains(word)), "{failures:?}");
    }
    // Of a directory that holds it there is no copy in it, by no other name either.
    let back = ["tree/sub/up", "tree/to sub/up"];
    for path in back {
        assert!(failures.iter().any(|it| it.0 == path && it.1.contains("back")), "{failures:?}");
    }
    let contents = |path: &str| std::fs::read(scratch.at("to/tree").join(path)).ok();
    for (path, expected) in [
        ("to file", &b"file"[..]),
        ("to large", &bytes(1_500_000, 1)),
        ("to sub/in", b"in"),
        ("to sub/to file", b"file"),
        ("to link", b"in"),
        ("to beside/file", b"beside"),
        ("sub/to file", b"file"),
    ] {
        assert!(contents(path).as_deref() == Some(expected), "{path}");
    }
    assert!(!scratch.at("to/tree/to file").is_symlink());
    let out = [contents("out"), contents("out directory/secret")];
    match leads_out {
        true => assert_eq!(out, [Some(b"secret".to_vec()), Some(b"secret".to_vec())]),
        false => {
            assert_eq!(out, [None, None]);
            for path in ["tree/out", "tree/out directory"] {
                assert!(failures.iter().any(|it| it.0 == path), "{failures:?}");
            }
        }
    }
    assert_eq!(failures.len(), if leads_out { 5 } else { 7 }, "{failures:?}");
}

#[test]
fn links_are_followed_wherever_they_lead_at_the_users_own_host() {
    let scratch = Scratch::new();
    let tree = tree(&scratch);
    check(&scratch, SourceTree::local(&[tree], false), true);
}

#[test]
fn links_are_followed_within_what_is_served_and_not_out_of_it() {
    let scratch = Scratch::new();
    tree(&scratch);
    let root = Arc::new(ConfinedDir::open_root(scratch.at("served")).unwrap());
    check(&scratch, SourceTree::below(root, &[b"tree".to_vec()], false), false);
}

/// Ends of paths, as the kernel has them: contents, nothing for directories, and words of why not.
type Seen = BTreeMap<String, Result<Option<Vec<u8>>, &'static str>>;

/// Looks at all below a directory, through links. A directory that is `above` leads back.
fn look(at: &Path, path: &str, above: &BTreeSet<PathBuf>, seen: &mut Seen) {
    for entry in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
        let path = format!("{path}/{}", entry.file_name().into_string().unwrap());
        let found = match entry.path().canonicalize() {
            Ok(real) if above.contains(&real) => Err("leads back"),
            Ok(real) if real.is_dir() => {
                let above = above.iter().cloned().chain([real.clone()]).collect();
                look(&real, &path, &above, seen);
                Ok(None)
            }
            Ok(real) => Ok(Some(std::fs::read(real).unwrap())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("leads nowhere"),
            Err(_) => Err("leads back"),
        };
        seen.insert(path, found);
    }
}

#[test]
fn drawn_trees_arrive_as_their_links_lead_and_circles_fail_by_name() {
    let mut broken = 0;
    for seed in 0..100_u64 {
        let scratch = Scratch::new();
        let mut word = seed;
        let mut below = |bound: usize| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 33) as usize % bound
        };
        let mut directories = vec![scratch.directory("served/tree")];
        for number in 0..4 {
            let within = directories[below(directories.len())].join(format!("d{number}"));
            std::fs::create_dir(&within).unwrap();
            directories.push(within);
        }
        let mut targets = directories.clone();
        for number in 0..5 {
            let file = directories[below(5)].join(format!("f{number}"));
            std::fs::write(&file, bytes(1 + below(3_000), number)).unwrap();
            targets.push(file);
        }
        targets.push(scratch.at("served/tree/nothing"));
        for number in 0..1 + below(4) {
            let link = directories[below(5)].join(format!("l{number}"));
            targets.push(link.clone());
            let served = scratch.at("served");
            let up = "../".repeat(link.strip_prefix(&served).unwrap().iter().count() - 1);
            let target = targets[below(targets.len())].strip_prefix(&served).unwrap();
            symlink(Path::new(&up).join(target), link).unwrap();
        }
        let root = scratch.at("served/tree").canonicalize().unwrap();
        let mut expected = Seen::new();
        look(&root, "tree", &[root.clone()].into(), &mut expected);
        broken += expected.values().filter(|it| it.is_err()).count();
        let served = Arc::new(ConfinedDir::open_root(scratch.at("served")).unwrap());
        let trees = [
            SourceTree::local(std::slice::from_ref(&root), false),
            SourceTree::below(served, &[b"tree".to_vec()], false),
        ];
        for (number, tree) in trees.into_iter().enumerate() {
            let to = scratch.directory(&format!("to{number}"));
            let copy = Copy::new(tree.keeping(KeptAttributes::FOLLOW, true), &to);
            copy.run();
            let mut arrived = Seen::new();
            look(&to.join("tree"), "tree", &BTreeSet::new(), &mut arrived);
            for (path, reason) in copy.failures() {
                let words = ["leads back", "leads nowhere"];
                let word = words.into_iter().find(|word| reason.contains(word));
                arrived.insert(path, Err(word.unwrap_or("something else")));
            }
            assert!(arrived == expected, "{seed}: {arrived:?} and not {expected:?}");
            let links = expected.keys().filter(|path| to.join(path).is_symlink());
            assert_eq!(links.count(), 0, "{seed}");
        }
    }
    assert!(broken > 50, "{broken}");
}

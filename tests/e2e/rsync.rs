//! Copies beside `rsync -rlpt`, with `-H`, as root with `-A -X -o -g` too, with the same options: drawn trees, earlier destinations and command lines.
//!
//! The options mean the same, and so set, contents and metadata are the same afterwards, but for
//! [`DIFFERENCES`]. `LONGHAUL_RSYNC_DRAWS` says how many are drawn, `LONGHAUL_RSYNC_FROM` the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use longhaul::{
    CopyOptions, CopyReport, Deletes, FilterKind, FilterRule, KeptAttributes, NameList,
    list_beside_rules,
};
use longhaul_needs::needs;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::attributes::{ACCESS, DEFAULT, access_list, set, xattrs};
use crate::server::{Server, pull, push, run};
use crate::test::{Test, limited};
use crate::trees::{is_hidden, noise};

/// Differences from rsync that are meant, and how the comparison makes up for them.
///
/// Of lists of names, what is not drawn differs, too: a `..` that leads out is refused, as are `/./` and `--delete`. What
/// is behind a link in a listed directory fails, and is drawn ([`Words::list_within`]).
const DIFFERENCES: [(&str, Difference); 5] = [
    ("without -a a directory that was there keeps its mode", Difference::OldDirectoryMode),
    ("without -a set-id and sticky bits are not kept", Difference::Bits),
    (
        "with -u a newer file stays, also if -H has it be another name of one that is there and not newer: rsync makes \
         it one of that",
        Difference::NewerNames,
    ),
    (
        "only --delete replaces a file or link by a directory, or a directory by one of these, and then not what is \
         excluded, as by `k/` a directory k where the source has a file k",
        Difference::Kinds,
    ),
    (
        "with -X a listed link to a directory, with a slash behind it, has the attributes of the directory, as all else of \
         it: rsync takes those of the link, which has none",
        Difference::FollowedAttributes,
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    OldDirectoryMode,
    Bits,
    NewerNames,
    Kinds,
    FollowedAttributes,
}

#[needs(rsync)]
#[test]
fn trees_arrive_as_by_rsync_with_the_same_options() {
    limited(|test| {
        let server = Server::with(test, |options| {
            let access = &mut options.access[0];
            (access.allow_delete, access.allow_owners) = (true, true);
        });
        let number = |name: &str, default: u64| {
            std::env::var(name).map_or(default, |text| text.parse().unwrap())
        };
        let from = number("LONGHAUL_RSYNC_FROM", 1);
        for seed in (from..from + number("LONGHAUL_RSYNC_DRAWS", DRAWS)).chain(FOUND) {
            compare(test, &server, seed);
        }
    });
}

/// With these something was found: a set-user-ID bit that went when `-c` mended the group; a file that a listed link has
/// found under more paths than it has names, and was two; a listed link to a directory with attributes.
const FOUND: [u64; 3] = [121, 2804, 2146];

/// In `make test`; the limit of a test leaves time for some five times as many.
const DRAWS: u64 = 80;

fn compare(test: &Test, server: &Server, seed: u64) {
    let mut draw = Draw(seed);
    let pushes = draw.one_in(2);
    let (from, to) = if pushes { ("here", "there") } else { ("there", "here") };
    let source = test.path(from).join("tree");
    let [ours, theirs] = ["ours", "theirs"].map(|name| test.path(to).join(name));
    for old in [&source, &ours, &theirs] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir(&source).unwrap();
    fill(&mut draw, &source, 0);
    finish(&mut draw, &source);
    let words = Words::draw(&mut draw, &source).list_within(&mut Draw(!seed), &source);
    let old: Vec<PathBuf> = match draw.one_in(4) {
        true => vec![ours.clone()],
        false => {
            let top = if draw.one_in(2) { "tree" } else { "" };
            age(&mut draw, &source, &ours.join(top));
            if is_meant(Difference::Kinds) {
                words.followed(&source).for_each(|link| drop(fs::remove_file(ours.join(link))));
            }
            let replaces = words.delete || !is_meant(Difference::Kinds);
            // What a rule keeps in a directory keeps that.
            if replaces && words.rules.is_empty() {
                change_kinds(&mut draw, &ours.join(top));
            }
            let status = Command::new("cp").arg("-a").arg(&ours).arg(&theirs).status().unwrap();
            assert!(status.success());
            directories(&ours)
        }
    };
    for destination in [&ours, &theirs] {
        fs::create_dir_all(destination).unwrap();
    }
    let newer = newer_names(&words, &source, &theirs);
    let exactly = words.attributes.has(KeptAttributes::MODES);
    let before = look(&theirs, exactly, &old, &theirs, &newer);
    let mut rsync = Command::new("rsync");
    rsync.arg("-rlpt").args(words.rsync());
    if let Some(names) = &words.names {
        let list = test.path("list");
        let names = names.iter().map(|name| [name.as_os_str().as_encoded_bytes(), b"\0"].concat());
        fs::write(&list, names.collect::<Vec<_>>().concat()).unwrap();
        rsync.arg("-0").arg("--files-from").arg(list);
    }
    let slash = if words.contents { "/" } else { "" };
    rsync.arg(format!("{}{slash}", source.display())).arg(format!("{}/", theirs.display()));
    let output = rsync.output().unwrap();
    let missed = output.status.code() == Some(PARTIAL);
    assert!(output.status.success() || missed && words.misses() > 0, "{rsync:?}: {output:?}");

    let report = run_ours(test, server, &words, pushes, (&source, &ours));
    assert_eq!(
        report.failures.count,
        words.misses(),
        "seed {seed}, {rsync:?}, {:?}: {report:?}",
        words.names
    );
    if is_meant(Difference::FollowedAttributes) && words.attributes.has(KeptAttributes::XATTRS) {
        for link in words.followed(&source) {
            mend_attributes(&source.join(&link), &theirs.join(&link));
        }
    }
    // Newer files that rsync has not left alone.
    let after = look(&theirs, exactly, &old, &theirs, &newer);
    let replaced: BTreeSet<_> =
        newer.into_iter().filter(|path| before.get(path) != after.get(path)).collect();
    let look = |top| look(top, exactly, &old, &ours, &replaced);
    let (mut left, mut right) = (look(&ours), look(&theirs));
    for found in [&mut left, &mut right] {
        found.retain(|path, _| !words.links.iter().any(|link| path.starts_with(link)));
    }
    for (path, node) in &right {
        let differs = || format!("seed {seed}, {rsync:?}: {path:?}");
        let node = if replaced.contains(path) { &before[path] } else { node };
        assert_eq!(left.get(path), Some(node), "{}", differs());
    }
    let more: Vec<_> = left.keys().filter(|path| !right.contains_key(*path)).collect();
    assert!(more.is_empty(), "seed {seed}, {rsync:?}, {:?}: {more:?} too", words.names);
}

fn run_ours(
    test: &Test,
    server: &Server,
    words: &Words,
    pushes: bool,
    (source, destination): (&Path, &Path),
) -> CopyReport {
    let mut options: CopyOptions = match pushes {
        true => push(source, server.address, b"ours"),
        false => pull(server.address, b"tree", destination),
    };
    options.destination_is_directory = true;
    options.copy_contents = words.contents;
    options.merge = true;
    options.update = words.update;
    options.ignore_times = words.ignore_times;
    options.checksum = words.checksum;
    options.delete = words.delete.then(Deletes::default);
    options.rules = words.rules.clone();
    if let Some(names) = words.names.clone() {
        let names = names.into_iter().map(|path| path.into_os_string().into_encoded_bytes());
        let beside = list_beside_rules(names.collect(), words.rules.clone()).unwrap();
        (options.rules, options.names.due) = (beside.rules, beside.due);
        options.names.list = Some(Arc::new(NameList::new(beside.names).unwrap()));
    }
    options.attributes = words.attributes;
    run(test, &options).unwrap()
}

/// Options of a drawn command line.
struct Words {
    contents: bool,
    update: bool,
    ignore_times: bool,
    checksum: bool,
    delete: bool,
    rules: Vec<FilterRule>,
    /// Those of `--files-from`.
    names: Option<Vec<PathBuf>>,
    /// Of these the ones that fail in listed directories.
    missed: BTreeSet<PathBuf>,
    /// Links in listed directories that names lead through: directories for rsync.
    links: Vec<PathBuf>,
    attributes: KeptAttributes,
}

impl Words {
    fn draw(draw: &mut Draw, source: &Path) -> Self {
        let (contents, update) = (draw.one_in(2), draw.one_in(3));
        let (ignore_times, delete) = (draw.one_in(4), draw.one_in(2));
        let checksum = draw.one_in(3);
        let count = if draw.one_in(2) { 0 } else { 1 + draw.below(4) };
        let rule = |_| FilterRule {
            kind: if draw.one_in(3) { FilterKind::Include } else { FilterKind::Exclude },
            pattern: draw.pick(&PATTERNS).as_bytes().to_vec(),
        };
        let rules = (0..count).map(rule).collect();
        let names = draw.one_in(3).then(|| {
            let mut names = all_below(source);
            names.retain(|_| draw.one_in(5));
            let drawn = names.clone();
            let is_followed = |name: &PathBuf| {
                let is_within = |other: &PathBuf| name != other && name.starts_with(other);
                !source.join(name).is_symlink() || !drawn.iter().any(is_within)
            };
            names.extend(draw.one_in(4).then(|| MISSING.into()));
            let slashed = |name| if is_followed(&name) { slashed(source, name) } else { name };
            names.into_iter().map(slashed).collect()
        });
        let listed = names.is_some();
        let (contents, delete) = (contents || listed, delete && !listed);
        let attributes = match owns() && draw.one_in(2) {
            true => ATTRIBUTES
                .iter()
                .fold(KeptAttributes::default(), |all, (part, _)| all.with(*part, draw.one_in(2))),
            false => KeptAttributes::default(),
        };
        let attributes = attributes.with(KeptAttributes::HARD_LINKS, draw.one_in(2));
        let has_lists = attributes.has(KeptAttributes::ACCESS_LISTS);
        // As for rsync, whose -p, without which there is no -A, keeps modes exactly.
        let attributes =
            attributes.with(KeptAttributes::MODES, has_lists || !attributes.is_empty());
        let (missed, links) = (BTreeSet::new(), Vec::new());
        Self {
            contents,
            update,
            ignore_times,
            checksum,
            delete,
            rules,
            names,
            missed,
            links,
            attributes,
        }
    }

    /// Lists names in listed directories, too: that are not there, or behind links. What rules exclude is not missed.
    fn list_within(mut self, draw: &mut Draw, source: &Path) -> Self {
        let Some(names) = self.names.as_mut().filter(|_| self.rules.is_empty()) else {
            return self;
        };
        // Behind a link there are other names of files.
        let follows = !self.attributes.has(KeptAttributes::HARD_LINKS);
        let unslashed = names.iter().map(|name| name.components().collect::<PathBuf>());
        for directory in unslashed.collect::<Vec<_>>() {
            let at = source.join(&directory);
            if at.is_symlink() || !at.is_dir() {
                continue;
            }
            if draw.one_in(3) {
                self.missed.insert(directory.join(MISSING));
            }
            let links = all_below(&at).into_iter().map(|path| directory.join(path));
            for link in links.filter(|link| follows && source.join(link).is_symlink()) {
                if !draw.one_in(3) {
                    continue;
                }
                let is_directory = source.join(&link).is_dir();
                let below = if is_directory && draw.one_in(2) { "" } else { *draw.pick(&NAMES) };
                self.missed.insert(link.join(below));
                self.links.push(link);
            }
        }
        names.extend(self.missed.iter().cloned());
        self
    }

    /// Listed names of links that are directories for their slash: no link is replaced by one.
    fn followed(&self, source: &Path) -> impl Iterator<Item = PathBuf> {
        let names = self.names.iter().flatten();
        let slashed = names.filter(|name| name.as_os_str().as_encoded_bytes().ends_with(b"/"));
        let named = slashed.map(|name| name.components().collect::<PathBuf>());
        named.filter(|name| source.join(name).is_symlink())
    }

    /// Listed names that are not there or behind a link: nothing else is missed by them.
    fn misses(&self) -> u64 {
        let is_missing = |names: &Vec<_>| names.contains(&PathBuf::from(MISSING));
        u64::from(self.names.as_ref().is_some_and(is_missing)) + self.missed.len() as u64
    }

    fn rsync(&self) -> Vec<String> {
        let flag = |set: bool, word: &str| set.then(|| word.to_owned());
        let rules = self.rules.iter().map(|rule| {
            let option = if rule.kind == FilterKind::Include { "include" } else { "exclude" };
            format!("--{option}={}", String::from_utf8_lossy(&rule.pattern))
        });
        let flags = [
            flag(self.update, "-u"),
            flag(self.ignore_times, "-I"),
            flag(self.checksum, "-c"),
            flag(self.delete, "--delete"),
        ];
        let attributes = ATTRIBUTES.iter().filter(|(part, _)| self.attributes.has(*part));
        let attributes = attributes.map(|(_, word)| (*word).to_owned());
        flags.into_iter().flatten().chain(attributes).chain(rules).collect()
    }
}

/// A listed name, of which every second has a slash behind it, as that of a directory: not of a link that leads back
/// to itself, which fails then, nor of another user's, which rsync as root does not follow.
fn slashed(source: &Path, name: PathBuf) -> PathBuf {
    let path = source.join(&name);
    let leads_on = fs::metadata(&path)
        .map_or_else(|error| error.kind() == std::io::ErrorKind::NotFound, |_| true);
    let own = rustix::process::geteuid().as_raw();
    let is_own = |link: fs::Metadata| !link.is_symlink() || link.uid() == own;
    let leads_on = leads_on && fs::symlink_metadata(&path).map_or(true, is_own);
    let mut name = name.into_os_string();
    if leads_on && name.len() % 2 == 1 {
        name.push("/");
    }
    name.into()
}

const ATTRIBUTES: [(KeptAttributes, &str); 6] = [
    (KeptAttributes::HARD_LINKS, "-H"),
    (KeptAttributes::ACCESS_LISTS, "-A"),
    (KeptAttributes::XATTRS, "-X"),
    (KeptAttributes::OWNERS, "-o"),
    (KeptAttributes::GROUPS, "-g"),
    (KeptAttributes::NUMBERS, "--numeric-ids"),
];

const PATTERNS: [&str; 27] = [
    "a",
    "*.o",
    "/a",
    "/tree/a",
    "b/",
    "/b/",
    "a/b",
    "a/*",
    "a/**",
    "**/c",
    "/**/c",
    "**c",
    "c**",
    "*/",
    "*",
    "d/***",
    "/tree/*/c",
    "[ab]",
    "[!ab]",
    "[[:digit:]]*",
    "?",
    "??",
    "*.[oc]",
    "tree",
    "/tree/**/d.o",
    "b/**/a",
    "x?y",
];
const NAMES: [&str; 12] = ["a", "b", "c", "d", "a.o", "b.c", "c.o", "d.o", "1", "2x", "x y", ".e"];

/// A listed name that no tree has, and no rule matches.
const MISSING: &str = "not here";
/// Exit status of rsync where it could not copy all.
const PARTIAL: i32 = 23;

/// Paths of all that is below a directory.
fn all_below(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut directories) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            found.push(entry.path().strip_prefix(top).unwrap().to_owned());
            directories.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
        }
    }
    found.sort();
    found
}

/// Files, links and directories, which hold such again.
fn fill(draw: &mut Draw, at: &Path, depth: u64) {
    for name in NAMES {
        if !draw.one_in(2 + depth) {
            continue;
        }
        let path = at.join(name);
        match draw.below(8) {
            0..3 if depth < 3 => {
                fs::create_dir(&path).unwrap();
                fill(draw, &path, depth + 1);
                finish(draw, &path);
            }
            3 => {
                symlink(*draw.pick(&["a", "../b", "nowhere"]), &path).unwrap();
                own(draw, &path);
                set_time(&path, draw.below(1_000));
            }
            _ => write(draw, &path),
        }
    }
    if depth == 0 {
        link(draw, at);
    }
}

/// A directory that holds what it is to hold.
fn finish(draw: &mut Draw, path: &Path) {
    let mode = *draw.pick(&[0o755, 0o700, 0o750]);
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    own(draw, path);
    set_time(path, draw.below(1_000));
}

/// Gives files and links other names, in place of others.
fn link(draw: &mut Draw, top: &Path) {
    let is_file = |path: &PathBuf| !path.is_dir() || path.is_symlink();
    let files: Vec<_> =
        all_below(top).into_iter().map(|path| top.join(path)).filter(is_file).collect();
    for name in &files {
        let first = draw.pick(&files);
        if draw.one_in(4) && first != name {
            fs::remove_file(name).unwrap();
            fs::hard_link(first, name).unwrap();
            set_time(name.parent().unwrap(), draw.below(1_000));
        }
    }
}

/// Gives a directory the attributes of the one at the source, if it is there.
fn mend_attributes(from: &Path, to: &Path) {
    if !from.is_dir() || !to.is_dir() || to.is_symlink() {
        return;
    }
    let of_user = |(name, _): &(String, Vec<u8>)| name.starts_with("user.");
    for (name, _) in xattrs(to).into_iter().filter(of_user) {
        rustix::fs::removexattr(to, name).unwrap();
    }
    let from = fs::canonicalize(from).unwrap();
    xattrs(&from).iter().filter(|it| of_user(it)).for_each(|(name, value)| set(to, name, value));
}

/// Paths at the destination of files that are newer there, and one of several names at the source.
fn newer_names(words: &Words, source: &Path, to: &Path) -> BTreeSet<PathBuf> {
    let is_linked = words.update && words.attributes.has(KeptAttributes::HARD_LINKS);
    if !(is_meant(Difference::NewerNames) && is_linked) {
        return BTreeSet::new();
    }
    let top = Path::new(if words.contents { "" } else { "tree" });
    let is_newer = |path: &PathBuf| {
        let of = |path: &Path| fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
        let (here, there) = (of(&source.join(path)), of(&to.join(top.join(path))));
        let both = here.filter(|here| here.nlink() > 1).zip(there);
        both.is_some_and(|(here, there)| there.mtime() > here.mtime())
    };
    all_below(source).into_iter().filter(is_newer).map(|path| top.join(path)).collect()
}

fn write(draw: &mut Draw, path: &Path) {
    let size = match draw.below(5) {
        0 => 0,
        1 => 1_500_000,
        _ => draw.below(3_000) as usize,
    };
    fs::write(path, noise(draw.next(), size)).unwrap();
    let mode = *draw.pick(&[0o644, 0o600, 0o755, 0o444]);
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    own(draw, path);
    set_time(path, draw.below(1_000));
}

/// None is what [`access_list`] gives the owning group: of a directory rsync takes that for the mask, and loses it.
const MASKS: [u8; 3] = [0, 4, 5];

/// True if this process may give files to others.
fn owns() -> bool {
    rustix::process::geteuid().is_root()
}

/// Other owners, lists and attributes, where this process may set them.
fn own(draw: &mut Draw, path: &Path) {
    if !owns() {
        return;
    }
    let is_link = path.is_symlink();
    if draw.one_in(3) {
        lchown(path, Some(draw.below(3) as u32), Some(draw.below(3) as u32)).unwrap();
    }
    if draw.one_in(4) && !is_link {
        let name = *draw.pick(&["user.a", "user.b"]);
        set(path, name, &noise(draw.next(), draw.below(40) as usize));
    }
    if draw.one_in(4) && !is_link {
        set(path, ACCESS, &access_list(draw.below(3) as u32 + 1, *draw.pick(&MASKS)));
    }
    if draw.one_in(4) && path.is_dir() && !is_link {
        set(path, DEFAULT, &access_list(draw.below(3) as u32 + 1, *draw.pick(&MASKS)));
    }
    if draw.one_in(6) && !is_link {
        let mode = fs::metadata(path).unwrap().mode() & 0o777;
        // What is made in a directory takes its group by that bit, which rsync sets before and we behind.
        let bits = *draw.pick(if path.is_dir() { &[0o1000] } else { &[0o4000, 0o2000][..] });
        fs::set_permissions(path, PermissionsExt::from_mode(mode | bits)).unwrap();
    }
}

/// An earlier copy of `from`, of which some is missing, changed, older or newer, and something more is there.
fn age(draw: &mut Draw, from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut entries: Vec<_> = fs::read_dir(from).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, metadata) =
            (to.join(entry.file_name()), fs::symlink_metadata(entry.path()).unwrap());
        if draw.one_in(4) {
            continue;
        }
        if metadata.is_dir() {
            age(draw, &entry.path(), &path);
            if draw.one_in(2) {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o711)).unwrap();
            }
        } else if metadata.is_symlink() {
            symlink(if draw.one_in(2) { "other" } else { "a" }, &path).unwrap();
        } else if draw.one_in(3) {
            write(draw, &path);
        } else if metadata.nlink() > 1
            && draw.one_in(2)
            && let Some(first) = other_name(from, &metadata, to, &path)
        {
            fs::hard_link(first, &path).unwrap();
        } else {
            fs::copy(entry.path(), &path).unwrap();
            let is_patched = metadata.len() > 0 && draw.one_in(5);
            if is_patched {
                patch(draw, &path, metadata.len());
            }
            let time = metadata.mtime().unsigned_abs() - BEGIN;
            // Of two names that seem unchanged and have other contents it is open which one stays.
            let is_later = draw.one_in(4) || is_patched && metadata.nlink() > 1;
            set_time(&path, if is_later { time + 5 } else { time });
            if draw.one_in(4) {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
            }
        }
    }
    for name in ["more", "c.o", "z"] {
        if draw.one_in(3) && fs::symlink_metadata(from.join(name)).is_err() {
            write(draw, &to.join(name));
        }
    }
}

/// State at the destination of a name of this file, earlier in the directory.
fn other_name(from: &Path, file: &fs::Metadata, to: &Path, path: &Path) -> Option<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let is_other = |name: &&std::ffi::OsString| {
        let is_same = fs::symlink_metadata(from.join(name)).unwrap().ino() == file.ino();
        let there = to.join(name);
        is_same && there != path && there.is_file() && !there.is_symlink()
    };
    names.iter().find(is_other).map(|name| to.join(name))
}

/// Files and links where directories were, and directories that hold something where others were.
fn change_kinds(draw: &mut Draw, at: &Path) {
    let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, is_directory) = (entry.path(), entry.file_type().unwrap().is_dir());
        match (draw.one_in(4), is_directory) {
            (false, true) => change_kinds(draw, &path),
            (false, false) => {}
            (true, true) => {
                fs::remove_dir_all(&path).unwrap();
                if draw.one_in(2) {
                    symlink("a", &path).unwrap();
                } else {
                    write(draw, &path);
                }
            }
            (true, false) => {
                fs::remove_file(&path).unwrap();
                fs::create_dir_all(path.join("below")).unwrap();
                write(draw, &path.join("below/file"));
                write(draw, &path.join("a"));
            }
        }
    }
}

/// Other contents of the same size.
fn patch(draw: &mut Draw, path: &Path, len: u64) {
    let mut data = fs::read(path).unwrap();
    data[draw.below(len) as usize] ^= 1;
    fs::remove_file(path).unwrap();
    fs::write(path, data).unwrap();
}

fn directories(at: &Path) -> Vec<PathBuf> {
    let mut found = vec![at.to_owned()];
    for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(directories(&entry.path()));
        }
    }
    found
}

/// Everything below `top`, by path: kind, contents, mode, time, attributes and other names, as far as they are to be the same.
/// Where modes are not kept `exactly` that is not the mode of `old` directories, named below `old_top`. What is `apart`
/// has no other names.
fn look(
    top: &Path,
    exactly: bool,
    old: &[PathBuf],
    old_top: &Path,
    apart: &BTreeSet<PathBuf>,
) -> BTreeMap<PathBuf, String> {
    let (mut found, mut linked) = (BTreeMap::new(), BTreeMap::<u64, BTreeSet<PathBuf>>::new());
    let mut paths = vec![top.to_owned()];
    while let Some(path) = paths.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let own = path.strip_prefix(top).unwrap().to_owned();
        let (mut mode, mut time) = (metadata.mode() & 0o7777, metadata.mtime());
        let contents = if metadata.is_dir() {
            let inside = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap());
            // One is left where a listed name was missing.
            paths.extend(inside.filter(|it| !is_hidden(&it.file_name())).map(|it| it.path()));
            "a directory".to_owned()
        } else if metadata.is_symlink() {
            mode = 0;
            format!("a link to {}", fs::read_link(&path).unwrap().display())
        } else {
            blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string()
        };
        // Something was deleted in a directory that stays: at a time of its own by each program.
        if time > (BEGIN + YEAR) as i64 {
            time = -1;
        }
        if !exactly && is_meant(Difference::Bits) {
            mode &= 0o777;
        }
        if metadata.is_dir()
            && !exactly
            && old.contains(&old_top.join(&own))
            && is_meant(Difference::OldDirectoryMode)
        {
            mode = 0;
        }
        let (user, group, xattrs) = (metadata.uid(), metadata.gid(), xattrs(&path));
        let attributes = format!("owned by {user}:{group}, {xattrs:?}");
        if !metadata.is_dir() && !apart.contains(&own) {
            linked.entry(metadata.ino()).or_default().insert(own.clone());
        }
        found.insert(own, format!("{contents}, mode {mode:o}, modified {time}, {attributes}"));
    }
    for names in linked.values().filter(|names| names.len() > 1) {
        for name in names {
            found.entry(name.clone()).and_modify(|node| *node += &format!(", one of {names:?}"));
        }
    }
    found
}

fn is_meant(difference: Difference) -> bool {
    DIFFERENCES.iter().any(|(_, other)| *other == difference)
}

fn set_time(path: &Path, seconds: u64) {
    let time = Timespec { tv_sec: (BEGIN + seconds) as i64, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

const BEGIN: u64 = 1_700_000_000;
const YEAR: u64 = 365 * 86_400;

/// Choices from a seed.
pub struct Draw(pub u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

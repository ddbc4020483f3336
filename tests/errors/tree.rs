//! The tree that is copied, and the state of the copy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::trees::{is_hidden, names, noise};

/// Differences between a source and its copy, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub missing: Vec<String>,
    /// There, and of another kind or with other bytes.
    pub wrong: Vec<String>,
    /// There, with another time or mode.
    pub attributes: Vec<String>,
    /// Hidden directories at the destination.
    pub hidden: usize,
}

/// Small files that are sent in bundles, one that is not, and one of each special kind.
pub fn make(root: &Path) {
    fs::create_dir_all(root.join("sub")).unwrap();
    for i in 1..=3 {
        fs::write(root.join(format!("f{i}")), noise(i, 20_000)).unwrap();
    }
    for i in 1..=2 {
        fs::write(root.join(format!("sub/g{i}")), noise(10 + i, 5_000)).unwrap();
    }
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("large"), noise(20, 2_500_000)).unwrap();
}

pub fn compare(source: &Path, copy: &Path) -> Left {
    let mut left = Left { hidden: hidden(copy.parent().unwrap_or(copy)), ..Left::default() };
    compare_entry(source, copy, "tree", &mut left);
    left
}

/// The hidden directories in a directory.
pub fn hidden(directory: &Path) -> usize {
    names(directory).iter().filter(|name| is_hidden(name)).count()
}

fn compare_entry(source: &Path, copy: &Path, path: &str, left: &mut Left) {
    let wanted = fs::symlink_metadata(source).unwrap();
    let Ok(found) = fs::symlink_metadata(copy) else {
        left.missing.push(path.to_owned());
        return;
    };
    let (a, b) = (source, copy);
    let same = wanted.file_type() == found.file_type()
        && match (wanted.is_dir(), wanted.is_symlink()) {
            (true, _) => names(b).iter().all(|name| a.join(name).symlink_metadata().is_ok()),
            (_, true) => fs::read_link(a).unwrap() == fs::read_link(b).unwrap(),
            _ => fs::read(a).unwrap() == fs::read(b).unwrap(),
        };
    if !same {
        left.wrong.push(path.to_owned());
        return;
    }
    let modes = [&wanted, &found].map(|metadata| metadata.permissions().mode());
    if wanted.modified().unwrap() != found.modified().unwrap() || modes[0] != modes[1] {
        left.attributes.push(path.to_owned());
    }
    if wanted.is_dir() {
        for name in names(source) {
            let path = format!("{path}/{}", name.display());
            compare_entry(&source.join(&name), &copy.join(&name), &path, left);
        }
    }
}

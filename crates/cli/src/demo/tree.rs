//! The files that the demo copies, and the comparison afterwards.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use longhaul::Stop;
use longhaul_units::Bytes;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub files: u64,
    pub bytes: u64,
}

/// Makes a tree of `size` bytes below `root`: a tenth in small files, a fifth in files of 8 MiB,
/// the rest in three large ones, none of it compressible.
pub(super) fn generate(root: &Path, size: Bytes, stop: &Stop) -> io::Result<Made> {
    let mut writer = Writer {
        random: Xoshiro256PlusPlus::seed_from_u64(SEED),
        block: vec![0; BLOCK],
        made: Made::default(),
    };
    let size = size.get();
    let (small, medium) = (size / 10, size / 5);
    let mut number = 0;
    while writer.made.bytes < small && !stop.is_requested() {
        // Ten files a folder, so that there are folders too.
        let folder = root.join(format!("small/{:03}", number / 10));
        fs::create_dir_all(&folder)?;
        let len = SMALL_MIN + writer.random.next_u64() % (SMALL_MAX - SMALL_MIN);
        let len = len.min(small - writer.made.bytes);
        writer.write(&folder.join(format!("event-{number:05}.json")), len, stop)?;
        number += 1;
    }
    fs::create_dir_all(root.join("frames"))?;
    let mut number = 0;
    while writer.made.bytes < small + medium && !stop.is_requested() {
        let len = MEDIUM.min(small + medium - writer.made.bytes);
        writer.write(&root.join(format!("frames/{number:04}.raw")), len, stop)?;
        number += 1;
    }
    let rest = size - writer.made.bytes.min(size);
    for (name, len) in
        [("run-1.h5", rest / 2), ("run-2.h5", rest / 3), ("run-3.h5", rest - rest / 2 - rest / 3)]
    {
        writer.write(&root.join(name), len, stop)?;
    }
    Ok(writer.made)
}

struct Writer {
    random: Xoshiro256PlusPlus,
    block: Vec<u8>,
    made: Made,
}

impl Writer {
    fn write(&mut self, path: &Path, len: u64, stop: &Stop) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        let mut left = len;
        while left > 0 && !stop.is_requested() {
            let part = left.min(BLOCK as u64) as usize;
            self.random.fill_bytes(&mut self.block[..part]);
            file.write_all(&self.block[..part])?;
            left -= part as u64;
        }
        self.made.files += 1;
        self.made.bytes += len;
        Ok(())
    }
}

/// Compares two trees, names and contents, and tells the first difference.
pub(super) fn compare(one: &Path, other: &Path, stop: &Stop) -> Result<(), String> {
    if stop.is_requested() {
        return Ok(());
    }
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", one.display());
    let kind = |path: &Path| {
        fs::symlink_metadata(path).map(|metadata| (metadata.is_dir(), metadata.is_file()))
    };
    let kinds = kind(one).map_err(unreadable)?;
    if kind(other).ok() != Some(kinds) {
        return Err(format!("{} is missing or of another kind", other.display()));
    }
    if !kinds.0 {
        return same_contents(one, other)?
            .then_some(())
            .ok_or_else(|| format!("{} differs from {}", other.display(), one.display()));
    }
    let names = |folder: &Path| -> io::Result<Vec<_>> {
        let entries = fs::read_dir(folder)?;
        let mut names: Vec<_> =
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
        names.sort();
        Ok(names)
    };
    let found = names(one).map_err(unreadable)?;
    if names(other).ok().as_ref() != Some(&found) {
        return Err(format!("{} holds other names than {}", other.display(), one.display()));
    }
    found.iter().try_for_each(|name| compare(&one.join(name), &other.join(name), stop))
}

fn same_contents(one: &Path, other: &Path) -> Result<bool, String> {
    let open = |path: &Path| {
        File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))
    };
    let (mut one_file, mut other_file) = (open(one)?, open(other)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        for (file, block, path) in
            [(&mut one_file, &mut left, one), (&mut other_file, &mut right, other)]
        {
            block.clear();
            file.take(BLOCK as u64)
                .read_to_end(block)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        }
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}

const SEED: u64 = 2_026;
const BLOCK: usize = 1 << 20;
const SMALL_MIN: u64 = 4 << 10;
const SMALL_MAX: u64 = 128 << 10;
const MEDIUM: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn total(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .map(|entry| match entry.file_type().unwrap().is_dir() {
                true => total(&entry.path()),
                false => entry.metadata().unwrap().len(),
            })
            .sum()
    }

    #[test]
    fn a_tree_has_the_size_asked_for_and_is_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        for size in [1, 10, 3_000_000] {
            let (one, other) =
                (folder.path().join(format!("a{size}")), folder.path().join(format!("b{size}")));
            let made = generate(&one, Bytes::new(size), &stop).unwrap();
            assert_eq!((made.bytes, total(&one)), (size, size));
            assert_eq!(generate(&other, Bytes::new(size), &stop).unwrap(), made);
            compare(&one, &other, &stop).unwrap();
        }
    }

    #[test]
    fn every_difference_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Stop::default();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for tree in [&one, &other] {
            fs::create_dir_all(tree.join("d")).unwrap();
            fs::write(tree.join("d/f"), vec![7; 3 << 20]).unwrap();
        }
        compare(&one, &other, &stop).unwrap();
        let file = other.join("d/f");
        let mut bytes = fs::read(&file).unwrap();
        bytes[(2 << 20) + 5] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(compare(&one, &other, &stop).unwrap_err().contains("differs"));
        fs::write(&file, vec![7; (3 << 20) - 1]).unwrap();
        assert!(compare(&one, &other, &stop).unwrap_err().contains("differs"));
        fs::write(&file, vec![7; 3 << 20]).unwrap();
        fs::write(other.join("d/g"), "").unwrap();
        assert!(compare(&one, &other, &stop).unwrap_err().contains("other names"));
        fs::remove_dir_all(other.join("d")).unwrap();
        assert!(compare(&one, &other, &stop).is_err());
        assert!(compare(&one, &folder.path().join("none"), &stop).unwrap_err().contains("missing"));
    }
}

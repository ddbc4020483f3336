//! Records that have left the store: files of one JSON object a line, by their positions.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::ledger::Record;

/// A file of records that is being written. Without [`Archive::finish`] it is none: the name says
/// so, and the next one takes its place.
pub struct Archive {
    folder: PathBuf,
    file: BufWriter<File>,
    positions: Option<(u64, u64)>,
}

impl Archive {
    /// Begins a file in `folder`, which is made if it does not exist.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = BufWriter::new(File::create(folder.join(UNFINISHED))?);
        Ok(Self { folder: folder.into(), file, positions: None })
    }

    /// Adds the record that follows.
    pub fn add(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, record)?;
        self.file.write_all(b"\n")?;
        let first = self.positions.map_or(record.seq, |(first, _)| first);
        self.positions = Some((first, record.seq));
        Ok(())
    }

    /// Makes the file durable under its name.
    pub fn finish(self) -> io::Result<()> {
        let Some((first, last)) = self.positions else { return Ok(()) };
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        let name = format!("{PREFIX}{first:012}-{last:012}{SUFFIX}");
        fs::rename(self.folder.join(UNFINISHED), self.folder.join(name))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// The records of all files in `folder`, by their positions. Files may overlap: a service that was
/// killed before the store forgot what was archived archives it again.
///
/// # Errors
/// A file cannot be read, is none of ours, or two of them differ.
pub fn read(folder: &Path) -> io::Result<BTreeMap<u64, Record>> {
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with(PREFIX) || !name.ends_with(SUFFIX) {
            continue;
        }
        let wrong = |number: usize, why: &dyn std::fmt::Display| {
            let why = format!("{}, line {}: {why}", path.display(), number + 1);
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        for (number, line) in BufReader::new(File::open(&path)?).lines().enumerate() {
            let record: Record =
                serde_json::from_str(&line?).map_err(|error| wrong(number, &error))?;
            let seq = record.seq;
            match records.insert(seq, record.clone()) {
                Some(other) if other != record => {
                    return Err(wrong(number, &"another file has another record there"));
                }
                _ => {}
            }
        }
    }
    Ok(records)
}

const UNFINISHED: &str = "records.unfinished";
const PREFIX: &str = "records-";
const SUFFIX: &str = ".jsonl";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Command, Order};

    fn record(seq: u64, actor: &str) -> Record {
        let (actor, project) = (actor.to_owned(), String::new());
        let order = Order { actor, project, operator: true, key: None, command: Command::Replan };
        Record { seq, tick: seq, order, outcome: vec![] }
    }

    fn write(folder: &Path, seqs: std::ops::RangeInclusive<u64>, actor: &str) -> Archive {
        let mut archive = Archive::begin(folder).unwrap();
        seqs.for_each(|seq| archive.add(&record(seq, actor)).unwrap());
        archive
    }

    #[test]
    fn files_may_overlap_but_not_differ_and_an_unfinished_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("made");
        write(&folder, 1..=3, "a").finish().unwrap();
        write(&folder, 1..=5, "a").finish().unwrap();
        drop(write(&folder, 6..=9, "a"));
        let found: Vec<Record> = read(&folder).unwrap().into_values().collect();
        assert_eq!(found, (1..=5).map(|seq| record(seq, "a")).collect::<Vec<_>>());
        write(&folder, 6..=6, "a").finish().unwrap();
        assert_eq!(read(&folder).unwrap().len(), 6);
        write(&folder, 2..=2, "b").finish().unwrap();
        assert!(read(&folder).unwrap_err().to_string().contains("another record"));
    }
}

//! Runs as lines of JSON, a file for each experiment.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use longhaul_sys::files::FileLock;

use crate::record::Record;

/// A folder of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    folder: PathBuf,
}

/// Why results cannot be read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The folder or a file in it.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Somebody else adds to the same file.
    #[error("{0}: another lab is adding to it; wait for it, or give another folder")]
    Busy(PathBuf),
    /// A line that is no record.
    #[error("{path}, line {line}: {error}")]
    Malformed {
        /// Of which file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The error.
        error: serde_json::Error,
    },
}

impl Results {
    /// In a folder, which need not exist yet.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All runs of an experiment, in the order in which they were made; a line that a killed lab
    /// left half-written does not count.
    ///
    /// # Errors
    /// Unreadable files, and lines that are no records.
    pub fn read(&self, experiment: &str) -> Result<Vec<Record>, ResultsError> {
        let path = self.path(experiment);
        match std::fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(ResultsError::File { path, error }),
        }
    }

    /// Names of the experiments that have results, sorted.
    ///
    /// # Errors
    /// An unreadable folder; one that does not exist has none.
    pub fn experiments(&self) -> Result<Vec<String>, ResultsError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ResultsError::File { path: self.folder.clone(), error }),
        };
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            Some(name.strip_suffix(ENDING)?.to_owned())
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names)
    }

    /// Opens an experiment's file to add to, and gives what is in it; with `fresh` nothing is: what
    /// was there is kept beside it under a name of the time.
    ///
    /// # Errors
    /// Those of the file, and of somebody else at work on it.
    pub fn open(
        &self,
        experiment: &str,
        fresh: bool,
    ) -> Result<(Appender, Vec<Record>), ResultsError> {
        let path = self.path(experiment);
        let failed = |error| ResultsError::File { path: path.clone(), error };
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| ResultsError::File { path: self.folder.clone(), error })?;
        let open = || OpenOptions::new().create(true).read(true).append(true).open(&path);
        let mut file = open().map_err(failed)?;
        let lock = FileLock::try_take(&file).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ResultsError::Busy(path.clone()),
            _ => failed(error),
        })?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        if fresh && !text.is_empty() {
            let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
            let kept = self.folder.join(format!("{experiment}.{now}.old"));
            std::fs::rename(&path, kept).map_err(failed)?;
            return self.open(experiment, false);
        }
        let records = parse(&path, &text)?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        Ok((Appender { path, file, _lock: lock }, records))
    }

    /// Keeps what was seen in a run beside the results, and tells in which file of their folder.
    ///
    /// # Errors
    /// Those of writing.
    pub fn keep_trace(
        &self,
        experiment: &str,
        fingerprint: &str,
        repeat: u32,
        trace: &str,
    ) -> Result<PathBuf, ResultsError> {
        let file = Path::new(&format!("{experiment}{TRACES}"))
            .join(format!("{fingerprint}-{repeat}.trace"));
        let path = self.folder.join(&file);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = made.and_then(|()| std::fs::write(&path, trace));
        written.map(|()| file).map_err(|error| ResultsError::File { path, error })
    }

    fn path(&self, experiment: &str) -> PathBuf {
        self.folder.join(format!("{experiment}{ENDING}"))
    }
}

/// A results file that is added to. Nobody else adds to it meanwhile.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    file: File,
    _lock: FileLock,
}

impl Appender {
    /// Adds a run.
    ///
    /// # Errors
    /// Those of writing.
    pub fn append(&mut self, record: &Record) -> Result<(), ResultsError> {
        let line = serde_json::to_string(record).map_err(io::Error::from);
        let write = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        write.map_err(|error| ResultsError::File { path: self.path.clone(), error })
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Record>, ResultsError> {
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| ResultsError::Malformed {
                path: path.to_owned(),
                line: number + 1,
                error,
            })
        })
        .collect()
}

const ENDING: &str = ".jsonl";
const TRACES: &str = ".traces";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(contender: &str, repeat: u32) -> Record {
        Record { contender: contender.into(), repeat, ..Record::default() }
    }

    #[test]
    fn added_records_are_read_again_and_a_torn_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::in_folder(folder.path().join("new"));
        assert_eq!(results.read("x").unwrap(), []);
        assert!(results.experiments().unwrap().is_empty());
        let (mut appender, before) = results.open("x", false).unwrap();
        assert!(before.is_empty());
        appender.append(&record("a", 0)).unwrap();
        appender.file.write_all(b"{\"experiment\":\"x").unwrap();
        drop(appender);
        assert_eq!(results.read("x").unwrap(), [record("a", 0)]);
        let (mut appender, before) = results.open("x", false).unwrap();
        assert_eq!(before.len(), 1);
        appender.append(&record("b", 1)).unwrap();
        assert_eq!(results.read("x").unwrap(), [record("a", 0), record("b", 1)]);
        assert_eq!(results.experiments().unwrap(), ["x"]);
    }

    #[test]
    fn only_one_lab_adds_to_a_file_and_fresh_keeps_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let results = Results::in_folder(folder.path());
        let (mut appender, _) = results.open("x", false).unwrap();
        assert!(matches!(results.open("x", false), Err(ResultsError::Busy(_))));
        appender.append(&record("a", 0)).unwrap();
        // As a process has it between fork and exec.
        let _inherited = appender.file.try_clone().unwrap();
        drop(appender);
        let (_appender, before) = results.open("x", true).unwrap();
        assert!(before.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_line_that_is_no_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.jsonl"), "{}\n{\"repeat\": -1}\n").unwrap();
        let error = Results::in_folder(folder.path()).read("x").unwrap_err().to_string();
        assert!(error.contains("x.jsonl, line 2"), "{error}");
    }
}

//! Lists that options name: files, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Opens a file to be read; `-` is standard input.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path)?)),
    })
}

/// Reads all of it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::expected::whole;
use crate::written::{At, Written};
use crate::wrong_value::WrongValue;

/// A mistake of an operator: what is wrong, with the place where it stands, if it stands anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    text: String,
    line: Option<usize>,
    is_of_file: bool,
}

impl Mistake {
    /// One that stands nowhere.
    pub fn new(text: impl Display) -> Self {
        Self { text: text.to_string(), line: None, is_of_file: false }
    }

    /// One in this line of a file.
    pub(crate) fn in_line(line: usize, why: impl Display) -> Self {
        Self { line: Some(line), ..Self::new(format_args!("line {line}: {why}")) }
    }

    /// One at this place.
    pub(crate) fn at(at: &At, why: impl Display) -> Self {
        Self { line: at.line, ..Self::new(format_args!("{at}: {why}")) }
    }

    /// A file that the settings name cannot be used: they may be right.
    pub fn is_of_file(&self) -> bool {
        self.is_of_file
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Mistake {}

/// The mistakes that were found so far.
///
/// Values are read by functions that know nothing of their place; what cannot be read is noted, and missing.
#[derive(Debug, Default)]
pub struct Mistakes {
    found: Vec<Mistake>,
}

impl Mistakes {
    /// Those that were found before.
    pub fn begin(found: Vec<Mistake>) -> Self {
        Self { found }
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, in the order of their lines; those that stand nowhere come last.
    pub fn into_found(self) -> Vec<Mistake> {
        let mut found = self.found;
        found.sort_by_key(|mistake| mistake.line.unwrap_or(usize::MAX));
        found
    }

    /// Notes one that stands nowhere.
    pub fn add(&mut self, why: impl Display) {
        self.found.push(Mistake::new(why));
    }

    /// Notes what is wrong at a place.
    pub fn at(&mut self, at: &At, why: impl Display) {
        self.found.push(Mistake::at(at, why));
    }

    /// Notes what is wrong with a value.
    pub fn wrong<T: Display>(&mut self, written: &Written<T>, why: impl Display) {
        let text = format!("{} {}: {why}", written.at, visible(&written.value));
        self.found.push(Mistake { line: written.at.line, ..Mistake::new(text) });
    }

    /// A number of this range.
    pub fn number(&mut self, written: &Written<u32>, range: RangeInclusive<u32>) -> Option<u32> {
        let number = Some(written.value).filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong(written, format_args!("expected {}", whole(&range)));
        }
        number
    }

    /// Reads a value.
    pub fn one<T>(
        &mut self,
        written: &Written,
        read: impl FnOnce(&str) -> Result<T, WrongValue>,
    ) -> Option<T> {
        read(&written.value).map_err(|why| self.wrong(written, why)).ok()
    }

    /// Reads each value of a list.
    pub fn each<T>(
        &mut self,
        written: &[Written],
        read: impl Fn(&str) -> Result<T, WrongValue>,
    ) -> Vec<T> {
        written.iter().filter_map(|written| self.one(written, &read)).collect()
    }

    /// Reads what a file or directory has.
    pub fn file<T>(
        &mut self,
        file: &Written<PathBuf>,
        read: impl FnOnce(&Path) -> Result<T, WrongValue>,
    ) -> Option<T> {
        let text = |why| format!("{} {}: {why}", file.at, visible(file.value.display()));
        let wrong = |why| Mistake { text: text(why), line: file.at.line, is_of_file: true };
        read(&file.value).map_err(|why| self.found.push(wrong(why))).ok()
    }
}

/// A value as it is shown, though there is nothing in it.
fn visible(value: impl Display) -> String {
    match value.to_string() {
        empty if empty.is_empty() => "\"\"".into(),
        text => text,
    }
}

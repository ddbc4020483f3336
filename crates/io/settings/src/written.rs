use std::fmt;

/// Something that an operator wrote, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<T = String> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: At,
}

impl<T> Written<T> {
    /// The value of the option `key` of the command line.
    pub const fn option(key: &'static str, value: T) -> Self {
        Self { value, at: At { key, line: None } }
    }
}

/// A place in a file or on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The key, as a file has it.
    pub key: &'static str,
    /// The line of the file, from 1; `None` on the command line.
    pub line: Option<usize>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            None => write!(f, "--{}", self.key.replace('_', "-")),
            Some(line) => write!(f, "line {line}: {}", self.key),
        }
    }
}

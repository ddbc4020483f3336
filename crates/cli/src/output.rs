//! Where words go: people's to standard error, JSON to standard output.

use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

use crate::args::Common;
use crate::failure::Failure;

/// What the user wants to hear.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON object on standard output.
    pub(crate) json: bool,
    /// Errors only.
    pub(crate) quiet: bool,
    /// Details too.
    pub(crate) verbose: bool,
    /// Standard output is for data: JSON goes to standard error.
    data: bool,
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        Self { json: common.json, quiet: common.quiet, verbose: common.verbose > 0, data: false }
    }

    /// The same, beside data on standard output.
    pub(crate) fn beside_data(self) -> Self {
        Self { data: true, ..self }
    }

    /// A line for people.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            complain(text);
        }
    }

    /// A line for those who want details.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            complain(text);
        }
    }

    /// The result: as JSON if asked for, else as text on standard output.
    pub(crate) fn result(&self, json: &Value, text: impl AsRef<str>) {
        if self.json {
            self.print_json(json);
        } else {
            print(text.as_ref());
        }
    }

    /// Says why a command failed.
    pub(crate) fn failed(&self, failure: &Failure) -> ExitCode {
        complain(format!("longhaul: {failure}"));
        if self.json {
            let mut fields = failure.fields.clone();
            fields.insert("error".into(), failure.message.clone().into());
            self.print_json(&Value::Object(fields));
        }
        failure.exit_code()
    }

    /// One object on one line, where scripts look for it.
    pub(crate) fn print_json(&self, value: &Value) {
        if self.data {
            complain(value.to_string());
        } else {
            print(&value.to_string());
        }
    }
}

/// A line on standard error, whatever the user wants.
pub(crate) fn complain(text: impl AsRef<str>) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

fn print(text: &str) {
    // A reader that has gone away does not want it; the exit status still tells.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
}

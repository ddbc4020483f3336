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
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        Self { json: common.json, quiet: common.quiet, verbose: common.verbose > 0 }
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
            print_json(json);
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
            print_json(&Value::Object(fields));
        }
        failure.exit_code()
    }
}

/// A line on standard error, whatever the user wants.
pub(crate) fn complain(text: impl AsRef<str>) {
    // Nobody can be told that standard error is closed.
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

/// One object on one line of standard output.
pub(crate) fn print_json(value: &Value) {
    print(&value.to_string());
}

fn print(text: &str) {
    // A reader that has gone away does not want it; the exit status still tells.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
}

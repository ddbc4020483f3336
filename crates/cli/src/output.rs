//! Where words go: people's to standard error, JSON to standard output.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use longhaul_sys::standard::Stream;
use longhaul_units::{shown, without_numbers};
use serde_json::{Value, json};

use crate::args::Common;
use crate::failure::Failure;

/// Takes what is printed in this process, where it acts for another host.
static ELSEWHERE: OnceLock<Box<dyn Fn(Value) + Send + Sync>> = OnceLock::new();

/// From now on what is printed goes to `take`, as events: `words` are lines of standard error, `print` those of
/// standard output, `json` is an object there, and `progress` is shown as that of a copy here.
pub(crate) fn print_elsewhere(take: impl Fn(Value) + Send + Sync + 'static) {
    // It is the first: a process acts for one host.
    let _ = ELSEWHERE.set(Box::new(take));
}

/// Says that elsewhere. False where it is to be printed here.
pub(crate) fn say_elsewhere(event: impl FnOnce() -> Value) -> bool {
    match ELSEWHERE.get() {
        Some(take) => {
            take(event());
            true
        }
        None => false,
    }
}

/// Lines of standard error are objects.
static OBJECTS: AtomicBool = AtomicBool::new(false);

/// From now on each line of standard error is an object, as in a log: words are its `message`.
pub(crate) fn complain_in_json() {
    OBJECTS.store(true, Ordering::Relaxed);
}

/// What the user wants to hear.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON object on standard output.
    pub(crate) json: bool,
    /// Errors only.
    pub(crate) quiet: bool,
    /// Details too.
    pub(crate) verbose: bool,
    /// Number of times that was asked for.
    level: u8,
    /// Standard output is for data: JSON goes to standard error.
    data: bool,
}

impl Output {
    pub(crate) fn new(common: &Common) -> Self {
        let Common { json, quiet, verbose: level } = *common;
        Self { json, quiet, verbose: level > 0, level, data: false }
    }

    /// The same of a command that names at first what it changes, and says details when asked for more.
    pub(crate) fn of_changes(self) -> Self {
        Self { verbose: self.level > 1, ..self }
    }

    /// True if such a command is to name what it changes, which one does `anyway`.
    pub(crate) fn names_changes(&self, anyway: bool) -> bool {
        (self.level > 0 || anyway) && !self.json && !self.quiet
    }

    /// The same, beside data on standard output.
    pub(crate) fn beside_data(self) -> Self {
        Self { data: true, ..self }
    }

    /// A line for people.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            complain(without_numbers(text.as_ref()));
        }
    }

    /// A line for those who want details.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            complain(without_numbers(text.as_ref()));
        }
    }

    /// The result: as JSON if asked for, else as text on standard output.
    ///
    /// # Errors
    /// Standard output does not take it.
    pub(crate) fn result(&self, json: &Value, text: impl AsRef<str>) -> Result<(), Failure> {
        if self.json { self.print_json(json) } else { print(text.as_ref()) }
    }

    /// Says why a command failed.
    pub(crate) fn failed(&self, failure: &Failure) -> ExitCode {
        if !failure.message.is_empty() {
            complain(format!("longhaul: {failure}"));
        }
        if self.json && !failure.of_output {
            let mut fields = failure.fields.clone();
            let (error, details) =
                failure.message.split_once('\n').unwrap_or((&failure.message, ""));
            fields.insert("error".into(), error.into());
            if !details.is_empty() {
                fields.insert("details".into(), details.into());
            }
            if let Err(another) = self.print_json(&Value::Object(fields)) {
                complain(format!("longhaul: {another}"));
            }
        }
        failure.exit_code()
    }

    /// One object on one line, where scripts look for it, and no other after it: a second signal may come
    /// while the end is printed.
    ///
    /// # Errors
    /// Standard output does not take it.
    pub(crate) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        if say_elsewhere(|| json!({ "json": value })) {
            return Ok(());
        }
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        if IS_TOLD.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        if self.data {
            complain(value.to_string());
            Ok(())
        } else {
            print(&value.to_string())
        }
    }
}

/// A line on standard error, whatever the user wants.
pub(crate) fn complain(text: impl AsRef<str>) {
    if say_elsewhere(|| json!({ "words": text.as_ref() })) {
        return;
    }
    let words = lines(text.as_ref());
    print_line(&match OBJECTS.load(Ordering::Relaxed) {
        true => json!({ "time": Timestamp::now().to_string(), "message": words }).to_string(),
        false => words,
    });
}

/// A line of a log on standard error, which has its form already.
pub(crate) fn log(line: &str) {
    print_line(&lines(line));
}

fn print_line(line: &str) {
    // Where standard error is closed, nobody reads why.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Nothing that is written steers a terminal, from wherever it came. A peer's words have no ends of
/// lines by now: `shown` took them where it came in.
fn lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// On standard output.
///
/// # Errors
/// It does not take it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if say_elsewhere(|| json!({ "print": text })) {
        return Ok(());
    }
    open()?;
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{}", lines(text.trim_end())).and_then(|()| stdout.flush());
    written.or_else(unwritten)
}

/// Whether there is a standard output.
///
/// # Errors
/// It was closed when the program started: what is written would be lost without an error.
pub(crate) fn open() -> Result<(), Failure> {
    match Stream::Output.was_closed() {
        true => Err(Failure::of_output(&io::Error::other("standard output is closed"))),
        false => Ok(()),
    }
}

/// What a failure of standard output means.
///
/// # Errors
/// Somebody may wait for what was not written.
pub(crate) fn unwritten(error: io::Error) -> Result<(), Failure> {
    match error.kind() {
        // A reader that has gone away does not want it; the exit status still tells.
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Failure::of_output(&error)),
    }
}

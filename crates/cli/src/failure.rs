use std::fmt;
use std::io;
use std::process::ExitCode;

use longhaul::{Error, ErrorKind};
use longhaul_units::without_numbers;
use serde_json::{Map, Value, json};

/// Why a command did not do what was asked, in words for the user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    /// What failed, on which file or host, what is kept, what to do next; empty where somebody else says it.
    pub(crate) message: String,
    /// What else there is to say in JSON.
    pub(crate) fields: Map<String, Value>,
    /// The use of trying again.
    pub(crate) again: Again,
    /// Standard output fails or has it already, so that only standard error gets it.
    pub(crate) of_output: bool,
}

/// The use of trying again, although nobody mends anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// None.
    Vain,
    /// It may help by and by.
    Later,
    /// The connection was lost, and the copy can go on.
    Lost,
}

impl Failure {
    /// The command was used wrongly; nothing was done.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { status: USAGE, ..Self::failed(message) }
    }

    /// It did not succeed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        let message = without_numbers(&message.into());
        let (fields, again) = (Map::new(), Again::Vain);
        Self { status: FAILED, message, fields, again, of_output: false }
    }

    /// The library did not do it; what is known of the attempt goes to JSON, unless there was none.
    pub(crate) fn of(error: &Error, known: impl FnOnce() -> Map<String, Value>) -> Self {
        let again = match (error.kind, error.may_pass) {
            (_, false) => Again::Vain,
            (ErrorKind::Lost, true) => Again::Lost,
            (_, true) => Again::Later,
        };
        let failure = match error.kind {
            ErrorKind::Usage => Self::usage(error.to_string()),
            _ => Self::failed(error.to_string()).with_fields(known()),
        };
        Self { again, ..failure }
    }

    /// It may have succeeded, and standard output does not take what there is to say of it.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        Self { of_output: true, ..Self::failed(format!("cannot write the report: {error}")) }
    }

    /// For another host, which has it printed.
    pub(crate) fn event(&self) -> Value {
        let Self { status, message, fields, again, .. } = self;
        let again = match again {
            Again::Vain => None,
            Again::Later => Some(LATER),
            Again::Lost => Some(LOST),
        };
        json!({ "status": status, "message": message, "fields": fields, "again": again })
    }

    /// That of `host`, by its event.
    pub(crate) fn at(host: &str, event: &Value) -> Self {
        let message = event["message"].as_str().unwrap_or("it failed");
        let failure = match event["status"].as_u64() {
            Some(status) if status == u64::from(USAGE) => Self::usage(format!("{host}: {message}")),
            _ => Self::failed(format!("{host}: {message}")),
        };
        let again = match event["again"].as_str() {
            Some(LATER) => Again::Later,
            Some(LOST) => Again::Lost,
            _ => Again::Vain,
        };
        let fields = event["fields"].as_object().cloned().unwrap_or_default();
        Self { again, ..failure.with_fields(fields) }
    }

    /// The same, with what is known of the attempt.
    pub(crate) fn with_fields(self, fields: Map<String, Value>) -> Self {
        Self { fields, ..self }
    }

    /// The same, where standard output has the JSON of it already, or takes none.
    pub(crate) fn without_json(self) -> Self {
        Self { of_output: true, ..self }
    }

    /// The same, where somebody else says it.
    pub(crate) fn without_words(self) -> Self {
        Self { message: String::new(), ..self }.without_json()
    }

    /// The same, with more lines of words.
    pub(crate) fn adding(self, text: impl fmt::Display) -> Self {
        Self { message: format!("{}\n{text}", self.message), ..self }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const LATER: &str = "later";
const LOST: &str = "lost";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_at_another_host_names_it_and_has_its_status_and_fields() {
        let fields = Map::from_iter([("bytes".to_owned(), 7.into())]);
        let lost = Failure { again: Again::Lost, ..Failure::failed("no") };
        for failure in [Failure::usage("no"), Failure::failed("no").with_fields(fields), lost] {
            let expected = Failure { message: "dtn1: no".into(), ..failure.clone() };
            assert_eq!(Failure::at("dtn1", &failure.event()), expected);
        }
        // Whatever it says.
        assert_eq!(Failure::at("dtn1", &Value::Null).message, "dtn1: it failed");
    }

    #[test]
    fn messages_have_no_numbers_of_system_errors() {
        let error = io::Error::from_raw_os_error(28);
        let failure = Failure::failed(format!("a: {error}; b: {error}, no (os error of ours)"));
        let words = "No space left on device";
        assert_eq!(failure.message, format!("a: {words}; b: {words}, no (os error of ours)"));
    }
}

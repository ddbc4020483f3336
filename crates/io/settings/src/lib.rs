//! Settings files in TOML: their mistakes, for people.
//!
//! A mistake has line, key, the value that stands there and what is expected instead, in the words of people.
//! The meaning of the values is up to the caller, whose own mistakes are [`WrongValue`].
//!
//! ```
//! #[derive(serde::Deserialize, Debug)]
//! #[serde(deny_unknown_fields)]
//! struct Settings {
//!     port: u16,
//! }
//! let wrong = longhaul_settings::parse::<Settings>("# of a server\nport = \"http\"").unwrap_err();
//! let words = "line 2: port \"http\": expected a whole number from 0 to 65535";
//! assert_eq!(wrong.to_string(), words);
//! ```

mod mistakes;
mod section;
mod written;
mod wrong_value;

use std::fmt;

use serde::de::DeserializeOwned;

pub use mistakes::{Mistake, Mistakes};
pub use section::Section;
pub use written::{At, Written};
pub use wrong_value::WrongValue;

/// Reads the text of a file, up to the first mistake; [`Section`] finds all.
///
/// # Errors
/// It is no TOML, or not what `T` wants.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Mistake> {
    toml::from_str(text).map_err(|error| mistake(text, &error))
}

/// The line of a byte of `text`, from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// An error with its line and key, in the words of people.
fn mistake(text: &str, error: &toml::de::Error) -> Mistake {
    let span = error.span().unwrap_or(0..0);
    let line = line(text, span.start);
    // It goes on with an excerpt, which the line's number makes needless.
    let why = error.message().lines().next().unwrap_or_default();
    let key = key_before(text, span.start).or_else(|| key_of(text, line));
    let what = match (wrong_value(why), key) {
        (Some((found, expected)), key) => {
            let value = text.get(span).and_then(|value| value.lines().next());
            let value = value.filter(|value| !value.is_empty()).unwrap_or(found);
            let key = key.map(|key| format!("{key} ")).unwrap_or_default();
            format!("{key}{value}: expected {}", in_words(expected))
        }
        (None, Some(key)) => format!("{key}: {why}"),
        (None, None) => why.to_owned(),
    };
    Mistake::new(format_args!("line {line}: {what}"))
}

/// The words of serde: the value that it found, and the one that it expected.
fn wrong_value(why: &str) -> Option<(&str, &str)> {
    let rest =
        why.strip_prefix("invalid type: ").or_else(|| why.strip_prefix("invalid value: "))?;
    rest.rsplit_once(", expected ")
}

/// The words of serde for the expected value, for people.
fn in_words(expected: &str) -> String {
    let whole = |least: &dyn fmt::Display, most: &dyn fmt::Display| {
        format!("a whole number from {least} to {most}")
    };
    match expected {
        "u8" => whole(&u8::MIN, &u8::MAX),
        "u16" => whole(&u16::MIN, &u16::MAX),
        "u32" => whole(&u32::MIN, &u32::MAX),
        // TOML has no larger ones.
        "u64" | "usize" => whole(&0, &i64::MAX),
        "i8" => whole(&i8::MIN, &i8::MAX),
        "i16" => whole(&i16::MIN, &i16::MAX),
        "i32" => whole(&i32::MIN, &i32::MAX),
        "i64" | "isize" => whole(&i64::MIN, &i64::MAX),
        "f32" | "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" | "a borrowed string" | "a character" | "path string" => {
            "a text in quotes".into()
        }
        "a sequence" => "a list, in [ ]".into(),
        "a map" => "keys and values, in { }".into(),
        // "struct LinkSpec", "a nonzero u32": the words of programs.
        _ if expected.starts_with("struct ") => "keys and values, in { }".into(),
        _ => match expected.strip_prefix("a nonzero ") {
            Some(number) => in_words(number).replacen("from 0 ", "from 1 ", 1),
            None => expected.to_owned(),
        },
    }
}

/// The key whose value begins at `at`.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?.trim_end().strip_suffix('=')?.trim_end();
    let start = before.rfind(|c| !is_of_key(c)).map_or(0, |at| at + 1);
    before.get(start..).filter(|key| !key.is_empty())
}

/// The key whose value stands at `line` or goes on there.
fn key_of(text: &str, line: usize) -> Option<&str> {
    let before: Vec<&str> = text.lines().take(line).collect();
    let keyed =
        before.into_iter().rev().find(|line| line.contains('=') || line.starts_with('['))?;
    let (key, _) = keyed.split_once('=')?;
    Some(key.trim()).filter(|key| !key.is_empty() && key.chars().all(is_of_key))
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is read, and not used")]
    struct Settings {
        sessions: u32,
        allow: Vec<String>,
        #[serde(default)]
        link: Option<Link>,
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is read, and not used")]
    struct Link {
        black_hole: bool,
        weight: f64,
    }

    const TEXT: &str = "sessions = 7\nallow = [\n  \"one\",\n  \"two\",\n]\n\
                        link = { black_hole = true, weight = 0.5 }\n";

    #[test]
    fn a_wrong_value_is_named_with_its_line_its_key_and_what_is_expected() {
        parse::<Settings>(TEXT).unwrap();
        for (from, to, words) in [
            ("7", "\"7\"", "line 1: sessions \"7\": expected a whole number from 0 to 4294967295"),
            ("7", "-1", "line 1: sessions -1: expected a whole number from 0 to 4294967295"),
            ("7", "4294967296", "line 1: sessions 4294967296: expected a whole number from 0 to"),
            ("\"two\"", "2", "line 4: allow 2: expected a text in quotes"),
            ("true", "1", "line 6: black_hole 1: expected true or false"),
            ("0.5", "\"half\"", "line 6: weight \"half\": expected a number"),
            (
                "{ black_hole = true, weight = 0.5 }",
                "3",
                "line 6: link 3: expected keys and values",
            ),
            ("sessions", "session", "line 1: session: unknown field `session`"),
            ("7", "", "line 1: "),
        ] {
            let error = parse::<Settings>(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
            assert!(!error.contains("u32") && !error.contains("struct"), "{error}");
        }
        let missing = parse::<Settings>("sessions = 7").unwrap_err().to_string();
        assert!(missing.contains("missing field `allow`"), "{missing}");
    }
}

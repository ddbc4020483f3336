//! Errors of form, in the words of people.

use crate::expected::{ADDRESS, whole};
use crate::mistakes::Mistake;

/// The line of a byte of `text`, from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// An error with its line and key, in the words of people.
pub(crate) fn mistake(text: &str, error: &toml::de::Error) -> Mistake {
    let span = error.span().unwrap_or(0..0);
    let line = line(text, span.start);
    // It goes on with an excerpt, which the line's number makes needless.
    let why = error.message().lines().next().unwrap_or_default();
    let key = key_before(text, span.start).or_else(|| key_of(text, line));
    let what = match (wrong_value(why), key) {
        (Some((found, expected)), key) => {
            let meant = key_before(text, span.start)
                .and_then(|key| as_line(key, text.get(span.clone())?, expected));
            let value = text.get(span).and_then(|value| value.lines().next());
            let value = value.filter(|value| !value.is_empty()).unwrap_or(found);
            let key = key.map(|key| format!("{key} ")).unwrap_or_default();
            let meant = meant.map(|line| format!(": {line}")).unwrap_or_default();
            format!("{key}{value}: expected {}{meant}", in_words(expected))
        }
        (None, Some(key)) => format!("{key}: {why}"),
        (None, None) => why.to_owned(),
    };
    Mistake::in_line(line, what)
}

/// The line that says what is meant by this value of `key`, where it lacks its brackets or quotes, or has too many.
fn as_line(key: &str, value: &str, expected: &str) -> Option<String> {
    let is_text = |value: &str| value.starts_with(['"', '\'']) && !value.contains('\n');
    match expected {
        "a sequence" if is_text(value) => {
            let (quote, inner) = (value.get(..1)?, value.get(1..value.len() - 1)?);
            let all: Vec<_> =
                inner.split(',').map(|one| format!("{quote}{}{quote}", one.trim())).collect();
            Some(format!("{key} = [{}]", all.join(", ")))
        }
        "a string" | "path string" | ADDRESS => {
            let is_number = value.parse::<u64>().is_ok();
            let quoted = || is_number.then(|| format!("\"{value}\""));
            Some(format!("{key} = {}", first_of_list(value).map(str::to_owned).or_else(quoted)?))
        }
        _ => None,
    }
}

/// The first text of a list, with its quotes.
fn first_of_list(value: &str) -> Option<&str> {
    let first = value.strip_prefix('[')?.trim_start();
    let quote = first.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let end = first.get(1..)?.find([quote, '\n'])? + 1;
    first.get(..=end).filter(|text| text.ends_with(quote))
}

/// The words of serde: the value that it found, and the one that it expected.
fn wrong_value(why: &str) -> Option<(&str, &str)> {
    let rest =
        why.strip_prefix("invalid type: ").or_else(|| why.strip_prefix("invalid value: "))?;
    rest.rsplit_once(", expected ")
}

/// The words of serde for the expected value, for people.
fn in_words(expected: &str) -> String {
    match expected {
        "u8" => whole(&(u8::MIN..=u8::MAX)),
        "u16" => whole(&(u16::MIN..=u16::MAX)),
        "u32" => whole(&(u32::MIN..=u32::MAX)),
        // TOML has no larger ones.
        "u64" | "usize" => whole(&(0..=i64::MAX)),
        "i8" => whole(&(i8::MIN..=i8::MAX)),
        "i16" => whole(&(i16::MIN..=i16::MAX)),
        "i32" => whole(&(i32::MIN..=i32::MAX)),
        "i64" | "isize" => whole(&(i64::MIN..=i64::MAX)),
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

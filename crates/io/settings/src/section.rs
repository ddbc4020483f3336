use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Visitor};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::expected::{ADDRESS, whole};
use crate::form::{line, mistake};
use crate::mistakes::Mistake;
use crate::written::{At, Written};

/// A table of a file, read key by key, so that all mistakes are found at once.
///
/// ```
/// use longhaul_settings::Section;
///
/// let text = "port = \"http\"\nnames = [\"a\"]\nprot = 7";
/// let ((), mistakes) = Section::read(text, |section| {
///     let _port = section.one::<u16>("port");
///     assert_eq!(section.each("names")[0].value, "a");
/// })
/// .unwrap();
/// let words: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
/// assert_eq!(words[0], "line 1: port \"http\": expected a whole number from 0 to 65535");
/// assert_eq!(words[1], "line 3: prot: unknown field `prot`, expected one of `port`, `names`");
/// ```
#[derive(Debug)]
pub struct Section<'t> {
    text: &'t str,
    values: DeTable<'t>,
    /// Keys that were asked for.
    keys: Vec<&'static str>,
    mistakes: Vec<Mistake>,
}

impl<'t> Section<'t> {
    /// Reads the text of a file by `read`, with what is wrong with its form. Keys that `read` does not ask for
    /// mean nothing.
    ///
    /// # Errors
    /// It is no TOML: nothing is known of its keys.
    pub fn read<T>(
        text: &'t str,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Result<(T, Vec<Mistake>), Mistake> {
        let values = DeTable::parse(text).map_err(|error| mistake(text, &error))?.into_inner();
        let mut section = Self { text, values, keys: Vec::new(), mistakes: Vec::new() };
        let read = read(&mut section);
        Ok((read, section.finish()))
    }

    /// True where `key` stands there, with whatever value, and was not read yet.
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// The value of `key`, if it stands there and is one.
    pub fn one<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<Written<T>> {
        self.read_by(key, PhantomData::<T>)
    }

    fn read_by<S: for<'de> DeserializeSeed<'de, Value = T>, T>(
        &mut self,
        key: &'static str,
        seed: S,
    ) -> Option<Written<T>> {
        let value = self.take(key)?;
        let at = At { key, line: Some(line(self.text, value.span().start)) };
        match seed.deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Some(Written { value, at }),
            Err(error) => {
                self.mistakes.push(mistake(self.text, &error));
                None
            }
        }
    }

    /// The whole number `key`, if it stands there and is one of these.
    pub fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Option<Written<u32>> {
        let value = self.take(key)?;
        let span = value.span();
        let line = line(self.text, span.start);
        let number = i64::deserialize(ValueDeserializer::from(value)).ok();
        let number = number.and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let written = self.text.get(span).and_then(|text| text.lines().next());
            let (written, expected) = (written.unwrap_or_default(), whole(&range));
            let why = format_args!("{key} {written}: expected {expected}");
            self.mistakes.push(Mistake::in_line(line, why));
        }
        Some(Written { value: number?, at: At { key, line: Some(line) } })
    }

    /// The time `key`, if it stands there: a text, or a number of seconds, which comes as its digits.
    pub fn time(&mut self, key: &'static str) -> Option<Written> {
        self.read_by(key, TextOrNumber("a time like \"30s\", or a number of seconds"))
    }

    /// The address `key`, if it stands there: a text, or a number, which comes as its digits.
    pub fn address(&mut self, key: &'static str) -> Option<Written> {
        self.read_by(key, TextOrNumber(ADDRESS))
    }

    /// The texts of the list `key`, if it stands there; it may not be empty.
    pub fn each(&mut self, key: &'static str) -> Vec<Written> {
        let Some(list) = self.one::<Vec<Spanned<String>>>(key) else { return Vec::new() };
        if list.value.is_empty() {
            let why = "names nothing: leave it out, or name something";
            self.mistakes.push(Mistake::at(&list.at, why));
        }
        let written = |value: Spanned<String>| {
            let at = At { key, line: Some(line(self.text, value.span().start)) };
            Written { value: value.into_inner(), at }
        };
        list.value.into_iter().map(written).collect()
    }

    /// The texts of the list `key`, which the table that begins `at` needs.
    pub fn each_needed(&mut self, key: &'static str, at: &At) -> Vec<Written> {
        self.need(key, at);
        self.each(key)
    }

    /// The value of `key`, which the table that begins `at` needs.
    pub fn one_needed<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        at: &At,
    ) -> Option<Written<T>> {
        self.need(key, at);
        self.one(key)
    }

    fn need(&mut self, key: &str, at: &At) {
        if !self.has(key) {
            self.mistakes.push(Mistake::at(at, format_args!("missing field `{key}`")));
        }
    }

    /// A file or directory.
    pub fn path(&mut self, key: &'static str) -> Option<Written<PathBuf>> {
        self.one(key)
    }

    /// Each of the tables `[[key]]`, with its line; what is no such table is missing.
    pub fn sections<T>(&mut self, key: &'static str, read: impl Fn(&mut Self, At) -> T) -> Vec<T> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let start = value.span().start;
        let DeValue::Array(tables) = value.into_inner() else {
            self.no_sections(key, start);
            return Vec::new();
        };
        if tables.is_empty() {
            self.no_sections(key, start);
        }
        let mut all = Vec::new();
        for table in tables {
            let start = table.span().start;
            let DeValue::Table(values) = table.into_inner() else {
                self.no_sections(key, start);
                continue;
            };
            let (text, keys, mistakes) = (self.text, Vec::new(), Vec::new());
            let mut section = Self { text, values, keys, mistakes };
            all.push(read(&mut section, At { key, line: Some(line(text, start)) }));
            self.mistakes.append(&mut section.finish());
        }
        all
    }

    fn no_sections(&mut self, key: &str, at: usize) {
        let line = line(self.text, at);
        let why = format_args!("{key}: expected tables, each begun by [[{key}]]");
        self.mistakes.push(Mistake::in_line(line, why));
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'t>>> {
        self.keys.push(key);
        self.values.remove(key)
    }

    fn finish(mut self) -> Vec<Mistake> {
        let known: Vec<String> = self.keys.iter().map(|key| format!("`{key}`")).collect();
        for key in self.values.keys() {
            let (line, name) = (line(self.text, key.span().start), key.get_ref());
            let known = known.join(", ");
            let why = format_args!("{name}: unknown field `{name}`, expected one of {known}");
            self.mistakes.push(Mistake::in_line(line, why));
        }
        self.mistakes
    }
}

/// A text, or the digits of a number; and the words for what is meant.
struct TextOrNumber(&'static str);

impl<'de> DeserializeSeed<'de> for TextOrNumber {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<String, D::Error> {
        value.deserialize_any(self)
    }
}

impl Visitor<'_> for TextOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mistakes::Mistakes;

    fn words(text: &str) -> Vec<String> {
        let read = Section::read(text, |section| {
            let one = section.one::<u32>("number");
            let inner = section.sections("part", |part, at| (part.one::<bool>("on"), at.line));
            (one, section.each("list"), inner)
        });
        let mistakes = read.map_or_else(|of_form| vec![of_form], |(_, mistakes)| mistakes);
        Mistakes::begin(mistakes).into_found().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_time_is_a_text_or_a_number_of_seconds() {
        let read = |value: &str| {
            let text = format!("drain = {value}");
            Section::read(&text, |section| section.time("drain").map(|it| it.value)).unwrap()
        };
        for (text, value) in [("\"5m\"", "5m"), ("30", "30"), ("-1", "-1")] {
            assert_eq!(read(text).0.as_deref(), Some(value));
        }
        for wrong in ["0.5", "true", "[\"5m\"]"] {
            let (_, mistakes) = read(wrong);
            let words = format!("line 1: drain {wrong}: expected a time like \"30s\"");
            assert!(mistakes[0].to_string().starts_with(&words), "{mistakes:?}");
        }
    }

    #[test]
    fn an_address_is_one_text_or_a_port() {
        let read = |value: &str| {
            let text = format!("at = {value}");
            Section::read(&text, |section| section.address("at").map(|it| it.value)).unwrap()
        };
        for (text, value) in [("\"::1:80\"", "::1:80"), ("80", "80"), ("99999", "99999")] {
            assert_eq!(read(text).0.as_deref(), Some(value));
        }
        let expected = "expected one address, in quotes";
        for (wrong, line) in [
            ("true", "at true: "),
            ("[\"a\"]", "at [\"a\"]: "),
            ("[\"a\", \"b\"]", "at [\"a\", \"b\"]: "),
            ("[\n  'a', # one\n  'b',\n]", "at [: "),
        ] {
            let meant = match wrong {
                "true" => "",
                _ if wrong.contains('\'') => ": at = 'a'",
                _ => ": at = \"a\"",
            };
            let (_, mistakes) = read(wrong);
            assert_eq!(mistakes[0].to_string(), format!("line 1: {line}{expected}{meant}"));
        }
    }

    #[test]
    fn a_number_of_whatever_form_gets_one_sentence_with_its_range() {
        let read = |value: &str| {
            let text = format!("\nmost = {value}");
            let read =
                |section: &mut Section<'_>| section.number("most", 1..=64).map(|it| it.value);
            Section::read(&text, read).unwrap()
        };
        assert_eq!((read("1").0, read("64").0), (Some(1), Some(64)));
        for wrong in ["0", "65", "-1", "99999999999", "7.0", "\"7\"", "[7]", "true"] {
            let (number, mistakes) = read(wrong);
            assert_eq!(number, None);
            let words = format!("line 2: most {wrong}: expected a whole number from 1 to 64");
            assert_eq!(mistakes[0].to_string(), words);
        }
    }

    #[test]
    fn mistakes_of_all_tables_are_found_at_once_in_the_order_of_their_lines() {
        let text =
            "number = \"x\"\nlist = [\"a\", 3]\n\n[[part]]\non = 1\n\n[[part]]\noff = true\n";
        assert_eq!(
            words(text),
            [
                "line 1: number \"x\": expected a whole number from 0 to 4294967295",
                "line 2: list 3: expected a text in quotes",
                "line 5: on 1: expected true or false",
                "line 8: off: unknown field `off`, expected one of `on`",
            ]
        );
        for (text, line) in [
            ("list = \"a\"", "list \"a\": expected a list, in [ ]: list = [\"a\"]"),
            ("list='a, b'", "list 'a, b': expected a list, in [ ]: list = ['a', 'b']"),
            ("list = 7", "list 7: expected a list, in [ ]"),
        ] {
            assert_eq!(words(text), [format!("line 1: {line}")]);
        }
        assert_eq!(words("number = 1\nnumber = 2").len(), 1);
        assert_eq!(
            words("list = []"),
            ["line 1: list: names nothing: leave it out, or name something"]
        );
        assert_eq!(
            words("part = 1\n[part2]"),
            [
                "line 1: part: expected tables, each begun by [[part]]",
                "line 2: part2: unknown field `part2`, expected one of `number`, `part`, `list`",
            ]
        );
        assert!(words("number = 3\n[[part]]\non = true").is_empty());
    }
}

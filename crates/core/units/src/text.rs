//! Text from elsewhere, for terminals and logs.

use alloc::format;
use alloc::string::String;

/// True if a character does something to the text around it: ends lines, moves the cursor, turns
/// the direction of writing.
pub fn acts_on_terminals(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2066}'..='\u{2069}')
}

/// Text of a peer, with every character that would act on a terminal written as Rust writes it
/// (`\n`, `\u{1b}`): it stays on its line and steers nothing. Shown again it stays the same.
///
/// ```
/// use longhaul_units::shown;
///
/// assert_eq!(shown("full\n10.0.0.7: \u{1b}[2Jdone"), "full\\n10.0.0.7: \\u{1b}[2Jdone");
/// assert_eq!(shown("Größe: 3 µs"), "Größe: 3 µs");
/// ```
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match acts_on_terminals(letter) {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}

/// A name or path, as output and JSON have it everywhere: UTF-8 as [`shown`] has it, each other byte as `\xff`, a
/// backslash twice. No two names are shown alike.
///
/// ```
/// use longhaul_units::shown_path;
///
/// assert_eq!(shown_path("Größe/a\\b\n".as_bytes()), "Größe/a\\\\b\\n");
/// assert_eq!(shown_path(b"caf\xe9"), "caf\\xe9");
/// ```
pub fn shown_path(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        out.push_str(&shown(&chunk.valid().replace('\\', "\\\\")));
        for byte in chunk.invalid() {
            out.extend(byte.escape_ascii().map(char::from));
        }
    }
    out
}

/// A path that is shown, in at most `most` characters: what is left out is in its middle, so that where it begins and
/// the file's name stay.
///
/// ```
/// use longhaul_units::shortened;
///
/// assert_eq!(shortened("tree/sub/deep/file", 14), "tree/s.../file");
/// ```
pub fn shortened(path: &str, most: usize) -> String {
    let len = path.chars().count();
    if len <= most {
        return path.into();
    }
    let room = most.saturating_sub(DOTS.len());
    let name = path.rsplit('/').next().map_or(0, |name| name.chars().count());
    let end = (name + 1).clamp(room / 2, room);
    let begin = path.chars().take(room - end);
    begin.chain(DOTS.chars()).chain(path.chars().skip(len - end)).collect()
}

/// In the place of what is left out.
const DOTS: &str = "...";

/// So many of what has a plural as most words have.
///
/// ```
/// use longhaul_units::counted;
///
/// assert_eq!([0, 1, 2].map(|files| counted(files, "file")), ["0 files", "1 file", "2 files"]);
/// ```
pub fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The words of a message, without the numbers of system errors, which nobody can look up.
///
/// ```
/// use longhaul_units::without_numbers;
///
/// assert_eq!(without_numbers("a: full (os error 28); b"), "a: full; b");
/// ```
pub fn without_numbers(message: &str) -> String {
    let mut parts = message.split(NUMBER);
    let mut words = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let (number, rest) = part.split_once(')').unwrap_or(("", part));
        match number.parse::<u32>() {
            Ok(_) => words.push_str(rest),
            Err(_) => words.extend([NUMBER, part]),
        }
    }
    words
}

/// The standard library's words before such a number.
const NUMBER: &str = " (os error ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_system_errors_are_left_out() {
        for (message, words) in [
            ("full (os error 28)", "full"),
            ("a (os error 5); b (os error 113), c", "a; b, c"),
            ("a (os error of ours)", "a (os error of ours)"),
            ("a (os error 5", "a (os error 5"),
            ("", ""),
        ] {
            assert_eq!(without_numbers(message), words);
        }
    }

    #[test]
    fn what_is_left_out_of_a_path_is_in_its_middle() {
        let path = "tree/sub/deep/größe.h5";
        for (most, expected) in [
            (22, path),
            (21, "tree/sub/.../größe.h5"),
            (18, "tree/s.../größe.h5"),
            (13, "t.../größe.h5"),
            (12, ".../größe.h5"),
            (9, "...öße.h5"),
            (3, "..."),
            (0, "..."),
        ] {
            assert_eq!(shortened(path, most), expected, "{most}");
        }
        // Of names that are short there is more of the directories.
        assert_eq!(shortened(&"abcdefgh/".repeat(9), 13), "abcde...efgh/");
    }

    #[test]
    fn each_name_is_shown_in_a_form_of_its_own() {
        let names: [&[u8]; 6] =
            [b"a\xff", b"a\\xff", b"a\n", b"a\\n", "a\u{fffd}".as_bytes(), b"a\\"];
        let mut forms: alloc::vec::Vec<String> = names.iter().map(|it| shown_path(it)).collect();
        assert_eq!(forms[0], "a\\xff");
        forms.sort();
        forms.dedup();
        assert_eq!(forms.len(), names.len(), "{forms:?}");
    }

    #[test]
    fn nothing_that_is_shown_acts_and_the_rest_is_as_it_was() {
        let all: String = ('\0'..=char::MAX).collect();
        let shown_once = shown(&all);
        assert!(!shown_once.chars().any(acts_on_terminals));
        assert_eq!(shown(&shown_once), shown_once);
        let harmless: String = all.chars().filter(|letter| !acts_on_terminals(*letter)).collect();
        assert_eq!(shown(&harmless), harmless);
    }
}

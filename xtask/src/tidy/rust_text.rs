//! Looking at Rust source without a parser: comments and literals blanked out, test code marked.

use std::ops::Range;

/// `text` with comments, strings and character literals replaced by spaces. Same length and lines.
pub fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    while masked.len() < bytes.len() {
        let at = masked.len();
        let end = blank_end(bytes, at);
        if end == at {
            // Only literals, comments and rare identifiers hold anything but ASCII.
            masked.push(if bytes[at].is_ascii() { bytes[at] } else { b' ' });
        }
        let blank = |&byte: &u8| if byte == b'\n' { b'\n' } else { b' ' };
        masked.extend(bytes[at..end].iter().map(blank));
    }
    String::from_utf8(masked).unwrap_or_default()
}

/// End of the comment or literal that starts at `at`; `at` itself when none does.
fn blank_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => at + find(rest, b"\n").unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + comment_length(rest),
        [b'"', ..] => at + string_length(rest),
        [b'r', b'"' | b'#', ..] if !continues_name(bytes, at) => at + raw_string_length(rest),
        [b'\'', b'\\', ..] => {
            at + 3 + find(&rest[3.min(rest.len())..], b"'").map_or(0, |length| length + 1)
        }
        [b'\'', ..] => {
            // A character has at most four bytes; a lifetime has no closing quote behind one.
            let text = std::str::from_utf8(&rest[1..rest.len().min(5)]);
            let valid = text.map_or_else(|error| error.valid_up_to(), str::len);
            let first = std::str::from_utf8(&rest[1..=valid]).unwrap_or_default().chars().next();
            let quote = 1 + first.map_or(0, char::len_utf8);
            at + if rest.get(quote) == Some(&b'\'') && quote > 1 { quote + 1 } else { 0 }
        }
        _ => at,
    }
    .min(bytes.len())
}

fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Zero when it is a raw identifier, not a raw string.
fn raw_string_length(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[2 + hashes..];
    2 + hashes + find(body, &close).map_or(body.len(), |length| length + close.len())
}

/// True if the byte before `at` makes it the middle of a name; the prefixes of `br""` and `cr""`
/// do not.
fn continues_name(bytes: &[u8], at: usize) -> bool {
    let before = |distance: usize| at.checked_sub(distance).map(|place| bytes[place]);
    match before(1) {
        Some(b'b' | b'c') => before(2).is_some_and(is_name),
        Some(byte) => is_name(byte),
        None => false,
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Line ranges (from 0, end exclusive) of the items under `#[cfg(test)]`, in masked text.
pub fn test_lines(masked: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let line_of = |at: usize| masked[..at].matches('\n').count();
    let mut from = 0;
    while let Some(found) = masked[from..].find("#[cfg(test)]") {
        let start = from + found;
        from = item_end(masked, start + "#[cfg(test)]".len());
        ranges.push(line_of(start)..line_of(from) + 1);
    }
    ranges
}

/// End of the item at `start`: its matching brace, or its semicolon.
fn item_end(masked: &str, start: usize) -> usize {
    let (mut brackets, mut braces) = (0_usize, 0_usize);
    for (offset, byte) in masked.as_bytes()[start..].iter().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b'{' => braces += 1,
            b'}' if braces <= 1 => return start + offset,
            b'}' => braces -= 1,
            b';' if brackets == 0 && braces == 0 => return start + offset,
            _ => {}
        }
    }
    masked.len()
}

/// True if `token` stands in `line` as whole words.
pub fn has_token(line: &str, token: &str) -> bool {
    let bytes = line.as_bytes();
    let name_at = |place: Option<usize>| {
        place.and_then(|place| bytes.get(place)).is_some_and(|&byte| is_name(byte))
    };
    let starts_named = token.bytes().next().is_some_and(is_name);
    let ends_named = token.bytes().next_back().is_some_and(is_name);
    line.match_indices(token).any(|(at, _)| {
        let joined_before = starts_named && name_at(at.checked_sub(1));
        let joined_behind = ends_named && name_at(Some(at + token.len()));
        !joined_before && !joined_behind
    })
}

/// The words of a line in lower case, names cut at `_` and capitals.
pub fn words(line: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(line.len() + 8);
    let mut before = ' ';
    for letter in line.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if letter.is_alphabetic() { letter } else { ' ' });
        before = letter;
    }
    let words: Vec<String> = spaced.split(' ').map(str::to_lowercase).collect();
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        let masked = mask(text);
        assert_eq!(masked.len(), text.len());
        assert_eq!(masked.matches('\n').count(), text.matches('\n').count());
        masked.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(squeezed("a // unsafe\nb /* x /* y */ z */ c"), "a b c");
        assert_eq!(squeezed(r#"f("un\"safe", b"x", 'u', '\'', '"') g"#), "f( , b , , , ) g");
        assert_eq!(squeezed("r#\"a \" b\"# c r\"d\\\" e br##\"x\"# y\"## z"), "c e b z");
        assert_eq!(squeezed("'é' '\\u{e9}' b'\\n' x"), "b x");
    }

    #[test]
    fn lifetimes_and_raw_names_stay() {
        assert_eq!(squeezed("fn f<'a>(x: &'a str) -> r#type"), "fn f<'a>(x: &'a str) -> r#type");
        assert_eq!(squeezed("var\"text\""), "var");
    }

    #[test]
    fn broken_source_does_not_panic() {
        for text in ["\"abc", "'", "'\\", "r#\"x", "/* a", "b'\\", "'\u{1f600}", "\"\\"] {
            assert_eq!(mask(text).len(), text.len());
        }
    }

    #[test]
    fn test_items_are_found_to_their_end() {
        let text = "fn a() {}\n#[cfg(test)]\nextern crate std;\nfn b() {}\n\
                    #[cfg(test)]\n#[allow(x)]\nmod tests {\n  fn c() { [0; 4]; }\n}\nfn d() {}\n";
        assert_eq!(test_lines(&mask(text)), [1..3, 4..9]);
        let text = "#[cfg(test)]\nfn f() -> [u8; 4] {\n}\nfn g() {}\n#[cfg(test)]";
        assert_eq!(test_lines(text), [0..3, 4..5]);
    }

    #[test]
    fn tokens_are_whole_words() {
        assert!(has_token("use std::fs;", "std::"));
        assert!(!has_token("use mystd::fs;", "std::"));
        assert!(!has_token("forbid(unsafe_code)", "unsafe"));
        assert!(has_token("unsafe { f() }", "unsafe"));
        assert!(has_token("a::Instant::now()", "Instant::now"));
        assert!(!has_token("Instant::nowhere()", "Instant::now"));
    }
}

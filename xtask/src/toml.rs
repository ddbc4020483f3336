//! Just enough TOML to read our own configuration: tables, strings, lists of strings.

/// The text of `key` in `[table]` (the top level is `""`), without surrounding quotes, and its line
/// number from 1. Lists may span lines. `None` when the table or key is absent.
pub fn value(text: &str, table: &str, key: &str) -> Option<(String, usize)> {
    let mut current = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let line = without_comment(line);
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current = name.trim().to_owned();
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        if current != table || name.trim() != key {
            continue;
        }
        let mut value = value.trim().to_owned();
        while value.starts_with('[') && !value.ends_with(']') {
            let (_, line) = lines.next()?;
            value.push_str(without_comment(line));
        }
        return Some((value.trim_matches('"').to_owned(), number + 1));
    }
    None
}

/// The strings of the list `key` in `[table]`; empty when absent.
pub fn strings(text: &str, table: &str, key: &str) -> Vec<String> {
    let Some((value, _)) = value(text, table, key) else { return Vec::new() };
    value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// None of our configuration has a `#` inside a string.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "top = \"a\"\n\n[lints]\nworkspace = true # why\n[list]\n\
                        names = [\n  \"one\", # first\n  \"two\",\n]\nempty = []\n";

    #[test]
    fn values_are_found_in_their_table_only() {
        assert_eq!(value(TEXT, "", "top"), Some(("a".into(), 1)));
        assert_eq!(value(TEXT, "lints", "workspace"), Some(("true".into(), 4)));
        assert_eq!(value(TEXT, "lints", "top"), None);
    }

    #[test]
    fn lists_span_lines() {
        assert_eq!(strings(TEXT, "list", "names"), ["one", "two"]);
        assert!(strings(TEXT, "list", "empty").is_empty());
        assert!(strings(TEXT, "list", "absent").is_empty());
    }
}

//! Single values of our own configuration, with the lines on which they stand.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The string or boolean `key` in `[table]` (the top level is `""`), and its line number from 1.
/// `None` when it is absent or the text is not TOML, which cargo and the tools report themselves.
pub fn value(text: &str, table: &str, key: &str) -> Option<(String, usize)> {
    let document = DeTable::parse(text).ok()?;
    let value = find(&document, table, key)?;
    let line = text[..value.span().start].matches('\n').count() + 1;
    match value.get_ref() {
        DeValue::String(text) => Some((text.to_string(), line)),
        DeValue::Boolean(value) => Some((value.to_string(), line)),
        _ => None,
    }
}

/// The strings of the list `key` in `[table]`; empty when absent.
pub fn strings(text: &str, table: &str, key: &str) -> Vec<String> {
    let Ok(document) = DeTable::parse(text) else { return Vec::new() };
    let list = find(&document, table, key).and_then(|value| value.get_ref().as_array());
    let strings = list.into_iter().flatten().filter_map(|value| value.get_ref().as_str());
    strings.map(str::to_owned).collect()
}

fn find<'t, 'a>(
    document: &'t Spanned<DeTable<'a>>,
    table: &str,
    key: &str,
) -> Option<&'t Spanned<DeValue<'a>>> {
    let mut inside = document.get_ref();
    for part in table.split('.').filter(|part| !part.is_empty()) {
        inside = inside.get(part)?.get_ref().as_table()?;
    }
    inside.get(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "top = \"a\"\n\n[lints]\nworkspace = true # why\n[list.inner]\n\
                        names = [\n  \"one\", # first\n  \"two\",\n]\nempty = []\n";

    #[test]
    fn values_are_found_in_their_table_only() {
        assert_eq!(value(TEXT, "", "top"), Some(("a".into(), 1)));
        assert_eq!(value(TEXT, "lints", "workspace"), Some(("true".into(), 4)));
        assert_eq!(value(TEXT, "lints", "top"), None);
        assert_eq!(value("no toml", "", "top"), None);
    }

    #[test]
    fn lists_span_lines() {
        assert_eq!(strings(TEXT, "list.inner", "names"), ["one", "two"]);
        assert!(strings(TEXT, "list.inner", "empty").is_empty());
        assert!(strings(TEXT, "list.inner", "absent").is_empty());
    }
}

//! `--files-from`: the list of names that are copied, and of no others.

use std::path::Path;
use std::sync::Arc;

use longhaul::NameList;

use crate::failure::Failure;
use crate::input;

/// Reads the list of `path`, or of standard input for `-`: names in the source, one a line, or with a zero behind
/// each. Nothing where that itself is listed: all is copied.
pub(crate) fn read(path: &Path, ends_in_zero: bool) -> Result<Option<Arc<NameList>>, Failure> {
    let text = input::read(path).map_err(|error| {
        Failure::failed(format!("--files-from: cannot read {}: {error}", path.display()))
    })?;
    parse(&text, ends_in_zero)
        .map_err(|reason| Failure::usage(format!("--files-from {}: {reason}", path.display())))
}

/// As rsync reads it: without zeros, lines that are empty or begin with `#` or `;` are no names.
fn parse(text: &[u8], ends_in_zero: bool) -> Result<Option<Arc<NameList>>, String> {
    let is_end = |byte: &u8| match ends_in_zero {
        true => *byte == 0,
        false => matches!(byte, b'\n' | b'\r'),
    };
    let is_name = |line: &&[u8]| match line.first() {
        None => false,
        Some(first) => ends_in_zero || !matches!(first, b'#' | b';'),
    };
    let mut names = Vec::new();
    for line in text.split(is_end).filter(is_name) {
        let components = line.split(|byte| *byte == b'/');
        let components: Vec<_> = components.filter(|it| !matches!(*it, b"" | b".")).collect();
        if components.contains(&&b".."[..]) {
            return Err(format!(
                "{}: a name with .. may lead out of the source",
                line.escape_ascii()
            ));
        }
        if components.is_empty() {
            return Ok(None);
        }
        names.push(components.join(&b'/'));
    }
    NameList::new(names).map(|list| Some(Arc::new(list))).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, ends_in_zero: bool) -> Vec<String> {
        let list = parse(text.as_bytes(), ends_in_zero).unwrap().unwrap();
        list.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_list_is_read_as_rsync_reads_it() {
        assert_eq!(names("b\n\n#c\r\n;d\n/a//x/./y/\n", false), ["b", "a/x/y"]);
        assert_eq!(names("#b\0a\nx\0", true), ["#b", "a\nx"]);
        assert_eq!(names("", false), Vec::<String>::new());
        assert!(parse(b"a\n./\n", false).unwrap().is_none(), "all");
        assert!(parse(b"a/../b", false).unwrap_err().contains("a name with .."));
        assert!(parse(&[b'a'; 5000], false).is_err());
    }
}

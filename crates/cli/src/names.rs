//! `--files-from`: the list of names that are copied, and of no others.

use std::path::Path;
use std::sync::Arc;

use longhaul::NameList;
use longhaul_units::shown_path;

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
    let (mut names, mut upwards, mut is_all) = (Vec::new(), Vec::new(), false);
    for line in text.split(is_end).filter(is_name) {
        match below(line) {
            None if upwards.len() < LINES_SHOWN => upwards.push(shown_path(line)),
            None => {}
            Some(name) => {
                is_all |= name.is_empty();
                names.push(name);
            }
        }
    }
    if !upwards.is_empty() {
        let sentence = |line: &String| format!("{line}: it leads out of SRC, upwards");
        return Err(upwards.iter().map(sentence).collect::<Vec<_>>().join("\n"));
    }
    if is_all {
        return Ok(None);
    }
    NameList::new(names).map(|list| Some(Arc::new(list))).map_err(|error| error.to_string())
}

/// The path that a line names, in which each `..` takes away the name before it; nothing where there is none.
fn below(line: &[u8]) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    for component in line.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

/// Lines that lead upwards and are named.
const LINES_SHOWN: usize = 10;

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
        assert_eq!(names("a/../b\nc/d/../../e/./f\n", false), ["b", "e/f"]);
        assert!(parse(b"b\na/..\n", false).unwrap().is_none(), "all");
        let error = parse(b"../x\nb\na/../../y\n", false).unwrap_err();
        let lines = ["../x", "a/../../y"].map(|it| format!("{it}: it leads out of SRC, upwards"));
        assert_eq!(error, lines.join("\n"));
        assert!(parse(&[b'a'; 5000], false).is_err());
    }
}

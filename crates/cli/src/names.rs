//! `--files-from`: the list of names that are copied, and of no others.

use std::path::Path;
use std::sync::Arc;

use longhaul::{FilterRule, ListedNames, NameList, NamesBesideRules, list_beside_rules};
use longhaul_sys::reasons::unread;
use longhaul_units::shown_path;

use crate::failure::Failure;
use crate::input;

/// Reads the list of `path`, or of standard input for `-`: names in the source, one a line, or with a zero behind
/// each. No names where that itself is listed: all is copied. Returns rules too, which mean beside the names what `rules`
/// do.
pub(crate) fn read(
    path: &Path,
    ends_in_zero: bool,
    rules: Vec<FilterRule>,
) -> Result<(ListedNames, Vec<FilterRule>), Failure> {
    let text = input::read(path).map_err(|error| {
        Failure::failed(format!("--files-from: cannot read {}: {}", path.display(), unread(&error)))
    })?;
    parse(&text, ends_in_zero, rules)
        .map_err(|reason| Failure::usage(format!("--files-from {}: {reason}", path.display())))
}

/// As rsync reads it: without zeros, lines that are empty or begin with `#` or `;` are no names.
fn parse(
    text: &[u8],
    ends_in_zero: bool,
    rules: Vec<FilterRule>,
) -> Result<(ListedNames, Vec<FilterRule>), String> {
    if !ends_in_zero && text.contains(&0) {
        return Err("a name holds NUL: -0 reads names that end in NUL".into());
    }
    let is_end = |byte: &u8| match ends_in_zero {
        true => *byte == 0,
        false => matches!(byte, b'\n' | b'\r'),
    };
    let is_name = |line: &&[u8]| match line.first() {
        None => false,
        Some(first) => ends_in_zero || !matches!(first, b'#' | b';'),
    };
    let (mut names, mut refused, mut is_all) = (Vec::new(), Vec::new(), false);
    let (mut number, unit) = (1, if ends_in_zero { "name" } else { "line" });
    for line in text.split_inclusive(is_end) {
        let (at, end) = (number, line.last().copied().filter(|byte| is_end(byte)));
        number += usize::from(end.is_some_and(|end| end != b'\r'));
        let line = &line[..line.len() - usize::from(end.is_some())];
        if !is_name(&line) {
            continue;
        }
        match below(line) {
            Err(why) if refused.len() < LINES_SHOWN => {
                refused.push(format!("{unit} {at}: {}: {why}", shown_path(line)));
            }
            Err(_) => {}
            Ok(name) => {
                is_all |= name.is_empty();
                names.push(name);
            }
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("\n"));
    }
    if is_all {
        names.push(Vec::new());
    }
    let NamesBesideRules { names, rules, due } =
        list_beside_rules(names, rules).map_err(|error| error.to_string())?;
    let list = (!is_all).then(|| NameList::new(names).map(Arc::new)).transpose();
    Ok((ListedNames { list: list.map_err(|error| error.to_string())?, due }, rules))
}

/// The path that a line names, in which each `..` takes away the name before it; the reason where it is not taken. A
/// slash behind it stays.
fn below(line: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut names = Vec::new();
    let mut components = line.split(|byte| *byte == b'/').peekable();
    while let Some(component) = components.next() {
        match component {
            b"." if !names.is_empty() && components.peek().is_some() => return Err(CUT),
            b"" | b"." => {}
            b".." => drop(names.pop().ok_or(UPWARDS)?),
            name => names.push(name),
        }
    }
    let is_directory = !names.is_empty() && (line.ends_with(b"/") || line.ends_with(b"/."));
    names.extend(is_directory.then_some(&b""[..]));
    Ok(names.join(&b'/'))
}

const UPWARDS: &str = "it leads out of SRC, upwards";
const CUT: &str = "rsync copies what is behind `/./` without the directories before it: make these part of SRC, \
                   with a list of its own, or leave out the dot";
/// Lines that are refused and named.
const LINES_SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use longhaul::FilterKind;

    use super::*;

    fn parse(text: &[u8], ends_in_zero: bool) -> Result<Option<Arc<NameList>>, String> {
        super::parse(text, ends_in_zero, Vec::new()).map(|(names, _)| names.list)
    }

    fn names(text: &str, ends_in_zero: bool) -> Vec<String> {
        let list = parse(text.as_bytes(), ends_in_zero).unwrap().unwrap();
        list.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_list_is_read_as_rsync_reads_it() {
        assert_eq!(names("b\n\n#c\r\n;d\n/a//x/y/\n", false), ["b", "a/x/y"]);
        assert_eq!(names("././a/b\n/./c\n", false), ["c", "a/b"]);
        let slashed = parse(b"/a//\nb/.\nc\nd/e\nf/..\n", false);
        assert!(slashed.unwrap().is_none(), "all");
        let slashed = parse(b"/a//\nb/.\nc\nd/e\nf/g/..\n", false).unwrap().unwrap();
        let follows = ["a", "b", "c", "d/e", "f"].map(|name| slashed.follows(name.as_bytes()));
        assert_eq!(follows, [true, true, false, false, false]);
        assert_eq!(names("#b\0a\nx\0", true), ["#b", "a\nx"]);
        assert_eq!(names("", false), Vec::<String>::new());
        assert!(parse(b"a\n./\n", false).unwrap().is_none(), "all");
        assert_eq!(names("a/../b\nc/d/../../e/f\n", false), ["b", "e/f"]);
        assert!(parse(b"b\na/..\n", false).unwrap().is_none(), "all");
        let error = |text: &[u8], ends_in_zero| parse(text, ends_in_zero).unwrap_err();
        let sentence = |it: &str| format!("{it}: it leads out of SRC, upwards");
        let lines = ["line 2: ../x", "line 5: a/../../y"].map(sentence).join("\n");
        assert_eq!(error(b"\r\n../x\n\nb\r\na/../../y", false), lines);
        assert_eq!(error(b"a\nb\0../x\0", true), sentence("name 2: ../x"));
        for line in ["a/./b", "./a/.//b", "a/b/./", "a/./.", "a/./../b"] {
            let refused = error(format!("x\n{line}\n").as_bytes(), false);
            assert!(refused.starts_with(&format!("line 2: {line}: rsync copies")), "{refused}");
        }
        assert!(parse(&[b'a'; 5000], false).is_err());
        assert!(error(b"a\0b\0", false).contains("-0 reads names that end in NUL"));
    }

    #[test]
    fn a_name_that_is_excluded_does_not_take_away_names_below_it() {
        let rule = |kind, pattern: &str| FilterRule { kind, pattern: pattern.into() };
        let exclude = rule(FilterKind::Exclude, "ex");
        let parse = |text: &[u8]| super::parse(text, false, vec![exclude.clone()]).unwrap();
        let (names, rules) = parse(b"o/ex\no/ex/f\n");
        let list = names.list.unwrap();
        assert_eq!((list.get(0), rules), (Some(&b"o/ex/f"[..]), vec![exclude.clone()]));
        let (names, rules) = parse(b"./\nex/f\n");
        assert_eq!((names.list, names.due), (None, vec![b"ex/f".to_vec()]), "all");
        let include = |pattern| rule(FilterKind::Include, pattern);
        let others = rule(FilterKind::Exclude, "/ex/*");
        assert_eq!(rules, [include("/ex/"), include("/ex/f"), others, exclude.clone()]);
    }
}

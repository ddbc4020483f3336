//! Names of entries that stand in for what no entry can have the path of (docs/files.md section "The source").

/// Path of one in the tree of `path`, under its name, or the end of that, behind dots where more is left out. No file has it already, and nobody can make one
/// that will: it is the `count`-th, with a random number.
pub(super) fn path(path: &[u8], count: u32, salt: u32) -> Vec<u8> {
    let top = path.iter().position(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (top, below) = path.split_at(top);
    let fits = !below.is_empty() && below.len() <= NAME_MOST && !below.contains(&b'/');
    let (dots, name) = if fits { (&b""[..], below) } else { (DOTS, end_of_name(below)) };
    let mark = format!("{MARK}{count}, {salt:08x})");
    [top, dots, name, mark.as_bytes()].concat()
}

/// As much of the last name in `path` as fits behind dots, from the begin of a character on.
fn end_of_name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let end = &name[name.len().saturating_sub(NAME_MOST - DOTS.len())..];
    let is_inside = |byte: &&u8| (0x80..0xc0).contains(*byte);
    let inside = end.iter().take(3).take_while(is_inside).count();
    if end.len() < name.len() { &end[inside..] } else { end }
}

/// The path that an entry of such a path stands in for, for people; nothing of another path.
pub fn stood_for(path: &[u8]) -> Option<&[u8]> {
    let at = path.windows(MARK.len()).rposition(|part| part == MARK.as_bytes())?;
    let numbers = path[at + MARK.len()..].strip_suffix(b")")?;
    let comma = numbers.iter().position(|byte| *byte == b',')?;
    let (count, salt) = (&numbers[..comma], numbers[comma..].strip_prefix(b", ")?);
    let is_mark = !count.is_empty()
        && count.iter().all(u8::is_ascii_digit)
        && salt.len() == 8
        && salt.iter().all(u8::is_ascii_hexdigit);
    is_mark.then_some(&path[..at])
}

const MARK: &str = " (not copied ";
/// In the place of directories, and of what is too long of a name.
const DOTS: &[u8] = b"...";
/// Bytes of a name that leave room for the mark.
const NAME_MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_has_the_name_of_what_it_stands_for_where_that_fits() {
        let long = [b'x'; NAME_MOST + 1];
        let dotted = [b"...", &long[4..]].concat();
        // A character has two bytes, and the cut is in one.
        let (wide, wide_dotted) = ("ö".repeat(120), format!("...{}", "ö".repeat(98)));
        let (wide, wide_dotted) = (wide.as_bytes(), wide_dotted.as_bytes());
        for (real, shown) in [
            (&b"file"[..], &b"file"[..]),
            (b"tree/file", b"tree/file"),
            (b"tree/sub/file", b"tree/...file"),
            (b"tree/sub/deep/", b"tree/..."),
            (b"", b"..."),
            (&long, &dotted),
            (wide, wide_dotted),
        ] {
            let stand_in = path(real, 12, 0xab);
            assert!(stand_in.ends_with(b" (not copied 12, 000000ab)"));
            assert_eq!(stood_for(&stand_in), Some(shown));
        }
        for other in
            ["file", "a (not copied 1)", "a (not copied 1, 000000ab)x", "a (not copied , 000000ab)"]
        {
            assert_eq!(stood_for(other.as_bytes()), None, "{other}");
        }
    }
}

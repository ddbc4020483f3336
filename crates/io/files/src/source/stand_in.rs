//! Names of entries that stand in for what no entry can have the path of (docs/files.md section "The source").

/// Path of one in the tree of `path`, under its name where that fits. No file has it already, and nobody can make one
/// that will: it is the `count`-th, with a random number.
pub(super) fn path(path: &[u8], count: u32, salt: u32) -> Vec<u8> {
    let top = path.iter().position(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (top, below) = path.split_at(top);
    let fits = !below.is_empty() && below.len() <= NAME_MOST && !below.contains(&b'/');
    let name = if fits { below } else { SOMETHING };
    let mark = format!("{MARK}{count}, {salt:08x})");
    [top, name, mark.as_bytes()].concat()
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
/// In the place of a name that is too long, or a path.
const SOMETHING: &[u8] = b"...";
/// Bytes of a name that leave room for the mark.
const NAME_MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_has_the_name_of_what_it_stands_for_where_that_fits() {
        let long = [b'x'; NAME_MOST + 1];
        for (real, shown) in [
            (&b"file"[..], &b"file"[..]),
            (b"tree/file", b"tree/file"),
            (b"tree/sub/file", b"tree/..."),
            (b"", b"..."),
            (&long, b"..."),
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

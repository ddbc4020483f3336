//! Paths behind `HOST:` in the words of the user.

use longhaul_units::shown_path;

/// The first `kept` of the `names` of a place, as the user has written them, whose word for the place is `asked`.
pub(crate) fn written(asked: &[u8], names: &[&[u8]], kept: usize) -> String {
    if kept == names.len() && !asked.is_empty() {
        return shown_path(asked);
    }
    let mut head = asked;
    for name in names[kept..].iter().rev() {
        let (above, last) = split(head);
        if last != *name {
            // The user has written less, or something else than the names.
            return format!("/{}", shown_path(&names[..kept].join(&b'/')));
        }
        head = above;
    }
    match head {
        b"" => ".".into(),
        head => shown_path(head),
    }
}

/// The path above the last name, with a slash where it is the root, and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let path = trimmed(path.strip_suffix(b"/.").unwrap_or(path));
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (b"", path),
        Some(0) => (b"/", &path[1..]),
        Some(at) => (trimmed(&path[..at]), &path[at + 1..]),
    }
}

/// Without slashes at its end.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use longhaul_wire::names_of;

    use super::*;

    #[test]
    fn a_place_or_one_above_it_is_named_as_the_user_has_written_it() {
        for (asked, place, kept, expected) in [
            ("run/x", "home/me/run/x", 4, "run/x"),
            ("run/./x/", "home/me/run/x", 4, "run/./x/"),
            ("run/x", "home/me/run/x", 3, "run"),
            ("run/x", "home/me/run/x", 2, "."),
            ("run/x", "home/me/run/x", 1, "/home"),
            ("~/run/x", "home/me/run/x", 3, "~/run"),
            ("/data/x", "data/x", 1, "/data"),
            ("/data//x/.", "data/x", 1, "/data"),
            ("/x", "x", 0, "/"),
            ("/", "", 0, "/"),
            ("", "home/me", 2, "."),
            ("", "home/me", 1, "/home"),
            ("a/../x", "home/me/x", 3, "a/../x"),
            ("a/..", "home/me", 1, "/home"),
            ("*", "home/me/*", 3, "*"),
            ("ä\x1b", "home/me/ä\x1b", 3, "ä\\u{1b}"),
        ] {
            let names: Vec<&[u8]> = names_of(place.as_bytes()).collect();
            assert_eq!(written(asked.as_bytes(), &names, kept), expected, "{asked} {kept}");
        }
    }
}

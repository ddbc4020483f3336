//! Refusals of a server that ssh has started, with the path that the user has written.

use longhaul_units::{shown, shown_path};

/// The reason of a refusal, in which a path of the server stands in front, with the path behind `host` that
/// people know, if it is one of the `places` that `asked` means there, above one or below one.
pub(super) fn as_asked(
    host: &str,
    (asked, places): (&[Vec<u8>], &[Vec<u8>]),
    reason: &str,
) -> Option<String> {
    let (path, rest) = reason.split_once(": ")?;
    let path: Vec<&str> = components(path);
    let written = |(asked, place): (&Vec<u8>, &Vec<u8>)| {
        let place = place.escape_ascii().to_string();
        let mut place = components(&place);
        if !path.iter().zip(&place).all(|(one, other)| one == other) {
            return None;
        }
        if path == place && !asked.is_empty() {
            return Some(shown_path(asked));
        }
        let whole = asked.escape_ascii().to_string();
        let mut head = &whole[..];
        // Where the user's names are those of the place.
        while let (Some(last), (above, name)) = (place.last(), split(head))
            && *last == name
        {
            (head, _) = (above, place.pop());
        }
        let below = path.get(place.len()..)?.join("/");
        Some(match (head, &below[..]) {
            ("" | ".", "") => ".".into(),
            ("" | ".", below) => below.into(),
            (head, "") => head.into(),
            (head, below) => format!("{}/{below}", head.trim_end_matches('/')),
        })
    };
    let written = asked.iter().zip(places).find_map(written)?;
    Some(format!("{}:{written}: {rest}", shown(host)))
}

/// Names of a path, which are those below a root.
fn components(path: &str) -> Vec<&str> {
    path.split('/').filter(|it| !matches!(*it, "" | ".")).collect()
}

/// The path above the last name, with a slash where it is the root, and the name.
fn split(path: &str) -> (&str, &str) {
    let path = path.trim_end_matches("/.").trim_end_matches('/');
    match path.rfind('/') {
        None => ("", path),
        Some(0) => ("/", &path[1..]),
        Some(at) => (path[..at].trim_end_matches('/'), &path[at + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_path_as_the_user_has_written_it() {
        for (asked, place, reason, expected) in [
            ("run/x", "home/me/run/x", "home/me/run/x: gone", "DTN:run/x: gone"),
            ("run/./x/", "home/me/run/x", "home/me/run/x: gone", "DTN:run/./x/: gone"),
            ("run/x", "home/me/run/x", "home/me/run: no such: x", "DTN:run: no such: x"),
            ("run/x", "home/me/run/x", "home/me/run/x/a/b: gone", "DTN:run/x/a/b: gone"),
            ("~/run/x", "home/me/run/x", "home/me/run: gone", "DTN:~/run: gone"),
            ("/data/x", "data/x", "data: gone", "DTN:/data: gone"),
            ("/x", "x", ".: gone", "DTN:/: gone"),
            ("/", "", "/: gone", "DTN:/: gone"),
            ("", "home/me", "home/me: gone", "DTN:.: gone"),
            ("", "home/me", "home/me/x: gone", "DTN:x: gone"),
            ("a/../x", "home/me/x", "home/me/x: gone", "DTN:a/../x: gone"),
            ("*", "home/me/*", "home/me/*: gone", "DTN:*: gone"),
            ("ä", "home/me/ä", r"home/me/\xc3\xa4: gone", "DTN:ä: gone"),
        ] {
            let (asked, places) = ([asked.as_bytes().to_vec()], [place.as_bytes().to_vec()]);
            let found = as_asked("DTN", (&asked, &places), reason);
            assert_eq!(found.as_deref(), Some(expected), "{reason}");
        }
        // Another path, and none.
        for reason in ["home/you: gone", "home: gone", "nobody may: ask", "no"] {
            let (asked, places) = ([b"run/x".to_vec()], [b"home/me/run/x".to_vec()]);
            assert_eq!(as_asked("DTN", (&asked, &places), reason), None, "{reason}");
        }
    }
}

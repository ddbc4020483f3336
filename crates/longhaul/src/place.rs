//! Places at a server, as people write them.

use longhaul_connection::Wish;
use longhaul_files::{FilterError, is_pattern};
use longhaul_units::shown;
use longhaul_wire::{AskedPart, Direction, Request, names_of};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::endpoint::ssh::asked::written;
use crate::error::Error;
use crate::options::{ConnectOptions, DEFAULT_PORT, Endpoint};

impl Endpoint {
    /// The place of `path` there: `lh://HOST[:PORT]/PATH`.
    ///
    /// ```
    /// use longhaul::Endpoint;
    ///
    /// assert_eq!(Endpoint::new("dtn", 7420).place(b"run 17"), "lh://dtn/run%2017");
    /// assert_eq!(Endpoint::new("fe80::1%eth0", 80).place(b""), "lh://[fe80::1%eth0]:80/");
    /// ```
    pub fn place(&self, path: &[u8]) -> String {
        self.url(&escaped(path))
    }

    fn url(&self, path: &str) -> String {
        let Self { host, port } = self;
        let host = match host.split_once('%') {
            // Of an interface's name that begins so it would be taken for a part of the escape.
            Some((address, zone)) if zone.starts_with("25") => format!("[{address}%25{zone}]"),
            _ if host.contains(':') => format!("[{host}]"),
            _ => host.clone(),
        };
        match *port {
            DEFAULT_PORT => format!("lh://{host}/{path}"),
            port => format!("lh://{host}:{port}/{path}"),
        }
    }
}

/// A path, or a name, with an escape for each byte that a person or a shell would stumble over.
pub fn escaped(path: &[u8]) -> String {
    percent_encode(path, ESCAPED).to_string()
}

/// That of a source: its wildcards stay, and those behind a backslash are escaped.
fn escaped_source(path: &[u8]) -> String {
    if !is_pattern(path) {
        return escaped(path);
    }
    let (mut out, mut bytes) = (String::new(), path.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'*' | b'?' | b'[' => out.push(char::from(*byte)),
            b'\\' => out.push_str(&escaped(bytes.as_slice().get(..1).unwrap_or(b"\\"))),
            byte => out.push_str(&escaped(&[*byte])),
        }
        if *byte == b'\\' {
            bytes.next();
        }
    }
    out
}

impl ConnectOptions {
    /// The path of that number is no pattern, though it has wildcards.
    pub(crate) fn wrong_pattern(
        &self,
        wish: &Wish,
        (number, path): (u64, &[u8]),
        error: &FilterError,
    ) -> Error {
        let place = self.named(wish, AskedPart::all_of(number, path)).unwrap_or_default();
        Error::usage(format!("{place}: {error}"))
    }

    /// The beginning of a path of a request, as the user has written that; nothing where the request has none such.
    pub(crate) fn named(&self, wish: &Wish, part: AskedPart) -> Option<String> {
        let at = usize::try_from(part.path).ok()?;
        let path = wish.paths().get(at)?;
        let names: Vec<&[u8]> = names_of(path).collect();
        let kept = usize::try_from(part.names).map_or(names.len(), |kept| kept.min(names.len()));
        if let Some(ssh) = &self.ssh {
            let place = written(ssh.asked().get(at)?, &names, kept);
            return Some(format!("{}:{place}", shown(ssh.destination())));
        }
        let path = names[..kept].join(&b'/');
        let is_source = match wish {
            Wish::Copy(Request { direction, .. }) => *direction == Direction::Pull,
            wish => matches!(wish, Wish::List(_)),
        };
        Some(self.server.url(&if is_source { escaped_source(&path) } else { escaped(&path) }))
    }
}

/// What a shell, or a person, would stumble over.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'\'')
    .add(b'\\')
    .add(b'`')
    .add(b'$')
    .add(b'*')
    .add(b'?')
    .add(b'[')
    .add(b'!')
    .add(b'{')
    .add(b'}')
    .add(b'(')
    .add(b')')
    .add(b'#')
    .add(b'&')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'|');

#[cfg(test)]
mod tests {
    use longhaul_session::Token;
    use longhaul_wire::ListRequest;

    use super::*;

    #[test]
    fn a_part_of_a_request_is_named_as_the_user_wrote_it_whatever_the_server_says() {
        let server = Endpoint::new("dtn", 7420);
        let connect = ConnectOptions::new(server, Token::from_random([7; 16]));
        let wish = |path: &str| Wish::List(ListRequest { recursive: false, path: path.into() });
        for (path, names, place) in [
            ("a/b c/d", 2, "lh://dtn/a/b%20c"),
            ("a/b c/d", u64::MAX, "lh://dtn/a/b%20c/d"),
            ("a/b", 0, "lh://dtn/"),
            ("", 3, "lh://dtn/"),
            ("r*/a\\?b\\\\", 2, "lh://dtn/r*/a%3Fb%5C"),
            ("a\\b", 1, "lh://dtn/a%5Cb"),
            ("a\x1b[2J", 1, "lh://dtn/a%1B[2J"),
        ] {
            let part = AskedPart { path: 0, names };
            assert_eq!(connect.named(&wish(path), part).as_deref(), Some(place), "{path}");
        }
        for path in [1, u64::MAX] {
            assert_eq!(connect.named(&wish("a"), AskedPart { path, names: 1 }), None);
        }
    }
}

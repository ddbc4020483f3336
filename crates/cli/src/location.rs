//! Names of files and trees: `lh://HOST[:PORT]/PATH`, or a path of this host.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longhaul::{DEFAULT_PORT, Endpoint};
use longhaul_units::shown;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

/// A file or tree, here or at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this host.
    Local(PathBuf),
    /// At a `longhaul serve`: `lh://HOST[:PORT]/PATH`.
    Remote {
        /// The server.
        server: Endpoint,
        /// Path below the server's root, as bytes, without a leading slash.
        path: Vec<u8>,
    },
}

/// A location, and how it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Without slashes at its end.
    pub location: Location,
    /// It ended in a slash: as a destination, a directory.
    pub trailing_slash: bool,
    /// It ended in a component without a name (`.`, `..`, the root): as a source, its contents.
    pub contents: bool,
}

/// Why a text names nothing, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLocationError(String);

impl std::fmt::Display for ParseLocationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseLocationError {}

/// Reads a location as a user writes it.
///
/// `HOST:PATH` is no local name, as `scp` has it: by a colon before any slash. In remote
/// paths `%` starts an escape of two hexadecimal digits; empty components and `.` are left out.
///
/// # Errors
/// A remote location that is incomplete or leads upwards; `HOST:PATH`, which needs ssh.
pub fn parse(text: &OsStr) -> Result<Parsed, ParseLocationError> {
    let bytes = text.as_bytes();
    if let Some(rest) = bytes.strip_prefix(SCHEME.as_bytes()) {
        return remote(rest).map_err(|what| {
            let shown = shown(&text.display().to_string());
            ParseLocationError(format!("{shown}: {what}; expected lh://HOST[:PORT]/PATH"))
        });
    }
    if let Some(advice) = other_scheme(&text.display().to_string()) {
        return Err(ParseLocationError(advice));
    }
    let before_slash = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    if before_slash.contains(&b':') {
        let shown = shown(&text.display().to_string());
        return Err(ParseLocationError(format!(
            "{shown}: copying over ssh is not possible yet; run `longhaul serve` on that host and \
             write lh://HOST/PATH (a local name with a colon is written ./{shown})"
        )));
    }
    local(bytes)
}

/// Reads a server as a user writes it: as [`parse`], where `lh://` may be left out.
///
/// # Errors
/// As there.
pub fn parse_server(text: &OsStr) -> Result<Parsed, ParseLocationError> {
    let is_bare = !text.as_bytes().contains(&b'/') && !text.is_empty();
    let mut whole = OsString::from(if is_bare { SCHEME } else { "" });
    whole.push(text);
    parse(&whole)
}

/// Advice where a place is written with a scheme that is not ours, or is ours and not written as it is.
fn other_scheme(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(':')?;
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    let text = shown(text);
    if scheme.eq_ignore_ascii_case("lh") && rest.starts_with('/') {
        let rest = shown(rest.trim_start_matches('/'));
        return Some(format!("{text}: a place at a server is written {SCHEME}{rest}"));
    }
    if !is_scheme || !rest.starts_with("//") {
        return None;
    }
    Some(format!(
        "{text}: Longhaul does not speak {}; one side is a path of this host, the other          {SCHEME}HOST[:PORT]/PATH",
        shown(scheme)
    ))
}

/// The location as [`parse`] reads it.
pub fn display(location: &Location) -> String {
    match location {
        Location::Local(path) => {
            let text = path.display().to_string();
            let colon = text.split('/').next().unwrap_or_default().contains(':');
            if colon { format!("./{text}") } else { text }
        }
        Location::Remote { server: Endpoint { host, port }, path } => {
            let host = match host.split_once('%') {
                // Of an interface's name that begins so it would be taken for a part of the escape.
                Some((address, zone)) if zone.starts_with("25") => format!("[{address}%25{zone}]"),
                _ if host.contains(':') => format!("[{host}]"),
                _ => host.clone(),
            };
            let path = percent_encode(path, ESCAPED);
            match *port {
                DEFAULT_PORT => format!("{SCHEME}{host}/{path}"),
                port => format!("{SCHEME}{host}:{port}/{path}"),
            }
        }
    }
}

fn local(bytes: &[u8]) -> Result<Parsed, ParseLocationError> {
    if bytes.is_empty() {
        return Err(ParseLocationError("an empty name".into()));
    }
    let mut path = trimmed(bytes);
    let mut trailing_slash = path.len() < bytes.len();
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let contents = matches!(last, b"" | b"." | b"..");
    if let Some(parent) = path.strip_suffix(b"/.") {
        // The contents of the root are those of `/`, not of the empty name.
        path = if parent.is_empty() { b"/" } else { trimmed(parent) };
        trailing_slash = true;
    }
    let location = Location::Local(PathBuf::from(OsStr::from_bytes(path)));
    Ok(Parsed { location, trailing_slash, contents })
}

/// `path` without the slashes at its end, but never empty.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    &path[..end]
}

fn remote(rest: &[u8]) -> Result<Parsed, String> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, raw) = rest.split_at(slash);
    let authority = std::str::from_utf8(authority).map_err(|_| "the host is not text")?;
    let server = endpoint(authority)?;
    let mut path = Vec::new();
    let mut last = &b""[..];
    for raw in raw.split(|byte| *byte == b'/') {
        last = raw;
        if matches!(raw, b"" | b".") {
            continue;
        }
        let component = decoded(raw)?;
        if component == b".." {
            return Err("a remote path cannot lead upwards".into());
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(component);
    }
    let contents = path.is_empty() || last == b".";
    let trailing_slash = matches!(last, b"" | b".") && !raw.is_empty();
    Ok(Parsed { location: Location::Remote { server, path }, trailing_slash, contents })
}

fn endpoint(authority: &str) -> Result<Endpoint, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the ] behind the address is missing")?;
            // What follows a % is the name of an interface (RFC 4007); in a URI the % is %25 (RFC 6874).
            let (address, zone) = host.split_once('%').unwrap_or((host, ""));
            address.parse::<Ipv6Addr>().map_err(|_| format!("{host} is not an IPv6 address"))?;
            let host = match zone.strip_prefix("25").filter(|zone| !zone.is_empty()) {
                Some(zone) => {
                    format!("{address}%{}", percent_decode(zone.as_bytes()).decode_utf8_lossy())
                }
                None => host.to_owned(),
            };
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address stands in brackets, like [::1]".into());
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (authority.to_owned(), Some("")),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".into());
    }
    if let Some(odd) = host.chars().find(|c| c.is_whitespace() || c.is_control() || *c == '@') {
        return Err(format!("a host cannot contain {odd:?}"));
    }
    let port = match port {
        Some("") => DEFAULT_PORT,
        Some(digits) => digits
            .parse()
            .ok()
            .filter(|port| *port != 0 && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .ok_or_else(|| format!("{digits} is not a port"))?,
        None => return Err("only a :PORT may follow the address".into()),
    };
    Ok(Endpoint { host, port })
}

/// A component with its escapes replaced.
fn decoded(raw: &[u8]) -> Result<Vec<u8>, String> {
    for (at, _) in raw.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = raw.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err("two hexadecimal digits follow a % (a % itself is %25)".into());
        }
    }
    let component: Vec<u8> = percent_decode(raw).collect();
    match component.iter().find(|byte| matches!(byte, 0 | b'/')) {
        Some(_) => Err("a name cannot contain a slash or a zero byte".into()),
        None => Ok(component),
    }
}

const SCHEME: &str = "lh://";

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
    .add(b'&')
    .add(b';')
    .add(b'<')
    .add(b'>')
    .add(b'|');

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn remote(host: &str, port: u16, path: &str) -> Location {
        Location::Remote { server: Endpoint::new(host, port), path: path.into() }
    }

    fn parsed(text: &str) -> (Location, bool, bool) {
        let parsed = parse(OsStr::new(text)).unwrap();
        (parsed.location, parsed.trailing_slash, parsed.contents)
    }

    fn error(text: &str) -> String {
        parse(OsStr::new(text)).unwrap_err().to_string()
    }

    #[test]
    fn remote_locations() {
        for (text, host, port, path, slash, contents) in [
            ("lh://dtn/a/b", "dtn", 7420, "a/b", false, false),
            ("lh://dtn:80/a/", "dtn", 80, "a", true, false),
            ("lh://dtn", "dtn", 7420, "", false, true),
            ("lh://dtn:/", "dtn", 7420, "", true, true),
            ("lh://dtn/a/.", "dtn", 7420, "a", true, true),
            ("lh://dtn//a/./b//", "dtn", 7420, "a/b", true, false),
            ("lh://[::1]:7420/p", "::1", 7420, "p", false, false),
            ("lh://[fe80::2%eth0]/p", "fe80::2%eth0", 7420, "p", false, false),
            ("lh://[fe80::2%25eth0]/p", "fe80::2%eth0", 7420, "p", false, false),
            ("lh://[fe80::2%25]/p", "fe80::2%25", 7420, "p", false, false),
            ("lh://192.0.2.7:1/p", "192.0.2.7", 1, "p", false, false),
            ("lh://dtn/run%2017/%25", "dtn", 7420, "run 17/%", false, false),
            ("lh://dtn/a:b?c#d", "dtn", 7420, "a:b?c#d", false, false),
        ] {
            assert_eq!(parsed(text), (remote(host, port, path), slash, contents), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_pass() {
        let Location::Remote { path, .. } = parsed("lh://dtn/%ff%fe").0 else { panic!("local") };
        assert_eq!(path, [0xff, 0xfe]);
    }

    #[test]
    fn remote_locations_that_are_none() {
        for (text, part) in [
            ("lh://", "host is missing"),
            ("lh:///p", "host is missing"),
            ("lh://:7420/p", "host is missing"),
            ("lh://dtn:0/p", "not a port"),
            ("lh://dtn:+1/p", "not a port"),
            ("lh://dtn:65536/p", "not a port"),
            ("lh://::1/p", "in brackets"),
            ("lh://[::1/p", "] behind"),
            ("lh://[dtn]/p", "not an IPv6"),
            ("lh://[::1]7420/p", "only a :PORT"),
            ("lh://me@dtn/p", "cannot contain"),
            ("lh://dtn/a/../b", "upwards"),
            ("lh://dtn/a/%2e%2e/b", "upwards"),
            ("lh://dtn/100%", "hexadecimal"),
            ("lh://dtn/%+1", "hexadecimal"),
            ("lh://dtn/a%2fb", "slash"),
            ("lh://dtn/a%00", "zero byte"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }

    #[test]
    fn local_locations() {
        for (text, path, slash, contents) in [
            ("a", "a", false, false),
            ("./a:b", "./a:b", false, false),
            ("a/b:c", "a/b:c", false, false),
            ("/data//", "/data", true, false),
            ("a/.", "a", true, true),
            ("a//./", "a", true, true),
            (".", ".", false, true),
            ("./", ".", true, true),
            ("..", "..", false, true),
            ("a/..", "a/..", false, true),
            ("/", "/", false, true),
            ("//", "/", true, true),
            ("/.", "/", true, true),
        ] {
            assert_eq!(parsed(text), (Location::Local(path.into()), slash, contents), "{text}");
        }
        assert!(error("").contains("empty"));
    }

    #[test]
    fn ssh_locations_are_turned_down_with_advice() {
        for text in ["dtn:run-17", "me@dtn:/data", "dtn:", ":a"] {
            assert!(error(text).contains("longhaul serve"), "{text}");
        }
        assert!(error("a:b").contains("./a:b"));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(
            host in "[a-z][a-z0-9.-]{0,20}|2001:db8::[1-9a-f]{1,4}|fe80::1%(25)?[a-z0-9]{1,3}",
            port in 1u16..,
            components in prop::collection::vec(prop::collection::vec(1u8.., 1..12), 0..5),
        ) {
            let usual = |name: &&Vec<u8>| {
                !name.contains(&b'/') && !matches!(&name[..], b"." | b"..")
            };
            let names: Vec<&[u8]> = components.iter().filter(usual).map(|name| &name[..]).collect();
            let server = Endpoint::new(host, port);
            let location = Location::Remote { server, path: names.join(&b'/') };
            let text = display(&location);
            let parsed = parse(OsStr::new(&text)).unwrap();
            prop_assert_eq!(parsed.location, location);
            prop_assert_eq!(parsed.contents, names.is_empty());
        }

        #[test]
        fn local_names_stay_what_they_are(bytes in prop::collection::vec(1u8.., 1..30)) {
            let text = [b"./", &bytes[..]].concat();
            let parsed = parse(OsStr::from_bytes(&text)).unwrap();
            let Location::Local(path) = parsed.location else { panic!("remote") };
            prop_assert!(text.starts_with(path.as_os_str().as_bytes()));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(OsStr::from_bytes(&bytes));
            let _ = parse(OsStr::from_bytes(&[b"lh://", &bytes[..]].concat()));
        }
    }
}

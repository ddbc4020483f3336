//! Names of files and trees: `lh://HOST[:PORT]/PATH`, `[USER@]HOST:PATH` over ssh, or a path of this host.

use std::ffi::{OsStr, OsString};
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use longhaul::{DEFAULT_PORT, Endpoint, SshHost, escaped};
use longhaul_units::shown;
use percent_encoding::percent_decode;

/// A file or tree, here or at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// On this host.
    Local(PathBuf),
    /// At a server.
    Remote {
        /// The server.
        server: Server,
        /// Path, as bytes: below the root of a server that listens, without a leading slash; as `scp`
        /// takes it where ssh starts one, from the user's home on unless it begins with a slash.
        path: Vec<u8>,
    },
}

impl Location {
    /// At another host.
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }

    /// The last component of its path.
    pub fn own_name(&self) -> &[u8] {
        let path = match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::Remote { path, .. } => path,
        };
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

/// A server, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// A `longhaul serve` that listens: `lh://HOST[:PORT]/PATH`.
    At(Endpoint),
    /// One that ssh starts: `[USER@]HOST:PATH` or `ssh://[USER@]HOST[:PORT]/PATH`.
    BySsh(SshHost),
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
/// A remote location that is incomplete, or leads upwards at a server.
pub fn parse(text: &OsStr) -> Result<Parsed, ParseLocationError> {
    let bytes = text.as_bytes();
    if let Some(rest) = bytes.strip_prefix(SCHEME.as_bytes()) {
        return remote(rest).map_err(|what| {
            let shown = shown(&text.display().to_string());
            ParseLocationError(format!("{shown}: {what}; expected lh://HOST[:PORT]/PATH"))
        });
    }
    if let Some(rest) = bytes.strip_prefix(SSH_SCHEME.as_bytes()) {
        return ssh_address(rest).map_err(|what| {
            let shown = shown(&text.display().to_string());
            ParseLocationError(format!(
                "{shown}: {what}; expected {SSH_SCHEME}[USER@]HOST[:PORT]/PATH"
            ))
        });
    }
    if let Some(advice) = other_scheme(&text.display().to_string()) {
        return Err(ParseLocationError(advice));
    }
    let before_slash = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    if before_slash.contains(&b':') {
        return over_ssh(bytes).map_err(|what| {
            let shown = shown(&text.display().to_string());
            ParseLocationError(format!(
                "{shown}: {what}; expected [USER@]HOST:PATH (a local name with a colon is written ./{shown})"
            ))
        });
    }
    local(bytes)
}

/// Reads a source as a user writes it: as [`parse`], where an escaped wildcard of a remote path is no wildcard. Such a
/// path has a backslash before it, as patterns have (docs/protocol.md section 7.9).
///
/// # Errors
/// As there.
pub fn parse_source(text: &OsStr) -> Result<Parsed, ParseLocationError> {
    let mut parsed = parse(text)?;
    if let Location::Remote { path, .. } = &mut parsed.location
        && text.as_bytes().contains(&b'%')
        && [SCHEME, SSH_SCHEME].iter().any(|it| text.as_bytes().starts_with(it.as_bytes()))
        && let Location::Remote { path: escaped, .. } =
            parse(OsStr::from_bytes(&with_backslashes(text.as_bytes())))?.location
    {
        *path = escaped;
    }
    Ok(parsed)
}

/// With a backslash before each escaped wildcard, and each escaped backslash of a component that has such a one.
fn with_backslashes(text: &[u8]) -> Vec<u8> {
    let components = text.split(|byte| *byte == b'/').map(|component| {
        let escaped = |at: usize| {
            let digits = component.get(at..at + 3).filter(|escape| escape[0] == b'%')?;
            percent_decode(digits).next()
        };
        let is_wild = |byte: u8| b"*?[".contains(&byte);
        let has_wild = (0..component.len()).any(|at| escaped(at).is_some_and(is_wild));
        let mut out = Vec::with_capacity(component.len());
        for (at, byte) in component.iter().enumerate() {
            let marks = escaped(at).is_some_and(|it| is_wild(it) || has_wild && it == b'\\');
            out.extend(marks.then_some(b'\\'));
            out.push(*byte);
        }
        out
    });
    components.collect::<Vec<_>>().join(&b'/')
}

/// Reads a server as a user writes it: as [`parse`], where `lh://` may be left out. `HOST:` alone is over ssh.
///
/// # Errors
/// As there.
pub fn parse_server(text: &OsStr) -> Result<Parsed, ParseLocationError> {
    let by_ssh = text.as_bytes().ends_with(b":");
    let is_bare = !text.as_bytes().contains(&b'/') && !text.is_empty() && !by_ssh;
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
        "{text}: Longhaul does not speak {}; one side is a path of this host, the other [USER@]HOST:PATH \
         over ssh or {SCHEME}HOST[:PORT]/PATH",
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
        Location::Remote { server: Server::At(server), path } => server.place(path),
        Location::Remote { server: Server::BySsh(host), path } => {
            let address = host.host();
            let bare = host.destination();
            let named = match address.contains(':') {
                true => format!("{}[{address}]", &bare[..bare.len() - address.len()]),
                false => bare,
            };
            let port = host.port().map_or(String::new(), |port| format!(":{port}"));
            format!("{SSH_SCHEME}{named}{port}/{}", escaped(path))
        }
    }
}

fn local(bytes: &[u8]) -> Result<Parsed, ParseLocationError> {
    if bytes.is_empty() {
        return Err(ParseLocationError(
            "a name is empty: a place is a path of this host (. is this directory), HOST:PATH or lh://HOST/PATH".into(),
        ));
    }
    let (path, trailing_slash, contents) = shape(bytes);
    let location = Location::Local(PathBuf::from(OsStr::from_bytes(path)));
    Ok(Parsed { location, trailing_slash, contents })
}

/// `[USER@]HOST:PATH`, of which the part before the first slash holds a colon.
fn over_ssh(bytes: &[u8]) -> Result<Parsed, String> {
    // In brackets an IPv6 address.
    let user = bytes.iter().position(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let bracketed = bytes[user..].first() == Some(&b'[');
    let end = match bracketed {
        true => bytes.windows(2).position(|pair| pair == b"]:").map(|at| at + 1),
        false => bytes.iter().position(|byte| *byte == b':'),
    };
    let end = end.ok_or("the ]: behind the address is missing")?;
    let named = std::str::from_utf8(&bytes[..end]).map_err(|_| "the host is not text")?;
    if bytes[end + 1..].first() == Some(&b':') {
        return Err(RSYNC_DAEMON.into());
    }
    let host = match bracketed {
        true => SshHost::new(&without_brackets(named)?, None),
        false => SshHost::new(named, None),
    };
    Ok(at_host(host.map_err(|error| error.to_string())?, &bytes[end + 1..]))
}

/// The rest behind `ssh://`.
fn ssh_address(rest: &[u8]) -> Result<Parsed, String> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let authority = std::str::from_utf8(authority).map_err(|_| "the host is not text")?;
    let port = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let (named, port) = match port {
        None => (authority, None),
        Some((named, digits)) => (named, Some(number(digits)?)),
    };
    let named = if named.ends_with(']') { without_brackets(named)? } else { named.to_owned() };
    let host = SshHost::new(&named, port).map_err(|error| error.to_string())?;
    // The slash behind the authority is none of the path: a second one begins at the root.
    let components = path.get(1..).unwrap_or_default().split(|byte| *byte == b'/');
    let components: Result<Vec<_>, _> = components.map(decoded).collect();
    Ok(at_host(host, &components?.join(&b'/')))
}

/// `[user@]address` of `[user@][address]`.
fn without_brackets(named: &str) -> Result<String, String> {
    let (user, address) = named.split_once('[').ok_or("the [ before the address is missing")?;
    let address = address.strip_suffix(']').ok_or("the ] behind the address is missing")?;
    let (ip, _zone) = address.split_once('%').unwrap_or((address, ""));
    ip.parse::<Ipv6Addr>().map_err(|_| format!("{address} is not an IPv6 address"))?;
    Ok(format!("{user}{address}"))
}

fn at_host(host: SshHost, path: &[u8]) -> Parsed {
    let (path, trailing_slash, contents) = match path {
        b"" => (path, true, true),
        path => shape(path),
    };
    let contents = contents || path == b"~";
    let location = Location::Remote { server: Server::BySsh(host), path: path.to_vec() };
    Parsed { location, trailing_slash, contents }
}

/// A path without slashes and `/.` at its end, whether it had a slash there, and whether it has no name.
fn shape(bytes: &[u8]) -> (&[u8], bool, bool) {
    let mut path = trimmed(bytes);
    let mut trailing_slash = path.len() < bytes.len();
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let contents = matches!(last, b"" | b"." | b"..");
    if let Some(parent) = path.strip_suffix(b"/.") {
        // The contents of the root are those of `/`, not of the empty name.
        path = if parent.is_empty() { b"/" } else { trimmed(parent) };
        trailing_slash = true;
    }
    (path, trailing_slash, contents)
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
    let server = Server::At(endpoint(authority)?);
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
        Some(digits) => number(digits)?,
        None => return Err("only a :PORT may follow the address".into()),
    };
    Ok(Endpoint { host, port })
}

/// A port.
pub(crate) fn number(digits: &str) -> Result<u16, String> {
    let port = digits.parse().ok();
    port.filter(|port| *port != 0 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("{digits} is not a port"))
}

/// A component with its escapes replaced.
pub(crate) fn decoded(raw: &[u8]) -> Result<Vec<u8>, String> {
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
/// The reason where a module of rsync is named.
const RSYNC_DAEMON: &str = "Longhaul does not speak with rsync's daemons (HOST::MODULE): what they serve is reached by \
     HOST:PATH over ssh, or where `longhaul serve` runs by lh://HOST/PATH";
const SSH_SCHEME: &str = "ssh://";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn remote(host: &str, port: u16, path: &str) -> Location {
        Location::Remote { server: Server::At(Endpoint::new(host, port)), path: path.into() }
    }

    fn parsed(text: &str) -> (Location, bool, bool) {
        let parsed = parse(OsStr::new(text)).unwrap();
        (parsed.location, parsed.trailing_slash, parsed.contents)
    }

    fn error(text: &str) -> String {
        parse(OsStr::new(text)).unwrap_err().to_string()
    }

    #[test]
    fn an_escaped_wildcard_of_a_source_is_none() {
        for (text, path) in [
            ("lh://dtn/a%2Ab", "a\\*b"),
            ("lh://dtn/r*/a%3fb%5C%5b", "r*/a\\?b\\\\\\["),
            ("lh://dtn/a%5Cb/c%20d*", "a\\b/c d*"),
            ("lh://dtn/a*b", "a*b"),
            ("ssh://dtn/a%2Ab", "a\\*b"),
            ("dtn:a%2Ab", "a%2Ab"),
        ] {
            let parsed = parse_source(OsStr::new(text)).unwrap();
            let Location::Remote { path: found, .. } = parsed.location else { panic!("{text}") };
            assert_eq!(
                found.escape_ascii().to_string(),
                path.as_bytes().escape_ascii().to_string()
            );
        }
        assert_eq!(parse_source(OsStr::new("a%2Ab")), parse(OsStr::new("a%2Ab")));
    }

    #[test]
    fn places_of_rsync_daemons_say_what_to_write() {
        for text in ["h::mod", "me@h::mod/run-17", "[::1]::mod", "h::"] {
            let error = error(text);
            assert!(
                error.starts_with(&format!("{text}: Longhaul does not speak with rsync")),
                "{error}"
            );
            assert!(error.contains("HOST:PATH over ssh"), "{error}");
            assert!(error.ends_with(&format!("written ./{text})")), "{error}");
        }
        assert!(error("rsync://h/mod").contains("[USER@]HOST:PATH over ssh"));
        assert!(parsed("h:./:mod").0.is_remote() && !parsed("./h::mod").0.is_remote());
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
    fn ssh_locations() {
        for (text, named, port, path, slash, contents) in [
            ("dtn:run-17", "dtn", None, "run-17", false, false),
            ("me@dtn:/data//x/", "me@dtn", None, "/data//x", true, false),
            ("dtn:", "dtn", None, "", true, true),
            ("dtn:.", "dtn", None, ".", false, true),
            ("dtn:a/.", "dtn", None, "a", true, true),
            ("dtn:../a", "dtn", None, "../a", false, false),
            ("dtn:~/", "dtn", None, "~", true, true),
            ("dtn:a b:c%20", "dtn", None, "a b:c%20", false, false),
            ("[::1]:x", "::1", None, "x", false, false),
            ("me@[fe80::1%eth0]:/", "me@fe80::1%eth0", None, "/", false, true),
            ("ssh://me@dtn:22/a%20b/", "me@dtn", Some(22), "a b", true, false),
            ("ssh://dtn//data", "dtn", None, "/data", false, false),
            ("ssh://[::1]:22/x", "::1", Some(22), "x", false, false),
            ("ssh://[::1]", "::1", None, "", true, true),
        ] {
            let host = SshHost::new(named, port).unwrap();
            let location = Location::Remote { server: Server::BySsh(host), path: path.into() };
            assert_eq!(parsed(text), (location, slash, contents), "{text}");
        }
        for (text, part) in [
            (":a", "host is missing"),
            ("@dtn:a", "user is missing"),
            ("-oProxyCommand=x:a", "begins with -"),
            ("ssh://-oProxyCommand=x/a", "begins with -"),
            ("me@-x:a", "begins with -"),
            ("ssh://dtn:0/a", "not a port"),
            ("ssh://dtn/100%", "hexadecimal"),
            ("[::1/a:b", "./[::1/a:b"),
            ("[dtn]:a", "not an IPv6"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
        assert!(error("a b:c").contains("./a b:c"));
        let server = |text: &str| parse_server(OsStr::new(text)).unwrap().location;
        assert_eq!(server("dtn:7421"), remote("dtn", 7421, ""));
        assert!(matches!(server("dtn:"), Location::Remote { server: Server::BySsh(_), .. }));
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
            let location = Location::Remote { server: Server::At(server), path: names.join(&b'/') };
            let text = display(&location);
            let parsed = parse(OsStr::new(&text)).unwrap();
            prop_assert_eq!(parsed.location, location);
            prop_assert_eq!(parsed.contents, names.is_empty());
        }

        #[test]
        fn places_over_ssh_are_read_again(
            named in "([a-z]{1,4}@)?([a-z][a-z0-9.-]{0,9}|::1|fe80::1%eth0)",
            port in prop::option::of(1u16..),
            path in "(/?[a-z %:~.]{1,9}[a-z]){0,3}",
        ) {
            let host = SshHost::new(&named, port).unwrap();
            let location = Location::Remote { server: Server::BySsh(host), path: path.into() };
            let parsed = parse(OsStr::new(&display(&location))).unwrap();
            prop_assert_eq!(parsed.location, location);
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
            let _ = parse(OsStr::from_bytes(&[b"ssh://", &bytes[..]].concat()));
            let _ = parse(OsStr::from_bytes(&[b"[", &bytes[..], b"]:"].concat()));
        }
    }
}

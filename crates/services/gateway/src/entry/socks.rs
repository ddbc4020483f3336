//! SOCKS5 (RFC 1928) with CONNECT only, and passwords (RFC 1929).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use longhaul_relay::{Answer, Host, Place, Route, Status, Target};

use super::{Arrival, Entered, Entry};

/// Users and their passwords, kept as hashes only.
#[derive(Clone, Debug, Default)]
pub struct Passwords(Arc<BTreeMap<String, blake3::Hash>>);

impl Passwords {
    /// Reads `USER:PASSWORD` lines; empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// A line is neither, or there is no user at all.
    pub fn parse(text: &str) -> Result<Self, ParsePasswordsError> {
        let mut users = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed = ParsePasswordsError::Malformed { line: i + 1 };
            let (user, password) = line.split_once(':').ok_or(malformed)?;
            if user.is_empty() || user.len() > 255 || !(1..=255).contains(&password.len()) {
                return Err(malformed);
            }
            users.insert(user.to_owned(), blake3::hash(password.as_bytes()));
        }
        if users.is_empty() { Err(ParsePasswordsError::Empty) } else { Ok(Self(Arc::new(users))) }
    }

    /// The password is this user's. Hashes are compared in constant time.
    fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        let hash = blake3::hash(password);
        let known = std::str::from_utf8(user).ok().and_then(|user| self.0.get(user));
        known.is_some_and(|known| *known == hash)
    }
}

/// A file of passwords cannot be used. No line is repeated, for it may hold one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePasswordsError {
    /// A line is not `USER:PASSWORD`.
    #[error("line {line} is not USER:PASSWORD, each of 1 to 255 bytes")]
    Malformed {
        /// Number of the line, from 1.
        line: usize,
    },
    /// There is no user.
    #[error("it names no user; a line is USER:PASSWORD")]
    Empty,
}

/// A client that speaks SOCKS5. Names are resolved at the far end.
#[derive(Debug)]
pub struct Socks {
    passwords: Option<Passwords>,
    stage: Stage,
    user: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Methods,
    Password,
    Request,
}

impl Socks {
    /// A client that has to know one of `passwords` if there are any.
    pub const fn new(passwords: Option<Passwords>) -> Self {
        Self { passwords, stage: Stage::Methods, user: None }
    }

    fn methods(&mut self, bytes: &[u8]) -> Entered {
        let [version, count, rest @ ..] = bytes else {
            return if bytes.first().is_none_or(|version| *version == VERSION) {
                incomplete()
            } else {
                not_socks5()
            };
        };
        if *version != VERSION {
            return not_socks5();
        }
        let Some(methods) = rest.get(..usize::from(*count)) else {
            return incomplete();
        };
        let (wanted, next) = match self.passwords {
            Some(_) => (PASSWORD, Stage::Password),
            None => (NO_PASSWORD, Stage::Request),
        };
        if !methods.contains(&wanted) {
            let why = "the client offers no way to prove itself that is wanted here".into();
            return Entered::Refused { reply: vec![VERSION, NO_METHOD], why };
        }
        self.stage = next;
        Entered::Incomplete { used: 2 + methods.len(), reply: vec![VERSION, wanted] }
    }

    fn password(&mut self, bytes: &[u8]) -> Entered {
        let parsed = (|| {
            let (&user_len, rest) = bytes.get(1..)?.split_first()?;
            let (user, rest) = rest.split_at_checked(user_len.into())?;
            let (&password_len, rest) = rest.split_first()?;
            let password = rest.get(..password_len.into())?;
            Some((user, password, 3 + user.len() + password.len()))
        })();
        let Some((user, password, used)) = parsed else {
            return incomplete();
        };
        let known = bytes[0] == PASSWORD_VERSION
            && self.passwords.as_ref().is_some_and(|passwords| passwords.verify(user, password));
        if !known {
            let why = "wrong user or password".into();
            return Entered::Refused { reply: vec![PASSWORD_VERSION, 1], why };
        }
        self.stage = Stage::Request;
        self.user = Some(String::from_utf8_lossy(user).into_owned());
        Entered::Incomplete { used, reply: vec![PASSWORD_VERSION, 0] }
    }

    fn request(&self, bytes: &[u8], client: &Arrival<'_>) -> Entered {
        let [version, command, _, kind, rest @ ..] = bytes else {
            return incomplete();
        };
        let refuse = |code, why: &str| Entered::Refused { reply: reply(code), why: why.into() };
        if *version != VERSION {
            return not_socks5();
        }
        if *command != CONNECT {
            return refuse(7, "the client asks for something else than CONNECT");
        }
        let (host, len) = match kind {
            1 => match rest.first_chunk::<4>() {
                Some(address) => (Host::Address(IpAddr::V4(Ipv4Addr::from(*address))), 4),
                None => return incomplete(),
            },
            4 => match rest.first_chunk::<16>() {
                Some(address) => (Host::Address(Ipv6Addr::from(*address).to_canonical()), 16),
                None => return incomplete(),
            },
            3 => {
                let name = rest.split_first().and_then(|(len, rest)| rest.get(..(*len).into()));
                let Some(name) = name else { return incomplete() };
                let Some(host) = std::str::from_utf8(name).ok().and_then(Host::parse) else {
                    return refuse(1, "the client names a host that is none");
                };
                (host, 1 + name.len())
            }
            _ => return refuse(8, "the client names a host in an unknown form"),
        };
        let Some(port) = rest.get(len..len + 2) else {
            return incomplete();
        };
        let port = u16::from_be_bytes([port[0], port[1]]);
        if port == 0 {
            return refuse(1, "the client names port 0");
        }
        let name = match &self.user {
            Some(user) => format!("{user}@{}", client.peer.ip()),
            None => client.peer.ip().to_string(),
        };
        let target = Target { place: Place { host, port }, aware: false };
        let route = Route {
            client: name.clone(),
            origin: Some(client.peer),
            ..Route::new(client.random, target)
        };
        Entered::Asked { used: 4 + len + 2, route: Box::new(route), client: name }
    }
}

impl Entry for Socks {
    fn receive(&mut self, bytes: &[u8], client: &mut Arrival<'_>) -> Entered {
        match self.stage {
            Stage::Methods => self.methods(bytes),
            Stage::Password => self.password(bytes),
            Stage::Request => self.request(bytes, client),
        }
    }

    fn answer(&self, answer: &Answer) -> Vec<u8> {
        reply(match answer.status {
            Status::CONNECTED => 0,
            Status::FORBIDDEN => 2,
            Status::UNREACHABLE | Status::UNRESOLVED | Status::TIMEOUT => 4,
            Status::REFUSED => 5,
            _ => 1,
        })
    }
}

const fn incomplete() -> Entered {
    Entered::Incomplete { used: 0, reply: Vec::new() }
}

fn not_socks5() -> Entered {
    Entered::Refused { reply: Vec::new(), why: "the client does not speak SOCKS5".into() }
}

/// A reply with an address of zeros: the far gateway's own means nothing here.
fn reply(code: u8) -> Vec<u8> {
    vec![VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const NO_PASSWORD: u8 = 0;
const PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use longhaul_relay::{Clock, Gatekeeper};
    use longhaul_session::Keyring;
    use proptest::prelude::*;

    use super::*;

    /// Feeds `bytes` in pieces of `step`; returns what was replied and how it went.
    fn feed(entry: &mut Socks, bytes: &[u8], step: usize) -> (Vec<u8>, Entered) {
        let clock = Clock::from_micros(0);
        let gatekeeper = Mutex::new(Gatekeeper::new(Keyring::default(), None, clock));
        let mut client = Arrival {
            peer: "192.0.2.9:5000".parse().unwrap(),
            local: "192.0.2.1:1080".parse().unwrap(),
            clock,
            random: [1; 16],
            gatekeeper: &gatekeeper,
            neighbours: &Default::default(),
        };
        let (mut replies, mut start) = (Vec::new(), 0);
        for end in (1..=bytes.len()).filter(|end| end % step == 0 || *end == bytes.len()) {
            loop {
                match entry.receive(&bytes[start..end], &mut client) {
                    Entered::Incomplete { used: 0, .. } => break,
                    Entered::Incomplete { used, reply } => {
                        start += used;
                        replies.extend(reply);
                    }
                    Entered::Asked { used, route, client } => {
                        return (replies, Entered::Asked { used: start + used, route, client });
                    }
                    refused => return (replies, refused),
                }
            }
        }
        (replies, incomplete())
    }

    #[test]
    fn a_client_without_password_asks_for_a_name() {
        for step in 1..40 {
            let mut entry = Socks::new(None);
            let bytes = b"\x05\x02\x00\x01\x05\x01\x00\x03\x06server\x00\x50payload";
            let (replies, entered) = feed(&mut entry, bytes, step);
            assert_eq!(replies, [5, 0]);
            let Entered::Asked { used, route, client } = entered else { panic!("{entered:?}") };
            assert_eq!(route.target.place, "server:80".parse().unwrap());
            assert_eq!((used, &*client), (bytes.len() - 7, "192.0.2.9"));
        }
    }

    #[test]
    fn passwords_are_asked_for_and_checked() {
        let passwords = Passwords::parse("# ours\nalice:secret:1\n\nbob:x\n").unwrap();
        let ask = |password: &[u8]| {
            let mut entry = Socks::new(Some(passwords.clone()));
            let mut bytes = b"\x05\x02\x00\x02\x01\x05alice".to_vec();
            bytes.push(password.len() as u8);
            bytes.extend_from_slice(password);
            bytes.extend_from_slice(b"\x05\x01\x00\x01\xc0\x00\x02\x50\x01\xbb");
            feed(&mut entry, &bytes, 1)
        };
        let (replies, entered) = ask(b"secret:1");
        assert_eq!(replies, [5, 2, 1, 0]);
        let Entered::Asked { route, client, .. } = entered else { panic!("{entered:?}") };
        assert_eq!(route.target.place, "192.0.2.80:443".parse().unwrap());
        assert_eq!(client, "alice@192.0.2.9");
        for wrong in [&b"secret"[..], b"", b"secret:12"] {
            let (_, entered) = ask(wrong);
            assert!(matches!(entered, Entered::Refused { reply, .. } if reply == [1, 1]));
        }
        // A client that offers no password is refused at once.
        let mut entry = Socks::new(Some(passwords.clone()));
        let (_, entered) = feed(&mut entry, b"\x05\x01\x00", 3);
        assert!(matches!(entered, Entered::Refused { reply, .. } if reply == [5, 0xff]));
    }

    #[test]
    fn other_commands_and_protocols_are_refused() {
        for (bytes, reply) in [
            (&b"\x04\x01"[..], vec![]),
            (b"GET / HTTP/1.1\r\n", vec![]),
            (b"\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", super::reply(7)),
            (b"\x05\x01\x00\x05\x01\x00\x09\x01", super::reply(8)),
            (b"\x05\x01\x00\x05\x01\x00\x03\x01\n\x00\x50", super::reply(1)),
            (b"\x05\x01\x00\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", super::reply(1)),
        ] {
            let (_, entered) = feed(&mut Socks::new(None), bytes, 1);
            let Entered::Refused { reply: found, .. } = entered else { panic!("{bytes:?}") };
            assert_eq!(found, reply, "{bytes:?}");
        }
    }

    #[test]
    fn files_of_passwords_are_checked() {
        for (text, line) in [("alice", 1), ("a:b\n:c", 2), ("a:", 1)] {
            let error = ParsePasswordsError::Malformed { line };
            assert_eq!(Passwords::parse(text).unwrap_err(), error);
        }
        assert_eq!(Passwords::parse("# nobody\n").unwrap_err(), ParsePasswordsError::Empty);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>(), step in 1usize..8, first in 0u8..3) {
            let passwords = Passwords::parse("a:b").unwrap();
            let mut entry = Socks::new((first == 0).then_some(passwords));
            let mut all = if first == 2 { vec![5, 1, 0] } else { Vec::new() };
            all.extend(bytes);
            feed(&mut entry, &all, step);
        }
    }
}

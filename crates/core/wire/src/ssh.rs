//! Messages that start a server by ssh (docs/protocol.md section 10): the client's question, the server's answer.

mod frames;
mod onward;

use alloc::string::String;
use alloc::vec::Vec;

use crate::close::{MAX_REASON, cut_reason};
use crate::error::{DecodeError, Full};
use crate::handshake::MAX_IMPLEMENTATION;
use crate::message::MAX_PATH;
use crate::options::{By, Options, kinds, put};
use crate::writer::Writer;

pub use frames::{MAX_SSH_DATA, MAX_SSH_PORTS, SSH_WINDOW, SshFrame};
pub use onward::SshOnward;

/// Version of both messages.
pub const SSH_VERSION: u16 = 1;
/// Bytes of noise that a client passes over before an answer.
pub const MAX_SSH_NOISE: usize = 65_536;
/// Bytes of the mark before a message.
pub const SSH_MARK_LEN: usize = 16;

/// Purpose of the server that a client starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshPurpose {
    /// To copy to it.
    Push = 1,
    /// To copy from it.
    Pull = 2,
    /// To list what it has.
    List = 3,
    /// Nothing but a connection.
    Probe = 4,
    /// To have files there hashed.
    Verify = 5,
    /// To send into a pipe.
    Send = 6,
    /// To receive from one.
    Receive = 7,
    /// To have it copy to another server.
    Onward = 8,
    /// To look at interrupted copies, or discard them.
    Leftovers = 9,
}

/// The client's question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshAsk {
    /// Random bytes that stand before the answer.
    pub mark: [u8; SSH_MARK_LEN],
    /// Versions that the client has.
    pub versions: Vec<u16>,
    /// Its purpose.
    pub purpose: SshPurpose,
    /// First and last port that the server may take; without, any.
    pub ports: Option<(u16, u16)>,
    /// Name that the client gives itself.
    pub implementation: Option<String>,
    /// As people write them.
    pub paths: Vec<Vec<u8>>,
    /// The other server, of [`SshPurpose::Onward`] and no other.
    pub onward: Option<SshOnward>,
}

/// The server's answer.
#[derive(Clone, PartialEq, Eq)]
pub struct SshAnswer {
    /// Name that the server gives itself.
    pub implementation: Option<String>,
    /// Where it listens, or why it does not.
    pub outcome: Result<SshServing, SshRefusal>,
}

/// Why a server does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshRefusal {
    /// Why, for people. Names no path of the question.
    pub reason: String,
    /// Number of the path of the question that it is about, if it is about one.
    pub path: Option<u16>,
}

impl From<String> for SshRefusal {
    fn from(reason: String) -> Self {
        Self { reason, path: None }
    }
}

impl From<&str> for SshRefusal {
    fn from(reason: &str) -> Self {
        String::from(reason).into()
    }
}

/// A server that does what was asked. Its token is not for logs: there is no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SshServing {
    /// Where it listens; nowhere if it copies to another server.
    pub entry: Option<SshEntry>,
    /// The server's address, as ssh knows it.
    pub address: Option<String>,
    /// As requests have to name them.
    pub paths: Vec<Vec<u8>>,
    /// It takes frames.
    pub frames: bool,
    /// Ports that it may listen at are not to be had.
    pub taken: Option<SshTaken>,
}

/// Others have all ports that a server may listen at, so that it listens where only its own host reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshTaken {
    /// Those of UDP: TCP leads to it.
    Udp = 1,
    /// All: nothing but frames leads to it.
    All = 2,
}

/// The door of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SshEntry {
    /// TCP and UDP port.
    pub port: u16,
    /// Of the one client.
    pub token: [u8; 16],
}

impl SshAsk {
    /// Appends the message to `out`.
    ///
    /// # Errors
    /// A path is longer than [`MAX_PATH`] bytes, or all are longer than a body may be.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Full> {
        let mut body = Vec::new();
        let versions: Vec<u8> = self.versions.iter().flat_map(|it| it.to_be_bytes()).collect();
        put(&mut body, VERSION, &versions);
        put(&mut body, PURPOSE, &[self.purpose as u8]);
        put_paths(&mut body, &self.paths)?;
        if let Some((first, last)) = self.ports {
            put(&mut body, PORTS, &[first.to_be_bytes(), last.to_be_bytes()].concat());
        }
        if let Some(text) = &self.implementation {
            put(&mut body, IMPLEMENTATION, text.as_bytes());
        }
        if let Some(onward) = &self.onward {
            put(&mut body, ONWARD, &onward.encode()?);
        }
        write(&self.mark, &body, out)
    }

    /// Reads the message that `bytes` begin with; `None` when more are needed.
    ///
    /// # Errors
    /// Not a message of this protocol. [`DecodeError::UnsupportedVersion`] if no version is ours; the
    /// mark is then the first bytes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let Some((mark, body)) = split(bytes)? else { return Ok(None) };
        let options = read(body, By::Client)?;
        let versions = options.numbers(VERSION)?;
        if !versions.contains(&SSH_VERSION) {
            return Err(DecodeError::UnsupportedVersion);
        }
        options.no_unknown_critical()?;
        let purpose = match options.array(PURPOSE)? {
            [1] => SshPurpose::Push,
            [2] => SshPurpose::Pull,
            [3] => SshPurpose::List,
            [4] => SshPurpose::Probe,
            [5] => SshPurpose::Verify,
            [6] => SshPurpose::Send,
            [7] => SshPurpose::Receive,
            [8] => SshPurpose::Onward,
            [9] => SshPurpose::Leftovers,
            _ => return Err(DecodeError::Invalid { what: PURPOSE.what }),
        };
        let ports = match options.find(PORTS) {
            None => None,
            Some(_) => {
                let [a, b, c, d] = options.array(PORTS)?;
                let (first, last) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                if first == 0 || first > last {
                    return Err(DecodeError::Invalid { what: PORTS.what });
                }
                Some((first, last))
            }
        };
        let implementation = options.text(IMPLEMENTATION, MAX_IMPLEMENTATION)?;
        let onward = options.find(ONWARD).map(SshOnward::parse).transpose()?;
        if onward.is_some() != (purpose == SshPurpose::Onward) {
            return Err(DecodeError::Invalid { what: ONWARD.what });
        }
        let paths = paths(&options)?;
        Ok(Some(Self { mark, versions, purpose, ports, implementation, paths, onward }))
    }
}

impl SshAnswer {
    /// Appends the message under `mark` to `out`.
    ///
    /// # Errors
    /// A path is longer than [`MAX_PATH`] bytes, or all are longer than a body may be.
    pub fn encode(&self, mark: &[u8; SSH_MARK_LEN], out: &mut Vec<u8>) -> Result<(), Full> {
        let mut body = Vec::new();
        if let Some(text) = &self.implementation {
            put(&mut body, IMPLEMENTATION, text.as_bytes());
        }
        match &self.outcome {
            Err(SshRefusal { reason, path }) => {
                put(&mut body, REFUSAL, cut_reason(reason).as_bytes());
                path.iter().for_each(|path| put(&mut body, REFUSED_PATH, &path.to_be_bytes()));
            }
            Ok(SshServing { entry, address, paths, frames, taken }) => {
                put(&mut body, VERSION, &SSH_VERSION.to_be_bytes());
                put_paths(&mut body, paths)?;
                if let Some(SshEntry { port, token }) = entry {
                    put(&mut body, PORT, &port.to_be_bytes());
                    put(&mut body, TOKEN, token);
                }
                if let Some(address) = address {
                    put(&mut body, ADDRESS, address.as_bytes());
                }
                if *frames {
                    put(&mut body, FRAMES, &[]);
                }
                if let Some(taken) = taken {
                    put(&mut body, TAKEN, &[*taken as u8]);
                }
            }
        }
        write(mark, &body, out)
    }

    /// Reads the message behind the first `mark` in `bytes`, and says where frames begin; `None` when more are
    /// needed.
    ///
    /// # Errors
    /// Not a message of this protocol, or more than [`MAX_SSH_NOISE`] bytes without the mark.
    pub fn parse(
        mark: &[u8; SSH_MARK_LEN],
        bytes: &[u8],
    ) -> Result<Option<(Self, usize)>, DecodeError> {
        let searched = &bytes[..bytes.len().min(MAX_SSH_NOISE + SSH_MARK_LEN)];
        let Some(start) = searched.windows(SSH_MARK_LEN).position(|window| window == mark) else {
            return match bytes.len() >= MAX_SSH_NOISE + SSH_MARK_LEN {
                true => Err(DecodeError::Invalid { what: "beginning of the answer" }),
                false => Ok(None),
            };
        };
        let Some((_, body)) = split(&bytes[start..])? else { return Ok(None) };
        let end = start + HEAD + body.len();
        let options = read(body, By::Server)?;
        let implementation = options.text(IMPLEMENTATION, MAX_IMPLEMENTATION)?;
        if let Some(reason) = options.text(REFUSAL, MAX_REASON)? {
            let path = match options.find(REFUSED_PATH) {
                None => None,
                Some(_) => Some(u16::from_be_bytes(options.array(REFUSED_PATH)?)),
            };
            let outcome = Err(SshRefusal { reason, path });
            return Ok(Some((Self { implementation, outcome }, end)));
        }
        if options.array(VERSION)? != SSH_VERSION.to_be_bytes() {
            return Err(DecodeError::UnsupportedVersion);
        }
        options.no_unknown_critical()?;
        let entry = match (options.find(PORT), options.find(TOKEN)) {
            (None, None) => None,
            _ => {
                let port = u16::from_be_bytes(options.array(PORT)?);
                Some(SshEntry { port, token: options.array(TOKEN)? })
            }
        };
        if entry.is_some_and(|entry| entry.port == 0) {
            return Err(DecodeError::Invalid { what: PORT.what });
        }
        let paths = paths(&options)?;
        let address = options.text(ADDRESS, MAX_ADDRESS)?;
        let frames = match options.find(FRAMES) {
            None => false,
            Some([]) => true,
            Some(_) => return Err(DecodeError::Invalid { what: FRAMES.what }),
        };
        let taken = match options.find(TAKEN) {
            None => None,
            Some([1]) => Some(SshTaken::Udp),
            Some([2]) => Some(SshTaken::All),
            Some(_) => return Err(DecodeError::Invalid { what: TAKEN.what }),
        };
        let outcome = Ok(SshServing { entry, address, paths, frames, taken });
        Ok(Some((Self { implementation, outcome }, end)))
    }
}

/// Mark and body of the message that `bytes` begin with.
#[allow(clippy::type_complexity, reason = "a mark and what follows it")]
fn split(bytes: &[u8]) -> Result<Option<([u8; SSH_MARK_LEN], &[u8])>, DecodeError> {
    let Some((mark, rest)) = bytes.split_first_chunk::<SSH_MARK_LEN>() else { return Ok(None) };
    let Some((&[a, b, c], rest)) = rest.split_first_chunk() else { return Ok(None) };
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    if len > MAX_BODY {
        return Err(DecodeError::Invalid { what: "length of a message over ssh" });
    }
    Ok(rest.get(..len).map(|body| (*mark, body)))
}

fn write(mark: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<(), Full> {
    if body.len() > MAX_BODY {
        return Err(Full);
    }
    let mut w = Writer::append(out);
    w.bytes(mark)?;
    w.u24(body.len() as u32)?;
    w.bytes(body)
}

kinds! {
    1 true VERSION Both "version over ssh"
    2 true PURPOSE Client "purpose over ssh"
    3 true PATH Both "path over ssh"
    4 true PORTS Client "ports over ssh"
    5 false IMPLEMENTATION Both "implementation over ssh"
    6 true PORT Server "port over ssh"
    7 true TOKEN Server "token over ssh"
    8 false ADDRESS Server "address over ssh"
    9 true REFUSAL Server "refusal over ssh"
    10 false FRAMES Server "frames over ssh"
    11 true ONWARD Client "other server over ssh"
    12 false TAKEN Server "taken ports over ssh"
    13 false REFUSED_PATH Server "refused path over ssh"
}

fn read(body: &[u8], by: By) -> Result<Options<'_>, DecodeError> {
    Options::read(body, by, KINDS, Some(PATH))
}

fn put_paths(body: &mut Vec<u8>, paths: &[Vec<u8>]) -> Result<(), Full> {
    if paths.iter().any(|path| path.len() > MAX_PATH) {
        return Err(Full);
    }
    paths.iter().for_each(|path| put(body, PATH, path));
    Ok(())
}

fn paths(options: &Options<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    let path = |path: &[u8]| match path.len() > MAX_PATH || path.contains(&0) {
        true => Err(DecodeError::Invalid { what: PATH.what }),
        false => Ok(path.to_vec()),
    };
    options.all(PATH).map(path).collect()
}

/// Bytes before a body.
const HEAD: usize = SSH_MARK_LEN + 3;
/// A few hundred of the longest paths.
const MAX_BODY: usize = 1 << 20;
/// Longer than every IPv6 address with its zone.
const MAX_ADDRESS: usize = 64;

#[cfg(test)]
mod tests;

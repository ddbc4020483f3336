//! The other server that an asked one copies to (docs/protocol.md section 10).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{MAX_ADDRESS, SshEntry};
use crate::error::{DecodeError, Full};
use crate::message::MAX_PATH;
use crate::reader::Reader;
use crate::writer::Writer;

/// A server that another one copies to, and how. It holds a token, which is not for logs.
#[derive(Clone, PartialEq, Eq)]
pub struct SshOnward {
    /// Its door.
    pub entry: SshEntry,
    /// It takes frames, which the client passes on.
    pub frames: bool,
    /// Its name, as people write it.
    pub host: String,
    /// Its name in records.
    pub name: String,
    /// Addresses that it may have, the best first.
    pub addresses: Vec<String>,
    /// The destination, as requests have to name it.
    pub destination: Vec<u8>,
    /// Words of the command.
    pub words: Vec<Vec<u8>>,
}

impl SshOnward {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Full> {
        let mut out = Vec::new();
        let mut w = Writer::append(&mut out);
        w.u16(self.entry.port)?;
        w.bytes(&self.entry.token)?;
        w.u8(u8::from(self.frames))?;
        let string = |w: &mut Writer<'_>, bytes: &[u8]| {
            w.u16(u16::try_from(bytes.len()).map_err(|_| Full)?)?;
            w.bytes(bytes)
        };
        string(&mut w, self.host.as_bytes())?;
        string(&mut w, self.name.as_bytes())?;
        w.u8(u8::try_from(self.addresses.len()).map_err(|_| Full)?)?;
        self.addresses.iter().try_for_each(|it| string(&mut w, it.as_bytes()))?;
        string(&mut w, &self.destination)?;
        self.words.iter().try_for_each(|it| string(&mut w, it))?;
        if out.len() > usize::from(u16::MAX) {
            return Err(Full);
        }
        Ok(out)
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid { what: WHAT };
        let mut r = Reader::new(bytes, WHAT);
        let entry = SshEntry { port: r.u16()?, token: r.array()? };
        let frames = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(invalid),
        };
        let string = |r: &mut Reader<'_>| {
            let len = r.u16()?;
            r.take(len.into()).map(<[u8]>::to_vec)
        };
        let text = |r: &mut Reader<'_>, most: usize| {
            let text = String::from_utf8(string(r)?).map_err(|_| invalid)?;
            if text.len() > most { Err(invalid) } else { Ok(text) }
        };
        let (host, name) = (text(&mut r, MAX_NAME)?, text(&mut r, MAX_NAME)?);
        let count = r.u8()?;
        let addresses = (0..count).map(|_| text(&mut r, MAX_NAME.max(MAX_ADDRESS)));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let destination = string(&mut r)?;
        let mut words = Vec::new();
        while !r.is_empty() {
            words.push(string(&mut r)?);
        }
        let has_zero = |bytes: &Vec<u8>| bytes.contains(&0);
        if entry.port == 0
            || addresses.is_empty()
            || destination.len() > MAX_PATH
            || has_zero(&destination)
            || words.iter().any(has_zero)
        {
            return Err(invalid);
        }
        Ok(Self { entry, frames, host, name, addresses, destination, words })
    }
}

impl fmt::Debug for SshOnward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SshOnward({} at {:?}:{})", self.name, self.addresses, self.entry.port)
    }
}

const WHAT: &str = "other server over ssh";
/// Longer than every name of a host, with a user and a port.
const MAX_NAME: usize = 1024;

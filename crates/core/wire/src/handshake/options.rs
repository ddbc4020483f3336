use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::DecodeError;
use crate::reader::Reader;

/// An option that this version defines.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    number: u16,
    critical: bool,
    within: Within,
    what: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Both,
    Hello,
    Welcome,
}

/// A message that consists of options.
#[derive(Clone, Copy)]
pub(super) enum Message {
    Hello,
    Welcome,
}

macro_rules! kinds {
    ($($number:literal $critical:literal $name:ident $within:ident $what:literal)*) => {
        $(
            pub(super) const $name: Kind = Kind {
                number: $number,
                critical: $critical,
                within: Within::$within,
                what: concat!($what, " option"),
            };
        )*
        /// Every kind; the one with number n stands at n - 1.
        const KINDS: &[Kind] = &[$($name),*];
    };
}

kinds! {
    1 true VERSION Both "version"
    2 true KEY_ID Hello "key id"
    3 true PROOF Both "proof"
    4 true PROTECT Both "protect"
    5 true CIPHER Both "cipher"
    6 true CARRIER Both "carrier"
    7 true LANES Both "lanes"
    8 true CONNECTION_ID Welcome "connection id"
    9 true UDP_PORT Welcome "UDP port"
    10 false IMPLEMENTATION Both "implementation"
    11 false RECEIVE_LIMITS Both "receive limits"
    12 true PROFILE Hello "profile"
    13 true RATE Hello "rate"
    14 true PARAMETERS Hello "parameters"
}

/// The options of a HELLO or WELCOME, each there at most once.
pub(super) struct Options<'a> {
    values: [Option<&'a [u8]>; KINDS.len()],
    unknown_critical: bool,
}

impl<'a> Options<'a> {
    pub(super) fn read(body: &'a [u8], message: Message) -> Result<Self, DecodeError> {
        let mut options = Self { values: [None; KINDS.len()], unknown_critical: false };
        let mut r = Reader::new(body, "option");
        let mut seen = BTreeSet::new();
        while !r.is_empty() {
            let first = r.u16()?;
            let (critical, number) = (first & CRITICAL != 0, first & !CRITICAL);
            let len = r.u16()?;
            let value = r.take(len.into())?;
            if !seen.insert(number) {
                return Err(DecodeError::Invalid { what: "repeated option" });
            }
            let place = usize::from(number).wrapping_sub(1);
            match (KINDS.get(place), options.values.get_mut(place)) {
                (Some(kind), Some(slot)) => {
                    let allowed = match kind.within {
                        Within::Both => true,
                        Within::Hello => matches!(message, Message::Hello),
                        Within::Welcome => matches!(message, Message::Welcome),
                    };
                    if critical != kind.critical || !allowed {
                        return Err(DecodeError::Invalid { what: kind.what });
                    }
                    *slot = Some(value);
                }
                _ => options.unknown_critical |= critical,
            }
        }
        Ok(options)
    }

    pub(super) fn no_unknown_critical(&self) -> Result<(), DecodeError> {
        if self.unknown_critical {
            return Err(DecodeError::Unsupported { what: "critical option" });
        }
        Ok(())
    }

    pub(super) fn find(&self, kind: Kind) -> Option<&'a [u8]> {
        self.values[usize::from(kind.number) - 1]
    }

    pub(super) fn get(&self, kind: Kind) -> Result<&'a [u8], DecodeError> {
        self.find(kind).ok_or(DecodeError::Truncated { what: kind.what })
    }

    pub(super) fn array<const N: usize>(&self, kind: Kind) -> Result<[u8; N], DecodeError> {
        self.get(kind)?.try_into().map_err(|_| DecodeError::Invalid { what: kind.what })
    }

    pub(super) fn text(&self, kind: Kind, limit: usize) -> Result<Option<String>, DecodeError> {
        self.find(kind)
            .map(|value| Reader::new(value, kind.what).text(limit).map(String::from))
            .transpose()
    }
}

/// Appends an option. Values of this version are far shorter than the length field allows.
pub(super) fn put(body: &mut Vec<u8>, kind: Kind, value: &[u8]) {
    let critical = if kind.critical { CRITICAL } else { 0 };
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend_from_slice(&(kind.number | critical).to_be_bytes());
    body.extend_from_slice(&(value.len() as u16).to_be_bytes());
    body.extend_from_slice(value);
}

/// 16-bit numbers in a row.
pub(super) fn values(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

const CRITICAL: u16 = 1 << 15;

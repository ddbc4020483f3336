//! Options, of which messages of handshakes consist: critical bit and number, length, value
//! (docs/protocol.md section 2.4).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::DecodeError;
use crate::reader::Reader;

/// An option that this version defines.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub number: u16,
    pub critical: bool,
    pub by: By,
    pub what: &'static str,
}

/// End that sends a message, or those that send an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Both,
    Client,
    Server,
}

/// Kinds of option of one protocol, each as a constant, and `KINDS` of them all.
macro_rules! kinds {
    ($($number:literal $critical:literal $name:ident $by:ident $what:literal)*) => {
        $(
            pub(super) const $name: $crate::options::Kind = $crate::options::Kind {
                number: $number,
                critical: $critical,
                by: $crate::options::By::$by,
                what: $what,
            };
        )*
        pub(super) const KINDS: &[$crate::options::Kind] = &[$($name),*];
    };
}
pub(crate) use kinds;

/// The options of a message.
pub(crate) struct Options<'a> {
    /// Those of a known kind, in order.
    known: Vec<(u16, &'a [u8])>,
    has_unknown_critical: bool,
}

impl<'a> Options<'a> {
    /// Options of a message by one end. None is there twice, but for those of kind `many`.
    pub(crate) fn read(
        body: &'a [u8],
        by: By,
        kinds: &[Kind],
        many: Option<Kind>,
    ) -> Result<Self, DecodeError> {
        let mut options = Self { known: Vec::new(), has_unknown_critical: false };
        let mut seen = BTreeSet::new();
        for field in option_fields(body) {
            let (critical, number, value) = field?;
            let may_repeat = many.is_some_and(|many| many.number == number);
            if !seen.insert(number) && !may_repeat {
                return Err(DecodeError::Invalid { what: "repeated option" });
            }
            let Some(kind) = kinds.iter().find(|kind| kind.number == number) else {
                options.has_unknown_critical |= critical;
                continue;
            };
            let is_allowed = kind.by == By::Both || kind.by == by;
            if critical != kind.critical || !is_allowed {
                return Err(DecodeError::Invalid { what: kind.what });
            }
            options.known.push((number, value));
        }
        Ok(options)
    }

    /// Refuses options of a kind that this version does not know and must.
    pub(crate) fn no_unknown_critical(&self) -> Result<(), DecodeError> {
        match self.has_unknown_critical {
            true => Err(DecodeError::Unsupported { what: "critical option" }),
            false => Ok(()),
        }
    }

    pub(crate) fn find(&self, kind: Kind) -> Option<&'a [u8]> {
        self.all(kind).next()
    }

    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = &'a [u8]> {
        let of_kind =
            move |(number, value): &(u16, &'a [u8])| (*number == kind.number).then_some(*value);
        self.known.iter().filter_map(of_kind)
    }

    pub(crate) fn get(&self, kind: Kind) -> Result<&'a [u8], DecodeError> {
        self.find(kind).ok_or(DecodeError::Truncated { what: kind.what })
    }

    pub(crate) fn array<const N: usize>(&self, kind: Kind) -> Result<[u8; N], DecodeError> {
        self.get(kind)?.try_into().map_err(|_| DecodeError::Invalid { what: kind.what })
    }

    /// 16-bit numbers in a row, at least one.
    pub(crate) fn numbers(&self, kind: Kind) -> Result<Vec<u16>, DecodeError> {
        match self.get(kind)?.as_chunks() {
            (numbers, []) if !numbers.is_empty() => {
                Ok(numbers.iter().map(|number| u16::from_be_bytes(*number)).collect())
            }
            _ => Err(DecodeError::Invalid { what: kind.what }),
        }
    }

    pub(crate) fn text(&self, kind: Kind, limit: usize) -> Result<Option<String>, DecodeError> {
        let text = |value| Reader::new(value, kind.what).text(limit).map(String::from);
        self.find(kind).map(text).transpose()
    }
}

/// Appends an option, whose value is shorter than 2^16 bytes.
pub(crate) fn put(body: &mut Vec<u8>, kind: Kind, value: &[u8]) {
    debug_assert!(value.len() <= usize::from(u16::MAX), "{}", kind.what);
    let critical = if kind.critical { CRITICAL_OPTION } else { 0 };
    body.extend_from_slice(&(kind.number | critical).to_be_bytes());
    body.extend_from_slice(&(value.len() as u16).to_be_bytes());
    body.extend_from_slice(value);
}

/// One option: critical, number and value.
pub type OptionField<'a> = (bool, u16, &'a [u8]);

/// The options of a message, in order, until the first that is not whole.
pub fn option_fields(body: &[u8]) -> impl Iterator<Item = Result<OptionField<'_>, DecodeError>> {
    let mut r = Reader::new(body, "option");
    let mut is_broken = false;
    core::iter::from_fn(move || {
        if is_broken || r.is_empty() {
            return None;
        }
        let field = (|| {
            let first = r.u16()?;
            let len = r.u16()?;
            Ok((first & CRITICAL_OPTION != 0, first & !CRITICAL_OPTION, r.take(len.into())?))
        })();
        is_broken = field.is_err();
        Some(field)
    })
}

/// Bit of an option's number: who does not know the option has to refuse the message.
pub const CRITICAL_OPTION: u16 = 1 << 15;

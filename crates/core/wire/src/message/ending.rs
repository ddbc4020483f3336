use alloc::string::String;

use longhaul_units::{EntryCode, without_numbers};

use crate::close::{MAX_REASON, cut_reason};
use crate::error::{DecodeError, Full};
use crate::reader::Reader;
use crate::writer::Writer;

/// Why an entry was not copied: a code for programs, a reason for people (docs/protocol.md section
/// 9.4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct EntryEnd {
    /// Why, for programs.
    pub code: EntryCode,
    /// Why, for people.
    pub reason: String,
}

impl EntryEnd {
    /// With the start of `reason` that a message may hold, without numbers of system errors.
    pub fn new(code: EntryCode, reason: &str) -> Self {
        Self { code, reason: cut_reason(&without_numbers(reason)).into() }
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>, code: EntryCode) -> Result<(), Full> {
        w.u8(code as u8)?;
        w.bytes(cut_reason(&self.reason).as_bytes())
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = EntryCode::from_code(r.u8()?);
        Ok(Self { code, reason: r.text(MAX_REASON)?.into() })
    }

    /// The same where more follows.
    pub(super) fn encode_sized(&self, w: &mut Writer<'_>, code: EntryCode) -> Result<(), Full> {
        w.u8(code as u8)?;
        w.sized(cut_reason(&self.reason).as_bytes())
    }

    /// The same where more follows, of a source.
    pub(super) fn decode_sized(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = EntryCode::from_code(r.u8()?).of_source();
        let reason = core::str::from_utf8(r.sized(MAX_REASON)?).map_err(|_| r.invalid())?;
        Ok(Self { code, reason: reason.into() })
    }
}

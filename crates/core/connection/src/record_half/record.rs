//! The record that is being sent, and the one that is being received.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, Range};

use longhaul_wire::{AEAD_TAG_LEN, CLEAR_TAG_LEN, MAX_RECORD_HEAD, RecordHead, Writer};

use crate::incoming::GroupPart;
use crate::run::Forged;

/// Authenticates the records of both directions where TLS does not, each in its order: every
/// call is about the next one (docs/protocol.md sections 4.2 and 8). An error where there are no keys
/// for another record.
pub trait RecordSeals {
    /// Seals what is behind the head of `record`, which is `head` bytes long, and appends the tag of
    /// [`AEAD_TAG_LEN`] bytes.
    fn seal_frames(&mut self, record: &mut Vec<u8>, head: usize) -> Result<(), Forged>;

    /// Opens the frames and the tag behind them that followed `head`.
    fn open_frames<'r>(&mut self, head: &[u8], sealed: &'r mut [u8]) -> Result<&'r [u8], Forged>;

    /// The tag of a record of object bytes that begins with `head`.
    fn object_tag(&mut self, head: &[u8; MAX_RECORD_HEAD]) -> Result<[u8; CLEAR_TAG_LEN], Forged>;

    /// True if `tag` is that of the record of object bytes that begins with `head`.
    fn verify_object(
        &mut self,
        head: &[u8; MAX_RECORD_HEAD],
        tag: [u8; CLEAR_TAG_LEN],
    ) -> Result<(), Forged>;
}

/// The record that is being sent: its head, or all of it, and bytes of a group behind.
#[derive(Debug)]
pub(super) struct Record<O> {
    head: Vec<u8>,
    body: Option<(O, Range<usize>)>,
    sent: usize,
}

impl<O> Default for Record<O> {
    fn default() -> Self {
        Self { head: Vec::new(), body: None, sent: 0 }
    }
}

impl<O: Deref<Target: AsRef<[u8]>>> Record<O> {
    fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |(_, piece)| piece.len())
    }

    /// Bytes of a group in it.
    pub fn piece_len(&self) -> u64 {
        self.body.as_ref().map_or(0, |(_, piece)| piece.len() as u64)
    }

    pub fn is_sent(&self) -> bool {
        self.sent == self.len()
    }

    /// The rest of head and body to write.
    pub fn rest(&self) -> [&[u8]; 2] {
        let head = &self.head[self.sent.min(self.head.len())..];
        let Some((bytes, piece)) = &self.body else { return [head, &[]] };
        let sent = self.sent.saturating_sub(self.head.len());
        [head, &(**bytes).as_ref()[piece.start + sent..piece.end]]
    }

    /// So many bytes more were written. The bytes of a group in it, once it is all written.
    pub fn advance(&mut self, count: usize) -> Option<usize> {
        self.sent += count;
        if !self.is_sent() {
            return None;
        }
        let body = self.body.take();
        self.head.clear();
        self.sent = 0;
        body.map(|(_, piece)| piece.len())
    }

    pub fn set_frames(
        &mut self,
        frames: &[u8],
        seals: Option<&mut impl RecordSeals>,
    ) -> Result<(), Forged> {
        let head = RecordHead::Frames { len: frames.len() };
        // Appending to a vector cannot fail, here and below.
        let _ = head.encode(&mut Writer::append(&mut self.head));
        self.head.extend_from_slice(frames);
        seals
            .map_or(Ok(()), |seals| seals.seal_frames(&mut self.head, SHORT_HEAD))
            .inspect_err(|_| self.head.clear())
    }

    pub fn set_object(
        &mut self,
        head: RecordHead,
        piece: (O, Range<usize>),
        seals: Option<&mut impl RecordSeals>,
    ) -> Result<(), Forged> {
        let mut bytes = Vec::with_capacity(LONGEST_HEAD);
        let _ = head.encode(&mut Writer::append(&mut bytes));
        if let (Some(seals), Some(head)) = (seals, bytes.first_chunk()) {
            let tag = seals.object_tag(head)?;
            bytes.extend_from_slice(&tag);
        }
        (self.head, self.body) = (bytes, Some(piece));
        Ok(())
    }
}

/// The record that is being received.
#[derive(Debug)]
pub(super) enum Reading {
    Head {
        bytes: [u8; LONGEST_HEAD],
        count: usize,
    },
    /// With its head, and with its tag if it has one.
    Frames {
        bytes: Vec<u8>,
        count: usize,
    },
    Object {
        target: GroupPart,
        count: usize,
        /// Its bytes go elsewhere first: they are there already.
        repeated: bool,
    },
}

impl Default for Reading {
    fn default() -> Self {
        Self::Head { bytes: [0; LONGEST_HEAD], count: 0 }
    }
}

impl Reading {
    /// That of the frames whose record began with `bytes`.
    pub fn frames(bytes: &[u8; LONGEST_HEAD], len: usize, sealed: bool) -> Self {
        let tag = if sealed { AEAD_TAG_LEN } else { 0 };
        let mut record = vec![0; SHORT_HEAD + len + tag];
        record[..SHORT_HEAD].copy_from_slice(&bytes[..SHORT_HEAD]);
        Self::Frames { bytes: record, count: SHORT_HEAD }
    }

    /// Bytes of a head that are to be received in all, of which so many were: never more than the
    /// head, so that what follows goes straight to its place.
    pub fn most_of_head(count: usize, sealed: bool) -> usize {
        match sealed {
            _ if count < SHORT_HEAD => SHORT_HEAD,
            true => LONGEST_HEAD,
            false => MAX_RECORD_HEAD,
        }
    }

    /// The part of a head that is there, without its tag.
    pub fn head(bytes: &[u8; LONGEST_HEAD], count: usize) -> &[u8] {
        &bytes[..count.min(MAX_RECORD_HEAD)]
    }

    /// The head of a record of object bytes and its tag, once both are there.
    pub fn tagged_head(
        bytes: &[u8; LONGEST_HEAD],
        count: usize,
    ) -> Option<(&[u8; MAX_RECORD_HEAD], &[u8; CLEAR_TAG_LEN])> {
        let (head, tag) = bytes[..count].split_first_chunk()?;
        Some((head, tag.first_chunk()?))
    }

    /// Head and body of a whole record of frames.
    pub fn split_frames(bytes: &mut [u8]) -> (&[u8], &mut [u8]) {
        let (head, body) = bytes.split_at_mut(SHORT_HEAD);
        (head, body)
    }

    /// So many bytes more have come.
    pub fn advance(&mut self, more: usize) {
        let (Self::Head { count, .. } | Self::Frames { count, .. } | Self::Object { count, .. }) =
            self;
        *count += more;
    }
}

/// Bytes of a head that tell its kind: all of the head of a record of frames.
const SHORT_HEAD: usize = 4;
const LONGEST_HEAD: usize = MAX_RECORD_HEAD + CLEAR_TAG_LEN;

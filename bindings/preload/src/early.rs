//! Payload that the program sent before the answer: it is sent again where the set-up begins again.

use libc::{c_void, iovec, mmsghdr, msghdr};

/// The payload of a session so far.
pub(crate) struct Early {
    /// `None`: more than is kept.
    bytes: Option<Vec<u8>>,
    /// Behind it the program ended what it sends.
    pub ended: bool,
}

impl Early {
    pub const fn new() -> Self {
        Self { bytes: Some(Vec::new()), ended: false }
    }

    /// The program sent these bytes; `None` where they cannot be kept.
    pub fn add(&mut self, more: Option<Vec<u8>>) {
        let bytes = self.bytes.take().zip(more);
        self.bytes = bytes
            .filter(|(bytes, more)| bytes.len() + more.len() <= MAX)
            .map(|(bytes, more)| [bytes, more].concat());
    }

    /// All that was sent, if it was kept.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// Nothing was sent, and nothing ended.
    pub fn is_empty(&self) -> bool {
        !self.ended && self.bytes().is_some_and(<[u8]>::is_empty)
    }
}

/// The first `len` bytes behind `from`, if they are few enough to be kept.
///
/// # Safety
/// There are as many.
pub(crate) unsafe fn flat(from: *const c_void, len: isize) -> Option<Vec<u8>> {
    let part = iovec { iov_base: from.cast_mut(), iov_len: usize::try_from(len).ok()? };
    // SAFETY: as promised by the caller.
    unsafe { gathered(&raw const part, 1, len) }
}

/// The first `len` bytes of `count` parts, if they are few enough to be kept.
///
/// # Safety
/// The parts are there, and have as many bytes.
pub(crate) unsafe fn gathered(parts: *const iovec, count: usize, len: isize) -> Option<Vec<u8>> {
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX)?;
    let mut bytes = Vec::with_capacity(len);
    for number in 0..count {
        // SAFETY: as promised by the caller.
        let part = unsafe { parts.add(number).read() };
        let most = part.iov_len.min(len - bytes.len());
        if most > 0 {
            // SAFETY: as above.
            let more = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), most) };
            bytes.extend_from_slice(more);
        }
    }
    Some(bytes)
}

/// The first `len` bytes of a message.
///
/// # Safety
/// The message is there, and has as many bytes.
pub(crate) unsafe fn message(from: *const msghdr, len: isize) -> Option<Vec<u8>> {
    // SAFETY: as promised by the caller.
    unsafe { gathered((*from).msg_iov, (*from).msg_iovlen, len) }
}

/// The first `count` messages, as far as they were sent.
///
/// # Safety
/// There are as many.
pub(crate) unsafe fn messages(from: *const mmsghdr, count: isize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for number in 0..usize::try_from(count).ok()? {
        // SAFETY: as promised by the caller.
        let more = unsafe {
            let at = from.add(number);
            message(&raw const (*at).msg_hdr, isize::try_from((*at).msg_len).ok()?)
        };
        bytes.extend(more?);
    }
    Some(bytes)
}

/// Most bytes that are kept: what the buffers of a new connection take while nobody reads.
const MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_kept_in_order_as_long_as_it_is_little() {
        let mut early = Early::new();
        assert!(early.is_empty());
        let text = *b"one two";
        let part = |at: usize, len| iovec { iov_base: text[at..].as_ptr() as _, iov_len: len };
        let parts = [part(0, 4), part(4, 3)];
        // SAFETY: the parts are there.
        early.add(unsafe { gathered(parts.as_ptr(), 2, 5) });
        // SAFETY: so is the text.
        early.add(unsafe { flat(text[5..].as_ptr().cast(), 2) });
        assert_eq!(early.bytes(), Some(&text[..]));
        early.add(Some(vec![0; MAX - text.len()]));
        assert_eq!(early.bytes().map(<[u8]>::len), Some(MAX));
        early.add(Some(vec![0]));
        assert_eq!(early.bytes(), None);
        early.add(Some(vec![]));
        assert!(early.bytes().is_none() && !early.is_empty());
    }
}

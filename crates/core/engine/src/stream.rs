//! One ordered byte stream: a sending half and a receiving half, each bounded (protocol.md 6).

use alloc::collections::VecDeque;
use core::ops::Range;

use longhaul_units::RangeSet;

/// Bytes that may be sent before the first STREAM_LIMIT (protocol.md 5.6).
pub(crate) const INITIAL_LIMIT: u64 = 256 << 10;
/// Bytes a receiver buffers: enough for 10 MB/s of metadata at 100 ms.
pub(crate) const RECEIVE_WINDOW: u64 = 1 << 20;

/// The peer's breach of the protocol on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    BeyondLimit,
    BeyondFinal,
    FinalMoved,
}

/// Outgoing bytes.
#[derive(Debug)]
pub(crate) struct SendHalf {
    /// Bytes from `base` on: sent and unacknowledged, then unsent.
    buffer: VecDeque<u8>,
    base: u64,
    /// First byte never sent.
    next: u64,
    acked: RangeSet,
    resend: RangeSet,
    limit: u64,
    /// Offset behind the last byte, once the writer has finished.
    end: Option<u64>,
    end_state: EndState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    Unsent,
    Sent,
    Acked,
}

/// A piece of stream to be put in one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub range: Range<u64>,
    pub fin: bool,
}

impl Default for SendHalf {
    fn default() -> Self {
        Self {
            buffer: VecDeque::new(),
            base: 0,
            next: 0,
            acked: RangeSet::new(),
            resend: RangeSet::new(),
            limit: INITIAL_LIMIT,
            end: None,
            end_state: EndState::Unsent,
        }
    }
}

impl SendHalf {
    /// Takes as much of `data` as a buffer of `most` bytes holds; returns how much.
    pub fn write(&mut self, data: &[u8], most: usize) -> usize {
        if self.end.is_some() {
            return 0;
        }
        let taken = data.len().min(most.saturating_sub(self.buffer.len()));
        self.buffer.extend(&data[..taken]);
        taken
    }

    /// No more will be written.
    pub fn finish(&mut self) {
        self.end.get_or_insert(self.base + self.buffer.len() as u64);
    }

    /// Everything written, the end included, was acknowledged.
    pub fn is_done(&self) -> bool {
        self.end_state == EndState::Acked && self.buffer.is_empty()
    }

    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    fn written(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// True if a frame could be made now.
    pub fn has_pending(&self) -> bool {
        !self.resend.is_empty()
            || self.next < self.written().min(self.limit)
            || (self.end == Some(self.next) && self.end_state == EndState::Unsent)
    }

    /// Takes the next piece of at most `room` bytes: resends first.
    pub fn take(&mut self, room: u64) -> Option<Piece> {
        let range = if let Some(range) = self.resend.take_first(room) {
            range
        } else {
            let end = self.written().min(self.limit).min(self.next.saturating_add(room));
            let range = self.next..end.max(self.next);
            let only_end = self.end == Some(self.next) && self.end_state == EndState::Unsent;
            if range.is_empty() && !only_end {
                return None;
            }
            self.next = range.end;
            range
        };
        let fin = self.end == Some(range.end);
        if fin {
            self.end_state = EndState::Sent;
        }
        Some(Piece { range, fin })
    }

    /// The bytes of `range`, which must be buffered, as up to two slices.
    pub fn slices(&self, range: &Range<u64>) -> (&[u8], &[u8]) {
        let start = (range.start - self.base) as usize;
        let end = (range.end - self.base) as usize;
        let (front, back) = self.buffer.as_slices();
        if end <= front.len() {
            (&front[start..end], &[])
        } else if start >= front.len() {
            (&back[start - front.len()..end - front.len()], &[])
        } else {
            (&front[start..], &back[..end - front.len()])
        }
    }

    pub fn on_acked(&mut self, piece: &Piece) {
        // A piece taken as lost may arrive after the copy that replaced it.
        let start = piece.range.start.max(self.base);
        self.acked.insert(start..piece.range.end.max(start));
        self.resend.remove(piece.range.clone());
        if piece.fin {
            self.end_state = EndState::Acked;
        }
        if let Some(first) = self.acked.first()
            && first.start <= self.base
        {
            self.buffer.drain(..(first.end - self.base) as usize);
            self.base = first.end;
            self.acked.remove_below(first.end);
        }
    }

    pub fn on_lost(&mut self, piece: &Piece) {
        let start = piece.range.start.max(self.base);
        let lost = start..piece.range.end.max(start);
        let mut missing = RangeSet::new();
        for gap in self.acked.gaps(lost) {
            missing.insert(gap);
        }
        for gap in missing.iter() {
            self.resend.insert(gap);
        }
        if piece.fin && self.end_state == EndState::Sent {
            // An empty final frame is made again; otherwise the last resent piece carries the end.
            self.end_state = EndState::Unsent;
        }
    }
}

/// Bytes that came from the peer.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    /// Bytes from `read` on; unfilled places are zero.
    buffer: VecDeque<u8>,
    /// First byte not yet read by the application.
    read: u64,
    received: RangeSet,
    limit: u64,
    end: Option<u64>,
}

impl Default for ReceiveHalf {
    fn default() -> Self {
        Self {
            buffer: VecDeque::new(),
            read: 0,
            received: RangeSet::new(),
            limit: INITIAL_LIMIT,
            end: None,
        }
    }
}

impl ReceiveHalf {
    /// Places a frame's bytes. Nothing changes when the frame is a violation.
    pub fn insert(&mut self, offset: u64, data: &[u8], fin: bool) -> Result<(), Violation> {
        let end = offset.checked_add(data.len() as u64).ok_or(Violation::BeyondLimit)?;
        if end > self.limit {
            return Err(Violation::BeyondLimit);
        }
        if self.end.is_some_and(|known| end > known) {
            return Err(Violation::BeyondFinal);
        }
        if fin {
            let highest = self.received.last().map_or(self.read, |r| r.end);
            if self.end.is_some_and(|known| known != end) || end < highest {
                return Err(Violation::FinalMoved);
            }
            self.end = Some(end);
        }
        let start = offset.max(self.read);
        if end <= start {
            return Ok(());
        }
        let data = &data[(start - offset) as usize..];
        let place = (start - self.read) as usize;
        if place == self.buffer.len() {
            self.buffer.extend(data);
        } else {
            if self.buffer.len() < place + data.len() {
                self.buffer.resize(place + data.len(), 0);
            }
            for (slot, byte) in self.buffer.range_mut(place..place + data.len()).zip(data) {
                *slot = *byte;
            }
        }
        self.received.insert(start..end);
        Ok(())
    }

    /// Bytes that can be read now.
    pub fn readable(&self) -> u64 {
        match self.received.first() {
            Some(first) if first.start <= self.read => first.end - self.read,
            _ => 0,
        }
    }

    /// Moves readable bytes to `into`; returns how many.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let count = (self.readable() as usize).min(into.len());
        for (slot, byte) in into.iter_mut().zip(self.buffer.drain(..count)) {
            *slot = byte;
        }
        self.read += count as u64;
        self.received.remove_below(self.read);
        count
    }

    /// The peer finished and everything was read.
    pub fn is_at_end(&self) -> bool {
        self.end == Some(self.read)
    }

    /// A new limit worth announcing to the peer: once half of the window was read.
    pub fn new_limit(&mut self) -> Option<u64> {
        let limit = self.read + RECEIVE_WINDOW;
        if self.end.is_some() || limit < self.limit + RECEIVE_WINDOW / 2 {
            return None;
        }
        self.limit = limit;
        Some(limit)
    }

    /// The limit that was announced last.
    pub fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn an_empty_stream_is_one_final_frame() {
        let mut send = SendHalf::default();
        assert!(!send.has_pending());
        send.finish();
        assert_eq!(send.take(100), Some(Piece { range: 0..0, fin: true }));
        assert!(!send.has_pending());
        send.on_lost(&Piece { range: 0..0, fin: true });
        assert_eq!(send.take(100), Some(Piece { range: 0..0, fin: true }));
        send.on_acked(&Piece { range: 0..0, fin: true });
        assert!(send.is_done());
    }

    #[test]
    fn a_late_original_behind_its_copy_changes_nothing() {
        let mut send = SendHalf::default();
        send.write(b"abcdef", 6);
        let original = send.take(4).unwrap();
        send.on_lost(&original);
        let copy = send.take(4).unwrap();
        send.on_acked(&copy);
        send.on_acked(&original);
        let rest = send.take(4).unwrap();
        assert_eq!((rest.range.clone(), send.slices(&rest.range).0), (4..6, &b"ef"[..]));
        send.on_acked(&rest);
        send.on_acked(&rest);
        assert!(send.buffer.is_empty());
    }

    #[test]
    fn limits_hold_back_the_writer() {
        let mut send = SendHalf::default();
        let most = 2 * INITIAL_LIMIT as usize;
        assert_eq!(send.write(&vec![1; most + 5], most), most);
        assert_eq!(send.take(u64::MAX / 2).unwrap().range, 0..INITIAL_LIMIT);
        assert_eq!(send.take(100), None);
        send.raise_limit(INITIAL_LIMIT + 10);
        assert_eq!(send.take(100).unwrap().range, INITIAL_LIMIT..INITIAL_LIMIT + 10);
    }

    #[test]
    fn violations_change_nothing() {
        let mut receive = ReceiveHalf::default();
        receive.insert(0, b"abc", true).unwrap();
        assert_eq!(receive.insert(2, b"cd", false), Err(Violation::BeyondFinal));
        assert_eq!(receive.insert(0, b"ab", true), Err(Violation::FinalMoved));
        assert_eq!(receive.insert(u64::MAX - 1, b"ab", false), Err(Violation::BeyondLimit));
        let mut out = [0; 8];
        assert_eq!(receive.read(&mut out), 3);
        assert_eq!(&out[..3], b"abc");
        assert!(receive.is_at_end());
    }

    proptest! {
        /// Whatever is lost, repeated or reordered, the reader gets what the writer wrote.
        #[test]
        fn delivers_in_order(
            data in prop::collection::vec(any::<u8>(), 0..5000),
            steps in prop::collection::vec((0u8..5, 1u64..900), 1..300),
        ) {
            let (mut send, mut receive) = (SendHalf::default(), ReceiveHalf::default());
            let (mut flight, mut got): (Vec<Piece>, Vec<u8>) = (vec![], vec![]);
            let mut written = 0;
            let deliver = |send: &mut SendHalf, receive: &mut ReceiveHalf, piece: &Piece| {
                let (a, b) = send.slices(&piece.range);
                let bytes = [a, b].concat();
                receive.insert(piece.range.start, &bytes, piece.fin).unwrap();
            };
            for (what, n) in steps {
                match what {
                    0 => written += send.write(&data[written..(written + n as usize).min(data.len())], data.len()),
                    1 => flight.extend(send.take(n)),
                    2 | 3 if !flight.is_empty() => {
                        let piece = flight.remove(n as usize % flight.len());
                        if what == 2 {
                            deliver(&mut send, &mut receive, &piece);
                            send.on_acked(&piece);
                        } else {
                            send.on_lost(&piece);
                        }
                    }
                    _ => {
                        let mut out = vec![0; n as usize];
                        let count = receive.read(&mut out);
                        got.extend(&out[..count]);
                    }
                }
            }
            send.write(&data[written..], data.len());
            send.finish();
            for piece in flight.drain(..) {
                send.on_lost(&piece);
            }
            while let Some(piece) = send.take(700) {
                deliver(&mut send, &mut receive, &piece);
                send.on_acked(&piece);
            }
            let mut out = vec![0; 6000];
            let count = receive.read(&mut out);
            got.extend(&out[..count]);
            prop_assert_eq!(got, data);
            prop_assert!(receive.is_at_end() && send.is_done());
        }
    }
}

//! The datagrams under way in one direction, and the path that decides about them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use longhaul_pathsim::{Ecn, Path, PathConfig, Train};
use longhaul_sys::clock;
use longhaul_sys::udp::PAYLOAD_MAX;
use longhaul_units::{Duration, Instant};

/// One direction: super-packets go in, batches of the datagrams that arrive come out, in order.
///
/// The path must keep the order of packets. Bytes are received into large chunks of memory and
/// sent from there; a chunk is used again when everything in it has left.
#[derive(Debug)]
pub(super) struct Line {
    path: Path,
    /// In order of arrival.
    flights: VecDeque<Flight>,
    chunks: VecDeque<Box<[u8]>>,
    /// Number of the chunk in front.
    first_chunk: u64,
    /// Bytes used of the chunk at the back.
    used: usize,
    spare: Vec<Box<[u8]>>,
}

/// Which client a datagram belongs to, by number.
pub(super) type FlowIndex = u16;

/// What is received in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SuperPacket {
    /// Bytes, at the start of [`Line::room`].
    pub len: usize,
    /// Bytes of each datagram but the last.
    pub segment: u16,
    /// DSCP and ECN.
    pub traffic_class: u8,
    pub flow: FlowIndex,
}

/// Datagrams that may leave in one call.
pub(super) struct Batch<'a> {
    pub flow: FlowIndex,
    pub traffic_class: u8,
    /// Bytes of each datagram but the last.
    pub segment: u16,
    pub payload: &'a [IoSlice<'a>],
    /// Number of datagrams.
    pub count: u64,
    /// Sum and maximum of the times by which they are late.
    pub late_sum: Duration,
    pub late_max: Duration,
}

/// A datagram under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    at: Instant,
    chunk: u64,
    offset: u32,
    len: u16,
    flow: FlowIndex,
    traffic_class: u8,
}

impl Line {
    pub(super) fn new(config: &PathConfig, seed: u64) -> io::Result<Self> {
        let path = Path::new(config, seed, clock::now())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Self {
            path,
            flights: VecDeque::new(),
            chunks: VecDeque::new(),
            first_chunk: 0,
            used: 0,
            spare: Vec::new(),
        })
    }

    /// Where to receive the next super-packet.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.chunks.is_empty() || self.used + PAYLOAD_MAX > CHUNK {
            let chunk = self.spare.pop().unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice());
            self.chunks.push_back(chunk);
            self.used = 0;
        }
        let used = self.used;
        self.chunks.back_mut().map(|chunk| &mut chunk[used..]).unwrap_or_default()
    }

    /// Sends what lies in [`Self::room`] into the path, as of `now`.
    pub(super) fn accept(&mut self, now: Instant, packet: SuperPacket) {
        let SuperPacket { len, segment, traffic_class, flow } = packet;
        let step = usize::from(segment.max(1));
        let count = len.div_ceil(step).max(1);
        let last = len - step * (count - 1);
        let train = Train {
            count: count as u32,
            segment_len: u32::from(segment) + IP_UDP_HEADERS,
            last_len: last as u32 + IP_UDP_HEADERS,
            ecn: Ecn::from_bits(traffic_class),
            udp: true,
        };
        let chunk = self.first_chunk + self.chunks.len() as u64 - 1;
        let before = self.flights.len();
        let flights = &mut self.flights;
        let used = self.used;
        self.path.offer_train(now, train, |index, fate| {
            let Some(arrival) = fate.arrival() else { return };
            let index = index as usize;
            flights.push_back(Flight {
                at: arrival.at,
                chunk,
                offset: (used + index * step) as u32,
                len: if index + 1 == count { last as u16 } else { segment },
                flow,
                traffic_class,
            });
        });
        if self.flights.len() > before {
            self.used += len;
        }
    }

    /// When the next datagram arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.flights.front().map(|flight| flight.at)
    }

    /// Hands over the datagrams that have arrived by `now`, in batches of one flow, one traffic
    /// class and one size, of at most `most` datagrams.
    pub(super) fn release(&mut self, now: Instant, most: u16, mut send: impl FnMut(&Batch<'_>)) {
        while let Some(first) = self.flights.front().copied().filter(|first| first.at <= now) {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut filled = 0;
            let (mut count, mut total) = (0, 0);
            let mut late_sum = Duration::ZERO;
            // Datagrams that follow each other in memory, as most do, make one slice.
            let (mut run_chunk, mut run) =
                (first.chunk, first.offset as usize..first.offset as usize);
            for flight in &self.flights {
                let start = flight.offset as usize;
                let end = start + usize::from(flight.len);
                let fits = flight.at <= now
                    && flight.flow == first.flow
                    && flight.traffic_class == first.traffic_class
                    && flight.len <= first.len
                    && (flight.len > 0 || count == 0)
                    && total + usize::from(flight.len) <= PAYLOAD_MAX
                    && count < usize::from(most);
                if !fits {
                    break;
                }
                if flight.chunk == run_chunk && start == run.end {
                    run.end = end;
                } else {
                    if filled + 1 == SLICES {
                        break;
                    }
                    slices[filled] = IoSlice::new(self.bytes(run_chunk, run.clone()));
                    filled += 1;
                    (run_chunk, run) = (flight.chunk, start..end);
                }
                count += 1;
                total += usize::from(flight.len);
                late_sum += now.since(flight.at);
                // Only the last one of a batch may be shorter; an empty one goes alone.
                if flight.len < first.len || first.len == 0 {
                    break;
                }
            }
            slices[filled] = IoSlice::new(self.bytes(run_chunk, run));
            send(&Batch {
                flow: first.flow,
                traffic_class: first.traffic_class,
                segment: first.len,
                payload: &slices[..=filled],
                count: count as u64,
                late_sum,
                late_max: now.since(first.at),
            });
            self.flights.drain(..count);
        }
        self.reclaim();
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self, chunk: u64, range: std::ops::Range<usize>) -> &[u8] {
        &self.chunks[(chunk - self.first_chunk) as usize][range]
    }

    /// Takes back the chunks from which everything has left.
    fn reclaim(&mut self) {
        let last = self.first_chunk + (self.chunks.len() as u64).saturating_sub(1);
        let oldest = self.flights.front().map_or(last, |flight| flight.chunk);
        while self.first_chunk < oldest {
            self.spare.extend(self.chunks.pop_front());
            self.first_chunk += 1;
        }
        if self.flights.is_empty() {
            self.used = 0;
        }
    }
}

/// What IPv4 and UDP add to a payload.
const IP_UDP_HEADERS: u32 = 28;
/// Many super-packets, so that little is wasted at the end.
const CHUNK: usize = 1 << 20;
/// Pieces of memory in one batch; losses and chunk ends make new ones.
const SLICES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_pathsim::Probability;
    use longhaul_units::{Bytes, Rate};
    use proptest::prelude::*;

    fn line(config: &PathConfig) -> Line {
        Line::new(config, 1).unwrap()
    }

    fn start() -> Instant {
        clock::now()
    }

    fn push(line: &mut Line, now: Instant, bytes: &[u8], segment: u16, flow: u16) {
        line.room()[..bytes.len()].copy_from_slice(bytes);
        line.accept(now, SuperPacket { len: bytes.len(), segment, traffic_class: 0, flow });
    }

    fn drain(line: &mut Line, now: Instant, most: u16) -> Vec<(u16, u16, Vec<u8>)> {
        let mut out = Vec::new();
        line.release(now, most, |batch| {
            let bytes: Vec<u8> = batch.payload.iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(
                batch.count,
                bytes.len().div_ceil(batch.segment.max(1).into()).max(1) as u64
            );
            out.push((batch.flow, batch.segment, bytes));
        });
        out
    }

    #[test]
    fn datagrams_leave_when_they_arrive_and_in_batches_of_one_size() {
        // 100 us for the 1000 bytes on the wire of each.
        let config = PathConfig::default()
            .delay(Duration::from_millis(10))
            .rate(Rate::from_mbps(80), Bytes::new(1 << 20));
        let mut line = line(&config);
        let now = start();
        let bytes: Vec<u8> = (0..972 * 3 + 10).map(|i| (i % 251) as u8).collect();
        push(&mut line, now, &bytes, 972, 0);
        let first = now + Duration::from_micros(10_100);
        assert_eq!(line.next_arrival(), Some(first));
        assert!(drain(&mut line, first.before(Duration::from_nanos(1)), 64).is_empty());
        assert_eq!(drain(&mut line, first, 64), [(0, 972, bytes[..972].to_vec())]);
        let later = now + Duration::from_millis(20);
        assert_eq!(drain(&mut line, later, 64), [(0, 972, bytes[972..].to_vec())]);
        assert_eq!(line.next_arrival(), None);
    }

    #[test]
    fn a_batch_holds_one_flow_and_no_more_datagrams_than_allowed() {
        let mut line = line(&PathConfig::default());
        let now = start();
        push(&mut line, now, &[1; 40], 10, 0);
        push(&mut line, now, &[2; 20], 10, 1);
        push(&mut line, now, &[], 0, 1);
        let batches = drain(&mut line, now, 3);
        let shape: Vec<_> = batches.iter().map(|(flow, _, bytes)| (*flow, bytes.len())).collect();
        assert_eq!(shape, [(0, 30), (0, 10), (1, 20), (1, 0)]);
    }

    proptest! {
        #[test]
        fn what_is_not_dropped_comes_out_whole_and_in_order(
            packets in prop::collection::vec((1usize..60_000, 1u16..1_600, 0u16..3, 0u64..300), 1..80),
            loss in 0u32..30,
            most in 1u16..130,
        ) {
            let config = PathConfig::default()
                .delay(Duration::from_micros(700))
                .rate(Rate::from_gbps(10), Bytes::new(400_000))
                .mtu(1_500)
                .loss(Probability::from_percent(loss));
            let mut line = line(&config);
            let mut expected = Vec::new();
            // The same seed decides the same way about single packets.
            let mut now = start();
            let mut path = line.path.clone();
            let mut seen = Vec::new();
            let mut fill = 0u8;
            for (len, segment, flow, wait) in packets {
                let segment = segment.min(len as u16);
                let count = len.div_ceil(segment.into()).min(128);
                let len = len.min(count * usize::from(segment));
                fill = fill.wrapping_add(1);
                let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(fill)).collect();
                push(&mut line, now, &bytes, segment, flow);
                for piece in bytes.chunks(segment.into()) {
                    let wire = piece.len() as u32 + IP_UDP_HEADERS;
                    if path.offer(now, wire, Ecn::NotEct).arrival().is_some() {
                        expected.push((flow, piece.to_vec()));
                    }
                }
                now += Duration::from_micros(wait);
                for (flow, segment, bytes) in drain(&mut line, now, most) {
                    prop_assert!(bytes.len() <= usize::from(most) * usize::from(segment));
                    seen.extend(bytes.chunks(segment.into()).map(|piece| (flow, piece.to_vec())));
                }
            }
            for (flow, segment, bytes) in drain(&mut line, now + Duration::from_secs(1), most) {
                seen.extend(bytes.chunks(segment.into()).map(|piece| (flow, piece.to_vec())));
            }
            prop_assert_eq!(seen, expected);
            prop_assert!(line.chunks.len() <= 1, "memory is used again");
        }
    }
}

//! Segments and chunks: so many packets judged as a whole (FOBS section 2.1).

use longhaul_units::{Duration, Instant, Losses};

use crate::feedback::Feedback;

/// Outcome of so many packets, sent one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Number that arrived.
    pub acked_packets: u64,
    /// Number that did not, by cause.
    pub lost: Losses,
    /// Time from the end of the span before until the fate of the last was known.
    pub took: Duration,
}

impl Span {
    /// Counts the packets of one feedback.
    pub(crate) fn add(&mut self, feedback: &Feedback) {
        self.acked_packets += feedback.acked_packets;
        self.lost = self.lost.plus(&feedback.lost);
    }

    /// Packets whose fate it tells.
    pub fn packets(&self) -> u64 {
        self.acked_packets + self.lost.total()
    }

    /// Packets lost in the network, parts per million of all. What hosts lost themselves counts
    /// only where `with_hosts` says so: the papers knew one kind of loss.
    pub fn loss_ppm(&self, with_hosts: bool) -> u32 {
        let lost = if with_hosts { self.lost.total() } else { self.lost.network() };
        (lost * 1_000_000).checked_div(self.packets()).map_or(0, |ppm| ppm as u32)
    }
}

/// Sizes, in packets, of the spans that a controller wants to hear of. `None`: it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpanSizes {
    /// Packets of a segment.
    pub segment: Option<u64>,
    /// Packets of a chunk.
    pub chunk: Option<u64>,
}

/// Gathers feedback into spans of one size.
///
/// Counted are packets whose fate became known, those of resends too; a feedback that ends a span ends
/// with it, however many packets it tells of.
#[derive(Clone, Debug)]
pub struct SpanMeter {
    size: u64,
    begun: Instant,
    span: Span,
}

impl SpanMeter {
    /// Meter of spans of `size` packets, at least one, the first of which begins now.
    pub fn new(now: Instant, size: u64) -> Self {
        Self { size: size.max(1), begun: now, span: Span::default() }
    }

    /// Takes in the feedback that the controller gets; gives the span that it ends.
    pub fn on_feedback(&mut self, now: Instant, feedback: &Feedback) -> Option<Span> {
        let span = &mut self.span;
        span.add(feedback);
        if span.packets() < self.size {
            return None;
        }
        span.took = now - self.begun;
        self.begun = now;
        Some(core::mem::take(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_with_the_feedback_that_fills_it() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let feedback = |acked_packets, unknown, socket| Feedback {
            acked_packets,
            lost: Losses { unknown, socket, ..Losses::default() },
            ..Feedback::default()
        };
        let mut meter = SpanMeter::new(at(0), 100);
        assert_eq!(meter.on_feedback(at(5), &feedback(90, 4, 2)), None);
        let span = meter.on_feedback(at(9), &feedback(23, 1, 0)).unwrap();
        assert_eq!((span.acked_packets, span.lost.total(), span.took), (113, 7, at(9) - at(0)));
        assert_eq!((span.loss_ppm(false), span.loss_ppm(true)), (41_666, 58_333));
        let next = meter.on_feedback(at(12), &feedback(100, 0, 0)).unwrap();
        assert_eq!((next.acked_packets, next.took), (100, at(12) - at(9)));
        assert_eq!(Span::default().loss_ppm(true), 0);
    }
}

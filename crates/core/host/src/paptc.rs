use longhaul_units::{Duration, Rate};

use crate::prediction::Prediction;
use crate::service::Service;

/// PAPTC's model of a receiver (Lu, Wu, Rao, Wang, section 3): what it processes, predicted, and how
/// long its buffer lasts.
///
/// Equations 1 to 3 divide a round of the scheduler, t_TOT, into the receiver's slice, t_DRP, and the
/// time for which it has expired, t_EXP; they are those of Linux's O(1) scheduler. t_DRP / t_TOT is what today is a share of a processor,
/// so equation 6, mu = T_ts / (T_tp t_TOT) in packets, is the service rate of [`Service`]: its
/// share over T_tp, the processor time of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Paptc;

/// The four acknowledgements of section 5.1, by what a receiver knows when it sends one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledgement {
    /// NXT: nothing is missing.
    Next,
    /// RXM: something is, and listed.
    Retransmission,
    /// TNT: nothing came for a while, and nothing is missing.
    TimeoutNext,
    /// TMO: nothing came for a while, and something is missing.
    TimeoutRetransmission,
}

impl Acknowledgement {
    /// The type of the acknowledgement that is sent now; FEEDBACK says all that it would.
    pub const fn of(is_missing: bool, timed_out: bool) -> Self {
        match (timed_out, is_missing) {
            (false, false) => Self::Next,
            (false, true) => Self::Retransmission,
            (true, false) => Self::TimeoutNext,
            (true, true) => Self::TimeoutRetransmission,
        }
    }
}

impl Paptc {
    /// The bottleneck rate that goes with each acknowledgement: the prediction of equation 7 for the next
    /// sample, before that the newest sample; nothing before the first. Samples are those of
    /// `service`: its interval is the paper's Delta, and its feedback delay the round trip after which
    /// a rate that is announced now is played.
    pub fn capacity(service: &Service) -> Option<Rate> {
        let predicted = service.predict().map(|Prediction { value, .. }| value);
        predicted.map(crate::service::rate).or_else(|| service.rate())
    }

    /// Returns the time that a buffer of `buffer` bytes lasts: equation 4 where the reader has no processor
    /// (`service` is zero), else equation 5. Nothing where it never fills. The paper's m is in bytes and its
    /// rates are in bits: the factor of eight is ours.
    pub fn time_to_fill(buffer: u64, arrival: Rate, service: Rate) -> Option<Duration> {
        (arrival > service).then(|| (arrival - service).time_for(buffer))
    }

    /// The buffer that lasts for the time in which the reader has no processor, t_EXP.
    pub fn buffer_for(arrival: Rate, expired: Duration) -> u64 {
        arrival.bytes_in(expired)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Instant;

    use super::*;
    use crate::{Batch, ServiceConfig, Turn};

    #[test]
    fn a_buffer_lasts_for_what_comes_beyond_what_is_processed() {
        let gbps = Rate::from_gbps;
        let ms = Duration::from_millis;
        assert_eq!(Paptc::time_to_fill(1_250_000, gbps(1), Rate::ZERO), Some(ms(10)), "eq. 4");
        assert_eq!(Paptc::time_to_fill(1_250_000, gbps(2), gbps(1)), Some(ms(10)), "eq. 5");
        assert_eq!(Paptc::time_to_fill(1_250_000, gbps(1), gbps(1)), None);
        assert_eq!(Paptc::buffer_for(gbps(1), ms(10)), 1_250_000);
    }

    #[test]
    fn the_capacity_is_the_share_over_the_time_of_a_packet() {
        let mut service = Service::new(Instant::ZERO, ServiceConfig::default());
        assert_eq!(Paptc::capacity(&service), None);
        // T_tp = 10 us for 1250 bytes, half of each round: 50,000 packets a second, 500 Mb/s.
        let cpu = Some(Duration::from_micros(1_000));
        service.handle_batch(&Batch { bytes: 125_000, packets: 100, cpu, full: true, age: None });
        for tick in 1..=20 {
            let half = Duration::from_millis(25);
            let turn = Turn { run: half, wait: half, turns: 1 };
            service.handle_turn(Instant::ZERO + Duration::from_millis(50 * tick), &turn);
        }
        let capacity = Paptc::capacity(&service).unwrap();
        assert!(capacity.as_bps().abs_diff(500_000_000) < 1_000, "{capacity}");
    }

    #[test]
    fn four_acknowledgements_by_two_questions() {
        assert_eq!(Acknowledgement::of(false, false), Acknowledgement::Next);
        assert_eq!(Acknowledgement::of(true, false), Acknowledgement::Retransmission);
        assert_eq!(Acknowledgement::of(false, true), Acknowledgement::TimeoutNext);
        assert_eq!(Acknowledgement::of(true, true), Acknowledgement::TimeoutRetransmission);
    }
}

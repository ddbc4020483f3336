use longhaul_units::{Duration, Instant, Rate};

use crate::prediction::{Prediction, Predictor, PredictorConfig};
use crate::signals::{Batch, Turn};

/// Rate that one reader processes: bytes for each second of processor, times the share of a processor that
/// it has.
///
/// mu = B phi, where B is the most of late of what is measured while batches are full (else the reader pays
/// for waking up, not for bytes) and phi = run / (run + wait): what it got of what it asked for. phi falls with the first
/// turn that somebody else takes, before anything queues. For one round of a scheduler it is T_ts / t_TOT of PAPTC
/// eq. 6.
#[derive(Clone, Debug)]
pub struct Service {
    config: ServiceConfig,
    /// The most that B was of late over [`SPEED_BYTES`], in bytes per second of processor.
    most: Option<f64>,
    /// Bytes and processor time since B was measured last.
    bytes: u64,
    cpu: Duration,
    /// Sums of this interval.
    began: Instant,
    run: Duration,
    wait: Duration,
    /// Newest share.
    share: Option<f64>,
    predictor: Predictor,
}

/// Configuration of a [`Service`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServiceConfig {
    /// Between two samples of mu. Shorter than a few turns of the scheduler, a share is all or nothing.
    pub interval: Duration,
    /// Predicts them; its horizon is set by the feedback delay.
    pub predictor: PredictorConfig,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self { interval: Duration::from_millis(50), predictor: PredictorConfig::default() }
    }
}

impl Service {
    /// Service of a reader of which nothing is known before `now`.
    pub fn new(now: Instant, config: ServiceConfig) -> Self {
        Self {
            config,
            most: None,
            bytes: 0,
            cpu: Duration::ZERO,
            began: now,
            run: Duration::ZERO,
            wait: Duration::ZERO,
            share: None,
            predictor: Predictor::new(config.predictor),
        }
    }

    /// Predicts as far ahead as feedback needs to have an effect.
    pub fn set_feedback_delay(&mut self, delay: Duration) {
        let steps = delay.as_nanos().div_ceil(self.config.interval.as_nanos().max(1));
        self.predictor.set_horizon(usize::try_from(steps).unwrap_or(usize::MAX));
    }

    /// A batch, and the processor time that it was read and the last one was processed in.
    pub fn handle_batch(&mut self, batch: &Batch) {
        let Some(cpu) = batch.cpu else { return };
        if !batch.full || batch.bytes == 0 || cpu.is_zero() {
            return;
        }
        self.bytes = self.bytes.saturating_add(batch.bytes);
        self.cpu = self.cpu.saturating_add(cpu);
        if self.bytes >= SPEED_BYTES {
            // A reader that wakes up for little pays for each time: the most is what it does when it has to.
            let now = self.bytes as f64 / seconds(self.cpu);
            self.most = Some(self.most.map_or(now, |most| most.max(now)));
            (self.bytes, self.cpu) = (0, Duration::ZERO);
        }
    }

    /// Takes the processor time since the last such sample; true where that completed a sample of mu.
    pub fn handle_turn(&mut self, now: Instant, turn: &Turn) -> bool {
        self.run = self.run.saturating_add(turn.run);
        self.wait = self.wait.saturating_add(turn.wait);
        if now - self.began < self.config.interval {
            return false;
        }
        let asked = self.run.saturating_add(self.wait);
        // Who asks for nothing learns nothing.
        if asked * LEAST_ASKED >= now - self.began {
            self.share = Some(seconds(self.run) / seconds(asked));
        }
        self.most = self.most.map(|most| most * SPEED_KEPT);
        self.began = now;
        (self.run, self.wait) = (Duration::ZERO, Duration::ZERO);
        let Some(rate) = self.rate_now() else { return false };
        self.predictor.add(rate);
        true
    }

    /// Share of a processor that it got of what it asked for, of late; 0 to 1.
    pub fn share(&self) -> Option<f64> {
        self.share
    }

    /// Bytes that it processes in a second of processor, as a rate.
    pub fn speed(&self) -> Option<Rate> {
        self.speed_now().map(|speed| rate(speed * 8.0))
    }

    /// mu of late.
    pub fn rate(&self) -> Option<Rate> {
        self.rate_now().map(rate)
    }

    /// mu when feedback sent now has an effect, in bits per second.
    pub fn predict(&self) -> Option<Prediction> {
        let Prediction { value, lower, upper } = self.predictor.predict()?;
        // No host is faster than alone.
        let most = self.speed_now()? * 8.0;
        Some(Prediction {
            value: value.clamp(0.0, most),
            lower: lower.clamp(0.0, most),
            upper: upper.clamp(0.0, most),
        })
    }

    fn rate_now(&self) -> Option<f64> {
        Some(self.speed_now()? * 8.0 * self.share?)
    }

    /// B; before there is one, the mean so far.
    fn speed_now(&self) -> Option<f64> {
        let so_far = || (self.bytes > 0).then(|| self.bytes as f64 / seconds(self.cpu));
        self.most.or_else(so_far)
    }
}

pub(crate) fn rate(bits_per_second: f64) -> Rate {
    Rate::from_bps(bits_per_second as u64)
}

pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// B is a mean of so many bytes: some 20 ms at 10 Gb/s.
const SPEED_BYTES: u64 = 32_000_000;
/// The most of B is forgotten by half in 35 s, with an interval of 50 ms.
const SPEED_KEPT: f64 = 0.999;
/// A share is one only where a fiftieth of the interval was asked for.
const LEAST_ASKED: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn batch(full: bool) -> Batch {
        let cpu = Some(Duration::from_micros(100));
        Batch { bytes: 100_000, packets: 70, cpu, full, ..Batch::default() }
    }

    fn turn(run_us: u64, wait_us: u64) -> Turn {
        let (run, wait) = (Duration::from_micros(run_us), Duration::from_micros(wait_us));
        Turn { run, wait, turns: 1 }
    }

    #[test]
    fn the_rate_is_speed_times_share_and_needs_both() {
        let mut service = Service::new(at(0), ServiceConfig::default());
        service.handle_batch(&batch(false));
        assert!(!service.handle_turn(at(50), &turn(25_000, 25_000)));
        assert_eq!((service.rate(), service.share()), (None, Some(0.5)), "no full batch yet");
        service.handle_batch(&batch(true));
        let near = |rate: Option<Rate>, gbps| {
            rate.unwrap().as_bps().abs_diff(Rate::from_gbps(gbps).as_bps()) < 10
        };
        assert!(near(service.speed(), 8));
        for n in 2..10 {
            assert!(service.handle_turn(at(50 * n), &turn(12_500, 37_500)));
        }
        assert!(near(service.rate(), 2));
        let prediction = service.predict().unwrap();
        assert!((prediction.value - 2e9).abs() < 1.0, "{prediction:?}");
    }

    #[test]
    fn a_reader_that_wakes_up_for_little_is_no_slower_for_it() {
        let mut service = Service::new(at(0), ServiceConfig::default());
        let batch = |us| Batch { cpu: Some(Duration::from_micros(us)), ..batch(true) };
        (0..320).for_each(|_| service.handle_batch(&batch(100)));
        let fast = service.speed().unwrap();
        for n in 1..=20 {
            (0..320).for_each(|_| service.handle_batch(&batch(400)));
            service.handle_turn(at(50 * n), &turn(12_500, 37_500));
        }
        assert!(service.speed().unwrap() > fast.scale(19, 20), "{:?}", service.speed());
        for n in 21..=2_000 {
            (0..320).for_each(|_| service.handle_batch(&batch(400)));
            service.handle_turn(at(50 * n), &turn(12_500, 37_500));
        }
        assert!(service.speed().unwrap() < fast.scale(1, 3), "what it was is forgotten");
    }

    #[test]
    fn who_asks_for_no_processor_keeps_the_share_that_was_known() {
        let mut service = Service::new(at(0), ServiceConfig::default());
        service.handle_turn(at(50), &turn(10_000, 30_000));
        service.handle_turn(at(100), &turn(0, 0));
        service.handle_turn(at(150), &turn(10, 500));
        assert_eq!(service.share(), Some(0.25));
    }
}

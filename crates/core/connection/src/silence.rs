//! A peer's silence, as far as this process was able to receive.

use longhaul_units::{Duration, Instant};

/// Time in which nothing was received, for a caller that looks again and again. Time between two looks
/// beyond a look's time does not count: then this process had no processor, or was stopped, and
/// could not receive.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    lasted: Duration,
    looked: Instant,
}

impl Silence {
    /// Something was received, or could first be received, at `now`.
    pub fn since(now: Instant) -> Self {
        Self { lasted: Duration::ZERO, looked: now }
    }

    /// Still nothing: returns how long it has lasted.
    pub fn look(&mut self, now: Instant) -> Duration {
        self.lasted += (now - self.looked).min(LOOK_MAX);
        self.looked = now;
        self.lasted
    }

    /// When to look again, to find that it has lasted for `time` as soon as it has.
    pub fn next_look(&self, time: Duration) -> Instant {
        self.looked + time.saturating_sub(self.lasted).min(LOOK_MAX)
    }
}

/// Most that counts between two looks: they are made every few milliseconds up to 100 ms.
const LOOK_MAX: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_this_process_are_no_silence_of_the_peer() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut silence = Silence::since(at(1000));
        assert_eq!(silence.look(at(1100)), Duration::from_millis(100));
        // Stopped for a minute.
        assert_eq!(silence.look(at(61_100)), Duration::from_millis(300));
        let mut now = 61_100;
        let mut looks = 0;
        while silence.look(at(now)) < Duration::from_secs(5) {
            now += 100;
            looks += 1;
        }
        assert_eq!(looks, 47, "with looks in time silence counts in full");
    }
}

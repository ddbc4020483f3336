use alloc::vec::Vec;

use longhaul_units::Duration;

/// A competitor for the processor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// An endless loop: RAPID's synthetic workload, PAPTC's cpuburn.
    Loop,
    /// Stages of pure computing and stages of input between short computations, as a visualization has them
    /// (RAPID's isosurface extraction: turns of less than 2 ms, or of 10 ms, and pauses of 10 to 240 ms
    /// for others). Drawn from the seed.
    Isosurface {
        /// Of what is drawn.
        seed: u64,
    },
    /// Turns as they were recorded: computing, then waiting; again from the start when all are done.
    Trace(Vec<(Duration, Duration)>),
}

/// Position of a load in its program.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    load: Load,
    place: usize,
    state: u64,
    /// Time left of this stage, and whether it is one of input.
    stage: Duration,
    is_input: bool,
}

impl Progress {
    pub(super) fn new(load: Load) -> Self {
        let state = match load {
            Load::Isosurface { seed } => seed.wrapping_mul(2).wrapping_add(1),
            _ => 1,
        };
        Self { load, place: 0, state, stage: Duration::ZERO, is_input: false }
    }

    /// For how long it computes next, and then waits.
    pub(super) fn next(&mut self) -> (Duration, Duration) {
        match &self.load {
            Load::Loop => (Duration::from_secs(3_600), Duration::ZERO),
            Load::Trace(turns) if turns.is_empty() => (Duration::ZERO, Duration::from_secs(3_600)),
            Load::Trace(turns) => {
                let turn = turns[self.place % turns.len()];
                self.place += 1;
                turn
            }
            Load::Isosurface { .. } => self.isosurface(),
        }
    }

    fn isosurface(&mut self) -> (Duration, Duration) {
        if self.stage.is_zero() {
            self.is_input = !self.is_input;
            self.stage = self.draw(if self.is_input { 100_000..400_000 } else { 50_000..300_000 });
        }
        if !self.is_input {
            return (core::mem::take(&mut self.stage), Duration::ZERO);
        }
        let turn = (self.draw(200..2_000), self.draw(1_000..8_000));
        self.stage = self.stage.saturating_sub(turn.0 + turn.1);
        turn
    }

    /// Microseconds, uniformly.
    fn draw(&mut self, range: core::ops::Range<u64>) -> Duration {
        let random = next_random(&mut self.state);
        Duration::from_micros(range.start + random % (range.end - range.start))
    }
}

/// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): enough to draw loads and delays.
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

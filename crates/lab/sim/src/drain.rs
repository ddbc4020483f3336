//! Drives an `IncomingPipe`: one thing at a time, as its thread does, and a program that takes what
//! comes out.

use std::collections::VecDeque;
use std::rc::Rc;

use longhaul_connection::{
    Begun, GroupPart, IncomingPipe, PipeStep, SinkMemory, Unplaceable, buffers,
};
use longhaul_objects::hash::group_chaining_value;
use longhaul_objects::limits::GROUP_SIZE;
use longhaul_units::{Bytes, Duration, Instant};
use longhaul_wire::{Protect, SinkMessage};

use crate::draw::Draw;
use crate::environment::Env;
use crate::feed::contents;
use crate::scenario::{End, Scenario};
use crate::staging::{Half, Staged, Staging};

#[derive(Debug)]
pub(crate) struct DrainDriver {
    staging: Rc<Staging>,
    /// Most bytes that were staged.
    pub peak: u64,
    memory: SinkMemory,
    protect: Protect,
    /// Time from which the reader of the output is there.
    joins: Option<Instant>,
    /// Step of its thread, and its end.
    step: Option<(Instant, PipeStep<Staged>)>,
    /// Pieces that were passed on, and when their memory is given back.
    passed: VecDeque<(Instant, Staged)>,
    /// Those whose memory was.
    freed: u64,
    /// Bytes of the pipe, and those that were passed on.
    total: u64,
    out: u64,
    latency: Duration,
    /// Pieces that it asked for again.
    pub damaged: u64,
    /// Why the pipe cannot go on.
    pub failed: Option<String>,
}

impl DrainDriver {
    pub fn new(scenario: &Scenario, now: Instant, draw: &mut Draw) -> Self {
        let memory = SinkMemory { promised: scenario.capacity, spare: scenario.spare };
        let joins = match scenario.sink() {
            End::Client => None,
            // The other client comes when it comes.
            End::Server => Some(now + draw.micros(1, 2_000_000)),
        };
        Self {
            staging: Staging::new(memory.buffers()),
            peak: 0,
            memory,
            protect: scenario.protect,
            joins,
            step: None,
            passed: VecDeque::new(),
            freed: 0,
            total: scenario.bytes,
            out: 0,
            latency: scenario.disk_latency,
            damaged: 0,
            failed: None,
        }
    }

    /// Does what can be done now; returns whether it was anything.
    pub fn pump(
        &mut self,
        now: Instant,
        pipe: &mut IncomingPipe<Staged>,
        env: &mut Env<'_>,
    ) -> bool {
        let mut progress = false;
        if self.joins.take_if(|at| *at <= now).is_some() {
            pipe.accept();
            progress = true;
        }
        while self.passed.pop_front_if(|(at, _)| *at <= now).is_some() {
            self.freed += 1;
            progress = true;
        }
        while self.failed.is_none() {
            pipe.set_given_back(self.staging.given_back());
            if self.step.is_none() {
                match pipe.poll_step() {
                    Ok(Some(step)) => self.step = Some((now + self.taken(env.draw), step)),
                    Ok(None) => break,
                    Err(error) => self.failed = Some(error.to_string()),
                }
            }
            let Some((_, step)) = self.step.take_if(|(at, _)| *at <= now) else { break };
            progress = true;
            self.perform(now, step, pipe, env);
        }
        let capacity = buffers(self.memory.promised) as u64;
        let (promised, memory) = (pipe.credit() / GROUP_SIZE, self.freed + capacity);
        env.checks.require(promised <= memory, || {
            format!("{promised} pieces are promised, and there was memory for {memory}")
        });
        progress
    }

    fn perform(
        &mut self,
        now: Instant,
        step: PipeStep<Staged>,
        pipe: &mut IncomingPipe<Staged>,
        env: &mut Env<'_>,
    ) {
        match step {
            PipeStep::Hash(piece, buffer) => {
                let value = group_chaining_value(&buffer[..piece.len as usize], 0, true);
                if let Err(error) = pipe.handle_hashed(piece, value, buffer) {
                    self.failed = Some(error.to_string());
                }
            }
            PipeStep::Pass(piece, _, buffer) => {
                let expected = contents(self.out, piece.len);
                env.checks.require(buffer[..piece.len as usize] == expected, || {
                    format!("{piece:?} is passed on and is not what was sent")
                });
                self.out += u64::from(piece.len);
                // The reader may need it for a while.
                let last = self.passed.back().map_or(now, |(at, _)| *at);
                self.passed.push_back((last.max(now + self.taken(env.draw)), buffer));
            }
            PipeStep::Waste(buffer) => drop(buffer),
            PipeStep::End => {
                env.checks.require(self.out == self.total, || {
                    format!("the pipe ends after {} of {} bytes", self.out, self.total)
                });
                pipe.finish(longhaul_wire::HostAccount::default());
            }
        }
    }

    fn taken(&self, draw: &mut Draw) -> Duration {
        Duration::from_nanos(draw.below(self.latency.as_nanos() as u64 + 1))
    }

    /// Memory for a piece of which a lane has the first bytes.
    pub fn begin(
        &mut self,
        part: &GroupPart,
        half: &mut Half,
    ) -> Result<Begun<Staged>, Unplaceable> {
        let staging = &self.staging;
        let mut begun = half.begin_group(part, || staging.take())?;
        if let Begun::Memory { buffer, len } = &mut begun {
            buffer.hold(*len, false);
        }
        self.peak = self.peak.max(self.staging.bytes());
        Ok(begun)
    }

    /// Buffers that were given back, in all.
    pub fn given_back(&self) -> u64 {
        self.staging.given_back()
    }

    /// A message that goes out: what it says must be so.
    pub fn check_message(&mut self, message: &SinkMessage, env: &mut Env<'_>) {
        match message {
            SinkMessage::Repair { group, .. } => {
                self.damaged += 1;
                env.checks.require(self.protect == Protect::Clear, || {
                    format!("piece {group} does not verify, though every packet was authentic")
                });
            }
            SinkMessage::Result(summary) => {
                env.checks.require(summary.bytes.get() == self.total, || {
                    format!("the result says {} of {} bytes", summary.bytes, self.total)
                });
            }
            _ => {}
        }
    }

    /// It may use so much memory from now on.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.memory.promised = self.memory.promised.max(memory);
        self.staging.grow(self.memory.buffers());
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let step = self.step.as_ref().map(|(at, _)| *at);
        let passed = self.passed.front().map(|(at, _)| *at);
        [self.joins, step, passed].into_iter().flatten().min()
    }
}

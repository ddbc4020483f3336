use longhaul_relay::Side;
use longhaul_units::{Instant, Rate};

use super::{Session, Stage, index};
use crate::pump::Link;
use crate::status::{SegmentStatus, SessionStatus};

impl Session {
    /// The state of the session; `None` before its client has asked for a target.
    pub fn status(&self, now: Instant) -> Option<SessionStatus> {
        let id = self.admission.session()?;
        let stage = match self.stage {
            Stage::Entering { .. } | Stage::Dialling(_) | Stage::Answering { .. } => "setting up",
            Stage::Relaying => "relaying",
            Stage::Refusing(_) => "refusing",
        };
        let near = self.segment(Side::Near, &self.near);
        let far = self.far.as_ref().and_then(|far| self.segment(Side::Far, far));
        Some(SessionStatus {
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            client: self.summary.client.clone(),
            target: self.summary.target.clone(),
            stage: stage.into(),
            seconds: now.since(self.began).as_secs_f64(),
            bytes_there: self.summary.bytes[0],
            bytes_back: self.summary.bytes[1],
            segments: near.into_iter().chain(far).collect(),
            bottleneck: self.bottleneck().map(|side| name(side).into()),
        })
    }

    /// The segment that holds up the direction in which more goes: bytes wait at this gateway for
    /// the one that they leave by, or for none, and then too few come by the other.
    fn bottleneck(&self) -> Option<Side> {
        let [there, back] = self.summary.bytes;
        let sink = if there >= back { Side::Far } else { Side::Near };
        let moves = self.shares.member(sink)?.sends() && (there > 0 || back > 0);
        let waits = self.shares.waits(sink) >= 500;
        (moves && matches!(self.stage, Stage::Relaying)).then_some(if waits {
            sink
        } else {
            sink.other()
        })
    }

    fn segment(&self, side: Side, link: &Link) -> Option<SegmentStatus> {
        let (member, address) = self.shares.membership(side)?;
        let peer = match side {
            Side::Near => self.client,
            Side::Far => self.summary.next?,
        };
        // One that broke has its end before it.
        let seen = link.segment.statistics().ok()?;
        Some(SegmentStatus {
            side: name(side).into(),
            peer,
            transport: link.segment.transport().into(),
            class: member.live.why(address).map(ToString::to_string),
            congestion_control: link.segment.congestion_control().unwrap_or_default(),
            rtt_us: u64::try_from(seen.rtt.as_micros()).unwrap_or(u64::MAX),
            rate_bps: member.goodput().as_bps(),
            limit_bps: member.rate().map(Rate::as_bps),
            resent_bytes: seen.bytes_resent,
            memory: seen.memory + self.pumps[index(side.other())].waiting() as u64,
            receive_buffer: seen.buffers[0],
            send_buffer: seen.buffers[1],
            waited_for: f64::from(self.shares.waits(side)) / 1000.0,
        })
    }
}

const fn name(side: Side) -> &'static str {
    match side {
        Side::Near => "client",
        Side::Far => "onward",
    }
}

//! Outcomes that a report settles, packet by packet.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use longhaul_rate_control::Feedback as Sample;
use longhaul_units::{Cause, Losses, PacketNumber, StreamId};

use super::moves::{Asks, on_ask};
use super::peer::Peer;
use super::streams::Stream;
use crate::control::SentFrame;
use crate::event::Event;
use crate::ledger::{Content, Entry, Outcome, Why};
use crate::mtu::MtuSearch;
use crate::outbox::Outbox;
use crate::path::Path;
use crate::repair::Policy;
use crate::stats::LaneStats;

/// Outcome of a report for packets.
#[derive(Default)]
pub(super) struct Settled {
    /// Of those of the present path.
    pub(super) sample: Sample,
    /// Those of them that arrived and had been sent with ECT(0).
    pub(super) ect: u64,
    /// One that arrived had left late.
    pub(super) late: bool,
    pub(super) earlier: Vec<Elsewhere>,
    pub(super) base: OfBase,
}

/// Fate of packets of the present path, probes left out.
#[derive(Clone, Copy, Default)]
pub(super) struct OfBase {
    /// One of the base size, or above, arrived.
    pub(super) arrived: bool,
    /// One was lost that is longer than what passes nearly everywhere.
    pub(super) lost: bool,
}

/// Fate of packets that had gone over another path, `number` among them.
pub(super) struct Elsewhere {
    pub(super) number: u64,
    pub(super) arrived: u64,
    pub(super) lost: u64,
}

/// The parts of a lane that learn of outcomes, and what comes of them.
pub(super) struct Settling<'l> {
    pub(super) path: &'l mut Path,
    pub(super) outbox: &'l mut Outbox,
    pub(super) repair: &'l mut Box<dyn Policy>,
    pub(super) streams: &'l mut BTreeMap<StreamId, Stream>,
    pub(super) asks: &'l mut Asks,
    pub(super) mtu: &'l mut MtuSearch,
    pub(super) events: &'l mut VecDeque<Event>,
    pub(super) peer: &'l mut Peer,
    pub(super) stats: &'l mut LaneStats,
    /// The first packet of the present path.
    pub(super) since: u64,
    /// Bytes of an IP packet of the base size, and of one longer than passes nearly everywhere.
    pub(super) base: u64,
    pub(super) long: u64,
    /// Each loss is an event.
    pub(super) reports_losses: bool,
    pub(super) settled: Settled,
}

impl Settling<'_> {
    pub(super) fn on_outcome(&mut self, mut outcome: Outcome<'_>) {
        let is_present = outcome.entry.first >= self.since;
        if matches!(outcome.entry.content, Content::Probe(_)) {
            if is_present {
                on_probe(self.mtu, &outcome);
            }
            return;
        }
        match is_present {
            true => self.on_present(&mut outcome),
            false => self.on_earlier(&outcome),
        }
        match &outcome.entry.content {
            Content::Object { .. } => {
                for extent in outcome.entry.extents_of(outcome.acked | outcome.spurious) {
                    if let Some(whole) = self.outbox.on_acked(extent) {
                        self.repair.on_done(whole);
                        self.events.push_back(Event::Delivered(whole));
                    }
                }
                for extent in outcome.entry.extents_of(outcome.lost) {
                    self.outbox.on_lost(extent);
                }
            }
            Content::Control(frames) => {
                let arrived = outcome.acked | outcome.spurious != 0;
                for frame in frames {
                    on_control(self.streams, self.asks, self.events, frame, arrived);
                }
            }
            Content::Probe(_) => {}
        }
    }

    /// Of packets that went over the present path.
    fn on_present(&mut self, outcome: &mut Outcome<'_>) {
        if outcome.missing != 0 {
            // While its neighbours are remembered.
            let causes = judge(self.path, self.peer, outcome.entry, outcome.missing);
            outcome.entry.why = Some(Why::new(&causes));
        }
        let entry = &*outcome.entry;
        let (settled, lost) = (entry.bytes_of(outcome.acked), entry.bytes_of(outcome.lost));
        self.path.on_settled(settled + lost);
        let Settled { sample, ect, late, base, .. } = &mut self.settled;
        base.arrived |= entry.has_of(outcome.acked | outcome.spurious, self.base);
        base.lost |= entry.has_of(outcome.lost | outcome.missing, self.long);
        if outcome.lost != 0 && u64::from(entry.wire_bytes) < self.base {
            self.mtu.on_smaller_lost();
        }
        if entry.ect {
            *ect += u64::from((outcome.acked | outcome.spurious).count_ones());
        }
        *late |= entry.late && outcome.acked & 1 != 0;
        sample.acked_bytes += settled;
        sample.acked_packets += u64::from(outcome.acked.count_ones());
        sample.lost_bytes += lost;
        if outcome.lost != 0 {
            let causes = match entry.why {
                Some(why) => why.of(outcome.lost.count_ones().into()),
                None => judge(self.path, self.peer, entry, outcome.lost),
            };
            sample.lost = sample.lost.plus(&causes);
            self.stats.lost += causes.total();
            if self.reports_losses {
                self.events.extend(loss_events(outcome, causes));
            }
        }
        sample.spurious_packets += u64::from(outcome.spurious.count_ones());
    }

    /// Of packets that went over a path that was left, which nothing estimates.
    fn on_earlier(&mut self, outcome: &Outcome<'_>) {
        let causes = attribute(self.peer, outcome.entry, outcome.lost);
        self.stats.lost += causes.total();
        self.path.book(&causes);
        self.settled.earlier.push(Elsewhere {
            number: outcome.entry.first,
            arrived: (outcome.acked | outcome.spurious).count_ones().into(),
            lost: outcome.lost.count_ones().into(),
        });
    }
}

/// The receiver's own causes for the packets of `entry` that were `lost`.
fn attribute(peer: &mut Peer, entry: &Entry, lost: u64) -> Losses {
    peer.attribute(&(entry.first..entry.end()), u64::from(lost.count_ones()))
}

/// Their causes of loss: the receiver reports them, or the path shows them.
fn judge(path: &mut Path, peer: &mut Peer, entry: &Entry, lost: u64) -> Losses {
    let mut causes = attribute(peer, entry, lost);
    let open = core::mem::take(&mut causes.unknown);
    if open > 0 {
        *causes.count_mut(path.cause(entry.sent_at, open)) += open;
    }
    causes
}

/// One event for each packet that was lost by `outcome`.
fn loss_events(outcome: &Outcome<'_>, mut causes: Losses) -> impl Iterator<Item = Event> {
    let (first, mut bits) = (outcome.entry.first, outcome.lost);
    core::iter::from_fn(move || {
        let cause = Cause::ALL.into_iter().find(|cause| *causes.count_mut(*cause) > 0)?;
        *causes.count_mut(cause) -= 1;
        let number = first + u64::from(bits.trailing_zeros());
        bits &= bits - 1;
        Some(Event::Lost { number: PacketNumber::new(number), cause })
    })
}

fn on_probe(mtu: &mut MtuSearch, outcome: &Outcome<'_>) {
    let Content::Probe(size) = outcome.entry.content else { return };
    if outcome.acked | outcome.spurious != 0 {
        mtu.on_confirmed(size);
    } else if outcome.lost != 0 {
        mtu.on_probe_lost(size, outcome.entry.first);
    }
}

pub(super) fn on_control(
    streams: &mut BTreeMap<StreamId, Stream>,
    asks: &mut Asks,
    events: &mut VecDeque<Event>,
    frame: &SentFrame,
    arrived: bool,
) {
    let id = match frame {
        SentFrame::Stream { stream, .. }
        | SentFrame::StreamLimit { stream }
        | SentFrame::StreamReset { stream } => *stream,
        SentFrame::Move { order, lane } => return on_ask(asks, *order, *lane, arrived),
        SentFrame::Ping | SentFrame::Challenge | SentFrame::Repair => return,
    };
    let Some(stream) = streams.get_mut(&id) else { return };
    match frame {
        SentFrame::Stream { piece, .. } if stream.reset.is_none() => {
            if arrived {
                stream.send.on_acked(piece);
                if core::mem::take(&mut stream.writer_waits) {
                    events.push_back(Event::StreamWritable(id));
                }
            } else {
                stream.send.on_lost(piece);
            }
        }
        SentFrame::StreamLimit { .. } if !arrived => stream.limit_due = true,
        SentFrame::StreamReset { .. } if !arrived => {
            if let Some(reset) = &mut stream.reset {
                reset.due = true;
            }
        }
        _ => {}
    }
}

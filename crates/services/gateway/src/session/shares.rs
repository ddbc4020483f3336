//! A session's parts of what all share: memory, and rates of segments.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use longhaul_relay::Side;
use longhaul_units::{Instant, Rate};

use super::asked::Asked;
use super::{FAR, NEAR, Session, index};
use crate::pump::{PIPE, Pump};
use crate::segments::Member;
use crate::shared::{Admission, Policy};
use crate::transport::SegmentSettings;

/// A session's parts of memory and rates.
#[derive(Debug)]
pub(super) struct Shares {
    policy: Arc<Policy>,
    /// By side: the segment's class, and the address that made it so.
    members: [Option<(Member, IpAddr)>; 2],
    /// Bytes of memory, where there are not enough for all.
    memory: Option<u64>,
    /// Settings that the client asked for, of the far segment.
    asked: Asked,
    /// Part of late bytes that waited for a side, in parts of [`ALWAYS`].
    waits: [u32; 2],
}

impl Shares {
    pub fn new(admission: &Admission) -> Self {
        let policy = admission.shared().policy();
        Self { policy, members: [None, None], memory: None, asked: Asked::default(), waits: [0; 2] }
    }

    /// A segment to `address` stands, or is being dialled: these are its settings.
    pub fn join(&mut self, side: Side, address: IpAddr, now: Instant) -> SegmentSettings {
        let live = self.policy.segments.of(address).clone();
        let nothing = Asked::default();
        let asked = if side == Side::Far { &self.asked } else { &nothing };
        let settings = asked.of(live.settings());
        self.members[index(side)] = Some((Member::new(live, asked.rate(), now), address));
        settings
    }

    /// The client asks this of the far segment, which is about to join.
    pub fn ask(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// The class of a side's segment.
    pub fn member(&self, side: Side) -> Option<&Member> {
        self.members[index(side)].as_ref().map(|(member, _)| member)
    }

    /// The class of a side's segment, and the address that made it so.
    pub fn membership(&self, side: Side) -> Option<(&Member, IpAddr)> {
        self.members[index(side)].as_ref().map(|(member, address)| (member, *address))
    }

    /// Parts of a thousand of the time of late in which bytes waited for a side.
    pub fn waits(&self, side: Side) -> u32 {
        self.waits[index(side)] * 1000 / ALWAYS
    }
}

impl Session {
    /// Takes what is this session's part by now.
    pub(super) fn look_at_shares(&mut self, now: Instant) -> Result<(), (Side, io::Error)> {
        let policy = self.admission.shared().policy();
        let is_new = !Arc::ptr_eq(&policy, &self.shares.policy);
        if is_new {
            self.shares.policy = policy;
        }
        for side in Side::BOTH {
            let link = match side {
                Side::Near => Some(&mut self.near),
                Side::Far => self.far.as_mut(),
            };
            let Some(link) = link else { continue };
            let Some((member, address)) = &mut self.shares.members[index(side)] else { continue };
            let address = *address;
            // Payload of one side goes to the other.
            let sent = self.pumps[index(side.other())].taken();
            let rate = member.look(sent, now);
            let changed = match rate {
                _ if is_new => {
                    let was_paced = member.rate().is_some();
                    let settings = self.shares.join(side, address, now);
                    let changed = link.segment.change(&settings);
                    match was_paced && settings.rate.is_none() {
                        true => changed.and_then(|()| link.segment.pace(Rate::MAX)),
                        false => changed,
                    }
                }
                Some(rate) => link.segment.pace(rate),
                None => Ok(()),
            };
            changed.map_err(|error| (side, error))?;
            let waits = &mut self.shares.waits[index(side)];
            let is_waiting = self.pumps[index(side.other())].is_waiting();
            *waits = *waits - *waits / MEMORY + if is_waiting { ALWAYS / MEMORY } else { 0 };
        }
        self.limit_memory()
    }

    /// The onward segment stands: its buffers can follow from the round trip that it has measured.
    pub(super) fn far_stands(&mut self) -> io::Result<()> {
        let (Some(far), Some(member)) = (&mut self.far, self.shares.member(Side::Far)) else {
            return Ok(());
        };
        let seen = far.segment.statistics()?;
        if !seen.rtt.is_zero() {
            member.live.note_rtt(seen.rtt);
            let settings = self.shares.asked.of(member.live.settings());
            if settings.rate.is_some() {
                far.segment.change(&settings)?;
            }
        }
        self.shares.memory = None;
        self.limit_memory().map_err(|(_, error)| error)
    }

    /// Holds no more memory than is this session's part.
    pub(super) fn limit_memory(&mut self) -> Result<(), (Side, io::Error)> {
        let share = self.admission.shared().share();
        let is_near = |old: u64, new: u64| new >= old - old / 8 && new <= old + old / 8;
        match (self.shares.memory, share) {
            (None, None) => return Ok(()),
            (Some(old), Some(new)) if is_near(old, new) => return Ok(()),
            _ => {}
        }
        self.shares.memory = share;
        // It may shrink by an eighth before the next change. An eighth for the bytes in each pump,
        // and three sixteenths for each buffer.
        let share = share.map(|share| share - share / 8);
        let pump = share.map_or(PIPE, |share| usize::try_from(share / 8).unwrap_or(PIPE));
        self.pumps.iter_mut().for_each(|pumped: &mut Pump| pumped.limit(pump));
        let buffer = share.map(|share| share / 16 * 3);
        self.near.segment.limit_memory(buffer).map_err(|error| (Side::Near, error))?;
        match &mut self.far {
            Some(far) => far.segment.limit_memory(buffer).map_err(|error| (Side::Far, error)),
            None => Ok(()),
        }
    }
}

const _: () = assert!(NEAR == 0 && FAR == 1);
/// Looks after which a wait is forgotten, about.
const MEMORY: u32 = 32;
const ALWAYS: u32 = 1 << 20;

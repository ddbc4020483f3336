//! A session's parts of what all share: memory, and rates of segments.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use longhaul_relay::Side;
use longhaul_units::{Instant, Rate};

use super::asked::Asked;
use super::{FAR, NEAR, Session, index};
use crate::memory::Loan;
use crate::policy::Policy;
use crate::pump::{PIPE, Pump};
use crate::segments::Member;
use crate::shared::{Admission, SESSION_MEMORY};
use crate::transport::SegmentSettings;

/// A session's parts of memory and rates.
#[derive(Debug)]
pub(super) struct Shares {
    policy: Arc<Policy>,
    /// By side: the segment's class, and the address that made it so.
    members: [Option<(Member, IpAddr)>; 2],
    loan: Loan,
    /// The limit of memory in force; `None`: nobody has set one yet.
    memory: Option<Limit>,
    /// Settings that the client asked for, of the far segment.
    asked: Asked,
    /// Part of late bytes that waited for a side, in parts of [`ALWAYS`].
    waits: [u32; 2],
}

impl Shares {
    pub fn new(admission: &Admission) -> Self {
        let policy = admission.shared().policy();
        let loan = Loan::new(&admission.shared().lent);
        let asked = Asked::default();
        Self { policy, members: [None, None], loan, memory: None, asked, waits: [0; 2] }
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

    /// There is another segment, which has no limit yet.
    pub fn forget_limit(&mut self) {
        self.memory = None;
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

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// As much as the transports take.
    No,
    /// Bytes beyond the least.
    Beyond(u64),
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
            let pump = &self.pumps[index(side.other())];
            let sent = pump.taken().saturating_sub(pump.waiting() as u64);
            let delivered = || link.segment.statistics().ok().map(|seen| seen.bytes_sent);
            let rate = member.look(sent, delivered, now);
            let changed = match rate {
                _ if is_new => {
                    let was_paced = member.rate().is_some();
                    let settings = self.shares.join(side, address, now);
                    let rate = self.shares.member(side).and_then(Member::rate);
                    let rate = rate.or(was_paced.then_some(Rate::MAX));
                    let changed = link.segment.change(&settings);
                    changed.and_then(|()| rate.map_or(Ok(()), |rate| link.segment.pace(rate)))
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
        self.shares.forget_limit();
        self.limit_memory().map_err(|(_, error)| error)
    }

    /// Sends no faster than the part with which the segment of a side begins.
    pub(super) fn pace(&mut self, side: Side) -> io::Result<()> {
        let rate = self.shares.member(side).and_then(Member::rate);
        match rate.zip(self.link(side)) {
            Some((rate, link)) => link.segment.pace(rate),
            None => Ok(()),
        }
    }

    /// Holds no more memory than is this session's part.
    pub(super) fn limit_memory(&mut self) -> Result<(), (Side, io::Error)> {
        if !self.has_entered() {
            return Ok(());
        }
        let segments = [Some(&self.near), self.far.as_ref()].into_iter().flatten();
        let most = segments.map(|link| link.segment.memory_max()).sum::<u64>() + 2 * PIPE as u64;
        let wanted = most.saturating_sub(SESSION_MEMORY);
        let part = self.shares.loan.ask(self.admission.shared().memory_to_lend(), wanted);
        let limit = if part == wanted { Limit::No } else { Limit::Beyond(part) };
        let is_near = match (self.shares.memory, limit) {
            (Some(Limit::Beyond(old)), Limit::Beyond(new)) => {
                new.abs_diff(old) <= (old + SESSION_MEMORY) / 8
            }
            (old, new) => old == Some(new),
        };
        let limit = match self.shares.memory {
            Some(old) if is_near => old,
            _ => {
                self.set_limit(limit)?;
                limit
            }
        };
        let part = match limit {
            Limit::No => wanted,
            Limit::Beyond(part) => part,
        };
        if part < self.shares.loan.bytes() {
            // A smaller buffer keeps what is in it.
            let held = self.held().unwrap_or(u64::MAX).saturating_sub(SESSION_MEMORY);
            self.shares.loan.give_back(part.max(held));
        }
        Ok(())
    }

    fn set_limit(&mut self, limit: Limit) -> Result<(), (Side, io::Error)> {
        self.shares.memory = Some(limit);
        let share = match limit {
            Limit::No => None,
            // An eighth is for the packet with which the kernel oversteps a limit.
            Limit::Beyond(part) => Some((SESSION_MEMORY + part) / 8 * 7),
        };
        // An eighth for the bytes in each pump, and three sixteenths for each buffer.
        let pump = share.map_or(PIPE, |share| usize::try_from(share / 8).unwrap_or(PIPE));
        self.pumps.iter_mut().for_each(|pumped: &mut Pump| pumped.limit(pump));
        let buffer = share.map(|share| share / 16 * 3);
        self.near.segment.limit_memory(buffer).map_err(|error| (Side::Near, error))?;
        match &mut self.far {
            Some(far) => far.segment.limit_memory(buffer).map_err(|error| (Side::Far, error)),
            None => Ok(()),
        }
    }

    /// Bytes that it holds; `None` where a segment has no account any more.
    fn held(&self) -> Option<u64> {
        let mut held: u64 = self.pumps.iter().map(|pump| pump.waiting() as u64).sum();
        for link in [Some(&self.near), self.far.as_ref()].into_iter().flatten() {
            held += link.segment.statistics().ok()?.memory;
        }
        Some(held)
    }
}

const _: () = assert!(NEAR == 0 && FAR == 1);
/// Looks after which a wait is forgotten, about.
const MEMORY: u32 = 32;
const ALWAYS: u32 = 1 << 20;

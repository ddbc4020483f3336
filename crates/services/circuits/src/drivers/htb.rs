use std::collections::BTreeMap;
use std::io;

use longhaul_sys::host;
use longhaul_sys::traffic_control::{Change, Class, Egress, burst};
use longhaul_units::Rate;

use super::lease::Fence;
use super::{Driver, DriverError, Lease, Switch};
use crate::ledger::Id;

/// A real switch for the lab: HTB classes on an interface of this machine.
///
/// Each booking has a class of its own, 1:10 and up, whose rate is its ceiling too. Packets to the
/// booking's destination are sorted into it; others go there by `SO_PRIORITY`. What belongs to no
/// booking shares class 1:1, which has what class 1:2, the link, has left. What is due at one instant
/// is one call of the kernel.
#[derive(Debug)]
pub struct Htb {
    interface: String,
    capacity_bps: u64,
    egress: Egress,
    classes: BTreeMap<Id, u16>,
    fence: Fence,
}

impl Htb {
    /// A driver for `interface`, which carries `capacity_bps`.
    ///
    /// # Errors
    /// The kernel does not talk about interfaces.
    pub fn new(interface: &str, capacity_bps: u64) -> Result<Self, DriverError> {
        let name = || interface.to_owned();
        let egress = Egress::of(interface)
            .map_err(|error| DriverError::NoNetlink { interface: name(), error })?;
        let (interface, classes, fence) = (name(), BTreeMap::new(), Fence::default());
        Ok(Self { interface, capacity_bps, egress, classes, fence })
    }

    /// Lists the changes for a switch of rate. The booking has its class from here on.
    fn plan(&mut self, switch: &Switch) -> Result<Vec<Change>, DriverError> {
        let known = self.classes.get(&switch.booking).copied();
        let rate = Rate::from_bps(switch.rate_bps);
        let sort = |minor| switch.destination.map(|to| Change::AddFilter { class: minor, to });
        Ok(match known {
            None if rate == Rate::ZERO => Vec::new(),
            None => {
                let (interface, booking) = (&self.interface, switch.booking);
                let minor = self.spare().ok_or_else(|| DriverError::NoClass {
                    interface: interface.clone(),
                    booking,
                })?;
                self.classes.insert(switch.booking, minor);
                let add = Change::AddClass(class(minor, LINK, rate));
                [add].into_iter().chain(sort(minor)).collect()
            }
            Some(minor) if rate == Rate::ZERO => {
                let sorted = sort(minor).map(|_| Change::DeleteFilter { class: minor });
                sorted.into_iter().chain([Change::DeleteClass { class: minor }]).collect()
            }
            Some(minor) => vec![Change::ChangeClass(class(minor, LINK, rate))],
        })
    }

    /// Takes note of what became of a plan.
    fn settle(
        &mut self,
        booking: Id,
        plan: Vec<Change>,
        verdicts: &mut impl Iterator<Item = io::Result<()>>,
    ) -> Result<(), DriverError> {
        let mut fault = None;
        for (change, verdict) in plan.into_iter().zip(verdicts) {
            let failed = verdict.as_ref().err().map(io::Error::kind);
            if let (Change::AddClass(_), Some(_))
            | (Change::DeleteClass { .. }, None | Some(io::ErrorKind::NotFound)) =
                (change, failed)
            {
                self.classes.remove(&booking);
            }
            fault = fault.or(verdict.err());
        }
        fault.map_or(Ok(()), |error| Err(self.refused(error)))
    }

    /// A class that no booking has.
    fn spare(&self) -> Option<u16> {
        let used = |minor: &u16| self.classes.values().any(|class| class == minor);
        (FIRST..=LAST).find(|minor| !used(minor))
    }

    fn refused(&self, error: io::Error) -> DriverError {
        DriverError::Kernel { interface: self.interface.clone(), error }
    }
}

impl Driver for Htb {
    /// A rate that comes late has been another booking's, so its thread runs before others.
    fn begin(&mut self) -> Result<(), DriverError> {
        host::run_first().map_err(DriverError::NotFirst)
    }

    fn reset(&mut self, lease: &Lease) -> Result<(), DriverError> {
        self.fence.begin(lease)?;
        self.classes.clear();
        let ceiling = Rate::from_bps(self.capacity_bps);
        let rate = ceiling.scale(1, 100).max(LEAST);
        let rest = Class { rate, priority: 7, ..class(REST, LINK, ceiling) };
        let changes = [
            Change::Clear,
            Change::AddHtb { default: REST },
            Change::AddClass(class(LINK, 0, ceiling)),
            Change::AddClass(rest),
        ];
        let verdicts = changes.iter().zip(self.egress.apply(&changes));
        // That there was no such qdisc is no fault.
        let done = verdicts.map(|(change, verdict)| match verdict {
            Err(error) if error.kind() == io::ErrorKind::NotFound && *change == Change::Clear => {
                Ok(())
            }
            verdict => verdict,
        });
        done.collect::<io::Result<()>>().map_err(|error| self.refused(error))
    }

    fn set(
        &mut self,
        switches: &[Switch],
        report: &mut dyn FnMut(&Switch, Result<(), DriverError>),
    ) {
        if let Err(why) = self.fence.check() {
            return switches.iter().for_each(|switch| report(switch, Err(why.clone().into())));
        }
        let plans: Vec<_> = switches.iter().map(|switch| self.plan(switch)).collect();
        let changes: Vec<_> = plans.iter().flatten().flatten().copied().collect();
        let mut verdicts = self.egress.apply(&changes).into_iter();
        for (switch, plan) in switches.iter().zip(plans) {
            let settled = plan.and_then(|plan| self.settle(switch.booking, plan, &mut verdicts));
            report(switch, settled);
        }
    }
}

/// A class with this rate and no more.
fn class(number: u16, parent: u16, rate: Rate) -> Class {
    Class { number, parent, rate, ceiling: rate, burst: burst(rate, PACKET), priority: 0 }
}

/// The class of what belongs to no booking, and that of all.
const REST: u16 = 1;
const LINK: u16 = 2;
/// Least rate of the class for the rest.
const LEAST: Rate = Rate::from_kbps(8);
/// First and last class of a booking.
const FIRST: u16 = 0x10;
const LAST: u16 = 0xfff0;
/// Usual size of a packet, in bytes.
const PACKET: u32 = 1500;

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::capacity::{Calendar, Capacity, FOREVER};
use crate::path::PathCapacity;
use crate::place::{self, Fitted, Limits};
use crate::profile::{Profile, Way};
use crate::request::{LinkId, Path, PlanError, Policy, Request};
use crate::vector::{Allocation, Runs, TrcVector};

/// Where and when a request would be carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The path taken.
    pub path: Path,
    /// Capacity booked on each of its links.
    pub vector: TrcVector,
}

impl Plan {
    /// One past the last booked tick.
    pub fn finish(&self) -> u64 {
        self.vector.finish().unwrap_or(0)
    }

    /// First booked tick.
    pub fn start(&self) -> u64 {
        self.vector.start().unwrap_or(0)
    }
}

/// The free capacity of all links. Cloning it takes a snapshot of each in O(1), on which plans
/// and explanations are made without holding anybody up.
#[derive(Clone, Debug)]
pub struct LinkSet {
    profiles: Vec<Profile>,
    guard: u64,
    horizon: u64,
}

impl LinkSet {
    /// No links. The first `guard` ticks of each booked stretch of one rate carry nothing.
    pub const fn new(guard: u64) -> Self {
        Self { profiles: Vec::new(), guard, horizon: FOREVER - 1 }
    }

    /// Adds a link of `capacity` channels, free from `floor` on.
    pub fn add(&mut self, capacity: u32, floor: u64) -> LinkId {
        self.profiles.push(Profile::new(capacity, floor));
        LinkId(self.profiles.len() as u32 - 1)
    }

    /// The free capacity of a link.
    pub fn profile(&self, link: LinkId) -> Option<&Profile> {
        self.profiles.get(link.0 as usize)
    }

    /// The links, in order.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Idle ticks at the start of each booked stretch of one rate.
    pub const fn guard(&self) -> u64 {
        self.guard
    }

    /// One past the last tick that may be booked.
    pub const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Moves the horizon.
    pub fn set_horizon(&mut self, tick: u64) {
        self.horizon = tick.min(FOREVER - 1);
    }

    /// Finds the best of the candidate paths for `request`: by the earliest finish (for
    /// [`Policy::Latest`] the latest start, for [`Policy::LeastPeak`] the lowest peak, for a hold
    /// the earliest start), the first of equals. Few candidates are enough (Rajah, Ranka, Xia
    /// 2008).
    pub fn plan(&self, request: &Request, paths: &[Path]) -> Result<Plan, PlanError> {
        self.check(request, paths)?;
        let mut best: Option<Plan> = None;
        for path in paths {
            let Ok(ranges) = self.place(request, path) else { continue };
            let vector = TrcVector::with(ranges, self.guard);
            let plan = Plan { path: path.clone(), vector };
            if best.as_ref().is_none_or(|best| better(request, &plan, best) == Ordering::Less) {
                best = Some(plan);
            }
        }
        best.ok_or(PlanError::NoRoom)
    }

    /// True if the request is sound and the paths exist.
    pub(crate) fn check(&self, request: &Request, paths: &[Path]) -> Result<(), PlanError> {
        request.check()?;
        if paths.is_empty() {
            return Err(PlanError::NoPath);
        }
        for link in paths.iter().flat_map(|path| path.links()) {
            let profile = self.profile(*link).ok_or(PlanError::UnknownLink(*link))?;
            if request.earliest() < profile.floor() {
                return Err(PlanError::Past(profile.floor()));
            }
        }
        if request.earliest() >= self.horizon {
            return Err(PlanError::BeyondHorizon(self.horizon));
        }
        Ok(())
    }

    /// Places a checked request on one path.
    pub(crate) fn place(&self, request: &Request, path: &Path) -> Result<Runs, Fitted> {
        let limits = Limits { guard: self.guard, horizon: self.horizon };
        match path.links() {
            [link] => place::place(&self.profiles[link.0 as usize], request, limits),
            _ => place::place(&self.path(path), request, limits),
        }
    }

    /// The free capacity of a path whose links exist.
    pub fn path(&self, path: &Path) -> PathCapacity<'_> {
        PathCapacity::new(path.links().iter().map(|l| &self.profiles[l.0 as usize]).collect())
    }

    /// The first link and range of a plan that is no longer free.
    pub(crate) fn conflict(&self, plan: &Plan) -> Option<(LinkId, Allocation)> {
        plan.path.links().iter().find_map(|link| {
            let profile = self.profile(*link)?;
            let taken = |r: &Allocation| profile.min_free(r.start, r.end) < r.rate;
            plan.vector.merged().find(taken).map(|range| (*link, range))
        })
    }

    /// Capacity that a plan would leave if it were booked; `None` if not all of it is free.
    pub fn beside(&self, plan: &Plan) -> Option<Self> {
        let known = plan.path.links().iter().all(|link| self.profile(*link).is_some());
        if !known || self.conflict(plan).is_some() {
            return None;
        }
        let mut left = self.clone();
        left.take(&plan.path, plan.vector.runs().merged());
        Some(left)
    }

    /// Capacity that would be free without a vector that is booked on every link of a path; `None` if it is
    /// not. What of it has passed is ignored.
    pub fn without(&self, path: &Path, vector: &TrcVector) -> Option<Self> {
        let is_booked = |link: &LinkId| {
            self.profile(*link).is_some_and(|own| vector.merged().all(|r| own.is_booked(&r)))
        };
        if !path.links().iter().all(is_booked) {
            return None;
        }
        let mut left = self.clone();
        left.give(path, vector.runs().merged());
        Some(left)
    }

    /// Takes ranges that are known to be free on every link of the path.
    pub(crate) fn take(&mut self, path: &Path, ranges: impl Iterator<Item = Allocation> + Clone) {
        self.change(Way::Take, path, ranges);
    }

    /// Gives ranges back that are known to be booked on every link of the path. What of them has
    /// passed is ignored.
    pub(crate) fn give(&mut self, path: &Path, ranges: impl Iterator<Item = Allocation> + Clone) {
        self.change(Way::Give, path, ranges);
    }

    fn change(&mut self, way: Way, path: &Path, ranges: impl Iterator<Item = Allocation> + Clone) {
        for link in path.links() {
            self.profiles[link.0 as usize].change(way, ranges.clone());
        }
    }

    pub(crate) fn forget_before(&mut self, tick: u64) {
        for profile in &mut self.profiles {
            profile.forget_before(tick);
        }
    }
}

/// Less when `a` serves the request better than `b`.
fn better(request: &Request, a: &Plan, b: &Plan) -> Ordering {
    match request {
        Request::File(file) => match file.policy {
            Policy::Earliest | Policy::Fixed => a.finish().cmp(&b.finish()),
            Policy::Latest => b.start().cmp(&a.start()),
            Policy::LeastPeak => {
                let key = |p: &Plan| (p.vector.peak(), p.finish());
                key(a).cmp(&key(b))
            }
        },
        Request::Hold(_) => a.start().cmp(&b.start()).then(b.vector.area().cmp(&a.vector.area())),
    }
}

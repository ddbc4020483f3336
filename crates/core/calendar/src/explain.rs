use alloc::vec;
use alloc::vec::Vec;

use crate::capacity::{Capacity, Walk};
use crate::links::LinkSet;
use crate::request::{FileRequest, HoldRequest, LinkId, Path, PlanError, Policy, Request};

/// Why a request is refused or finishes later than on idle links, and what would help.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// When it would finish if nothing else were booked, without regard to its deadline.
    pub unimpeded: u64,
    /// When it would finish now, `None` if it is refused.
    pub finish: Option<u64>,
    /// The link that costs it most, `None` if no link is to blame: its own limits bind.
    pub binding: Option<Binding>,
    /// For a refused request: changes, each of which alone makes it accepted.
    pub alternatives: Vec<Alternative>,
}

/// A stretch of a link that holds a request up: all of it has the same free capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The link.
    pub link: LinkId,
    /// First tick of its worst stretch for this request.
    pub start: u64,
    /// One past its last tick.
    pub end: u64,
    /// Free capacity throughout.
    pub free: u32,
}

/// The smallest change of one kind that makes a refused request accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Alternative {
    /// A file with this deadline.
    Deadline(u64),
    /// A file of this volume (channel ticks); the largest.
    Volume(u64),
    /// A file with this Rmax; the lowest.
    MaxRate(u32),
    /// A file at a varying rate ([`Policy::Earliest`]) instead of a fixed one.
    VaryingRate,
    /// A hold that may start as late as this.
    LatestStart(u64),
    /// A hold of this many ticks; the longest.
    Duration(u64),
    /// A hold with this Rmin; the highest.
    MinRate(u32),
}

impl Alternative {
    /// The request with this change.
    pub fn apply(self, request: &Request) -> Request {
        match *request {
            Request::File(file) => Request::File(match self {
                Self::Deadline(tick) => FileRequest { deadline: Some(tick), ..file },
                Self::Volume(volume) => FileRequest { volume, ..file },
                Self::MaxRate(max_rate) => FileRequest { max_rate, ..file },
                Self::VaryingRate => FileRequest { policy: Policy::Earliest, ..file },
                _ => file,
            }),
            Request::Hold(hold) => Request::Hold(match self {
                Self::LatestStart(tick) => HoldRequest { latest_start: Some(tick), ..hold },
                Self::Duration(duration) => HoldRequest { duration, ..hold },
                Self::MinRate(min_rate) => HoldRequest { min_rate, ..hold },
                _ => hold,
            }),
        }
    }
}

impl LinkSet {
    /// Explains what [`LinkSet::plan`] says to the same request. Takes some tens of plans, so it
    /// is made on demand, best on a snapshot.
    pub fn explain(&self, request: &Request, paths: &[Path]) -> Result<Explanation, PlanError> {
        self.check(request, paths)?;
        let plan = self.plan(request, paths).ok();
        let finish = plan.as_ref().map(|plan| plan.finish());
        let alternatives = match plan {
            Some(_) => Vec::new(),
            None => self.alternatives(request, paths),
        };
        let path = match plan {
            Some(plan) => plan.path,
            None => self.roomiest(request, paths),
        };
        let unimpeded = self.unimpeded(request, &path);
        let until = finish.unwrap_or_else(|| self.last_useful(request, unimpeded, &alternatives));
        let binding = self.binding(request, &path, until);
        Ok(Explanation { unimpeded, finish, binding, alternatives })
    }

    fn unimpeded(&self, request: &Request, path: &Path) -> u64 {
        let length = match request {
            Request::File(file) => {
                let rate = file.max_rate.min(self.path(path).capacity()).max(1);
                file.volume.div_ceil(u64::from(rate))
            }
            Request::Hold(hold) => hold.duration,
        };
        request.earliest().saturating_add(length).saturating_add(self.guard())
    }

    /// The path on which most of a refused request fits.
    fn roomiest(&self, request: &Request, paths: &[Path]) -> Path {
        let room = |path: &&Path| self.place(request, path).map_or_else(|f| f.0, |_| u64::MAX);
        // The last maximum wins in `max_by_key`, so the order is turned round.
        paths.iter().rev().max_by_key(room).unwrap_or(&paths[0]).clone()
    }

    /// Ticks to search for the cause that holds a refused request up.
    fn last_useful(&self, request: &Request, unimpeded: u64, found: &[Alternative]) -> u64 {
        let limit = match request {
            Request::File(file) => file.deadline,
            Request::Hold(hold) => {
                let length = hold.duration.saturating_add(self.guard());
                hold.latest_start.map(|start| start.saturating_add(length))
            }
        };
        let later = found.iter().find_map(|a| match a {
            Alternative::Deadline(tick) => Some(*tick),
            _ => None,
        });
        limit.or(later).unwrap_or(unimpeded).min(self.horizon())
    }

    /// The link that takes most from the request in `[earliest, until)`, at its worst stretch.
    fn binding(&self, request: &Request, path: &Path, until: u64) -> Option<Binding> {
        let wanted = match request {
            Request::File(file) => file.max_rate,
            Request::Hold(hold) => hold.min_rate,
        };
        let from = request.earliest();
        let mut found = vec![Blame::default(); path.links().len()];
        let capacity = self.path(path);
        let mut walk = capacity.walk(from);
        loop {
            let s = walk.segment();
            let (start, end) = (s.start.max(from), s.end.min(until));
            if start >= end {
                break;
            }
            if s.free < wanted {
                found[walk.narrowest()].add(start, end, s.free, wanted - s.free);
            }
            if !walk.forward() {
                break;
            }
        }
        let (link, blame) = path.links().iter().zip(found).rev().max_by_key(|(_, b)| b.total)?;
        let worst = blame.worst()?;
        Some(Binding { link: *link, start: worst.start, end: worst.end, free: worst.free })
    }

    fn alternatives(&self, request: &Request, paths: &[Path]) -> Vec<Alternative> {
        let accepted = |change: &Alternative| self.plan(&change.apply(request), paths).is_ok();
        let fitted = paths
            .iter()
            .map(|path| self.place(request, path).map_or_else(|fitted| fitted.0, |_| 0))
            .max();
        let candidates = match request {
            Request::File(file) => {
                let open = FileRequest {
                    deadline: None,
                    policy: match file.policy {
                        Policy::Fixed => Policy::Fixed,
                        _ => Policy::Earliest,
                    },
                    ..*file
                };
                let later = self.plan(&Request::File(open), paths).ok();
                let rates = (file.max_rate, self.widest(paths));
                let rate = lowest(rates.0, rates.1, |r| accepted(&Alternative::MaxRate(r)));
                [
                    later.map(|plan| Alternative::Deadline(plan.finish())),
                    fitted.filter(|v| *v > 0).map(Alternative::Volume),
                    rate.filter(|_| file.policy != Policy::Fixed).map(Alternative::MaxRate),
                    (file.policy == Policy::Fixed).then_some(Alternative::VaryingRate),
                ]
            }
            Request::Hold(hold) => {
                let open = HoldRequest { latest_start: None, ..*hold };
                let later = self.plan(&Request::Hold(open), paths).ok();
                // Feasible below, not above: the lowest refused rate is one past the answer.
                let refused = |r: u32| !accepted(&Alternative::MinRate(r));
                let above = lowest(0, hold.min_rate, refused);
                [
                    later.map(|plan| Alternative::LatestStart(plan.start())),
                    fitted.filter(|d| *d > 0).map(Alternative::Duration),
                    above.filter(|r| *r > 1).map(|r| Alternative::MinRate(r - 1)),
                    None,
                ]
            }
        };
        candidates.into_iter().flatten().filter(accepted).collect()
    }

    /// The most channels that any of the paths has.
    fn widest(&self, paths: &[Path]) -> u32 {
        paths.iter().map(|path| self.path(path).capacity()).max().unwrap_or(0)
    }
}

/// The lowest number in `(low, high]` that passes a monotone test; `None` if `high` does not.
fn lowest(low: u32, high: u32, passes: impl Fn(u32) -> bool) -> Option<u32> {
    if high <= low || !passes(high) {
        return None;
    }
    let (mut low, mut high) = (low, high);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if passes(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Loss of a request to one link: in all, in the current stretch, in the worst.
#[derive(Clone, Copy, Default)]
struct Blame {
    total: u128,
    current: Option<Stretch>,
    worst: Option<Stretch>,
}

#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
    free: u32,
    lost: u128,
}

impl Blame {
    fn add(&mut self, start: u64, end: u64, free: u32, missing: u32) {
        let lost = u128::from(end - start) * u128::from(missing);
        self.total += lost;
        self.current = Some(match self.current {
            Some(s) if s.end == start && s.free == free => {
                Stretch { end, lost: s.lost + lost, ..s }
            }
            _ => {
                self.worst = self.worst();
                Stretch { start, end, free, lost }
            }
        });
    }

    fn worst(&self) -> Option<Stretch> {
        [self.worst, self.current].into_iter().flatten().max_by_key(|s| s.lost)
    }
}

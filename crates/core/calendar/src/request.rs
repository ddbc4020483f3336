use alloc::sync::Arc;
use core::fmt;

/// A link of a [`crate::links::LinkSet`], by the order in which links were added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link{}", self.0)
    }
}

/// Links that a circuit takes together; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Arc<[LinkId]>);

impl Path {
    /// A path over `links`; `None` if there are none or one occurs twice.
    pub fn new(links: &[LinkId]) -> Option<Self> {
        let distinct = (1..links.len()).all(|i| !links[..i].contains(&links[i]));
        (distinct && !links.is_empty()).then(|| Self(links.into()))
    }

    /// A path of one link.
    pub fn single(link: LinkId) -> Self {
        Self([link].into())
    }

    /// The links, in order.
    pub fn links(&self) -> &[LinkId] {
        &self.0
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Placement of a file in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// VBLS: everything free up to Rmax from the start on, so the earliest finish.
    #[default]
    Earliest,
    /// As late as the deadline allows, which leaves the near future to others (DCRoute).
    Latest,
    /// The lowest peak rate that meets the deadline.
    LeastPeak,
    /// FBLS: Rmax throughout, from the earliest start at which that is free.
    Fixed,
}

/// A file transfer: the paper's (F, Rmax, Treq).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// Channel ticks to carry, margin included; see [`crate::grid::Grid::volume`].
    pub volume: u64,
    /// The most channels the end hosts can use, Rmax.
    pub max_rate: u32,
    /// First tick that may be used, Treq.
    pub earliest: u64,
    /// One past the last tick that may be used.
    pub deadline: Option<u64>,
    /// Its placement.
    pub policy: Policy,
}

impl FileRequest {
    /// A request for the earliest finish.
    pub const fn new(volume: u64, max_rate: u32, earliest: u64) -> Self {
        Self { volume, max_rate, earliest, deadline: None, policy: Policy::Earliest }
    }

    /// The same with a deadline and a policy.
    pub const fn by(self, deadline: u64, policy: Policy) -> Self {
        Self { deadline: Some(deadline), policy, ..self }
    }
}

/// A circuit for a time: the paper's (H, Rmin, Rmax, Treq) for interactive use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldRequest {
    /// Holding time in ticks, H.
    pub duration: u64,
    /// The fewest channels that are acceptable at any time, Rmin.
    pub min_rate: u32,
    /// The most channels of use at any time, Rmax.
    pub max_rate: u32,
    /// First tick at which it may start, Treq.
    pub earliest: u64,
    /// Last tick at which it may start.
    pub latest_start: Option<u64>,
}

/// A request to the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// So many bytes.
    File(FileRequest),
    /// So much time.
    Hold(HoldRequest),
}

impl Request {
    /// First tick that may be used.
    pub const fn earliest(&self) -> u64 {
        match self {
            Self::File(file) => file.earliest,
            Self::Hold(hold) => hold.earliest,
        }
    }

    /// The most channels of use.
    pub const fn max_rate(&self) -> u32 {
        match self {
            Self::File(file) => file.max_rate,
            Self::Hold(hold) => hold.max_rate,
        }
    }

    /// True if the request makes sense whatever is booked.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        if self.max_rate() == 0 {
            return Err(PlanError::ZeroRate);
        }
        match self {
            Self::File(file) => match (file.deadline, file.policy) {
                _ if file.volume == 0 => Err(PlanError::ZeroVolume),
                (None, Policy::Latest | Policy::LeastPeak) => Err(PlanError::DeadlineRequired),
                (Some(by), _) if by <= file.earliest => Err(PlanError::DeadlineBeforeStart),
                _ => Ok(()),
            },
            Self::Hold(hold) => match hold.latest_start {
                _ if hold.duration == 0 => Err(PlanError::ZeroDuration),
                _ if hold.min_rate == 0 => Err(PlanError::ZeroRate),
                _ if hold.min_rate > hold.max_rate => Err(PlanError::MinAboveMax),
                Some(latest) if latest < hold.earliest => Err(PlanError::DeadlineBeforeStart),
                _ => Ok(()),
            },
        }
    }
}

/// Why there is no plan. All but the last are faults of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// No candidate path was given.
    NoPath,
    /// A path has a link that does not exist.
    UnknownLink(LinkId),
    /// Nothing to carry.
    ZeroVolume,
    /// A rate of zero.
    ZeroRate,
    /// A holding time of zero.
    ZeroDuration,
    /// Rmin is above Rmax.
    MinAboveMax,
    /// The requested start lies before this tick, which is now.
    Past(u64),
    /// The deadline, or the latest start, lies before the requested start.
    DeadlineBeforeStart,
    /// The policy needs a deadline.
    DeadlineRequired,
    /// The requested start, or the end of what is extended, lies beyond this tick, up to which
    /// bookings are taken.
    BeyondHorizon(u64),
    /// There is not enough capacity; [`crate::links::LinkSet::explain`] tells where and what would do.
    NoRoom,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPath => f.write_str("no path was given"),
            Self::UnknownLink(link) => write!(f, "there is no {link:?}"),
            Self::ZeroVolume => f.write_str("there is nothing to carry"),
            Self::ZeroRate => f.write_str("the rate is zero"),
            Self::ZeroDuration => f.write_str("the holding time is zero"),
            Self::MinAboveMax => f.write_str("the minimum rate is above the maximum rate"),
            Self::Past(now) => write!(f, "the start lies before tick {now}, which is now"),
            Self::DeadlineBeforeStart => f.write_str("the deadline lies before the start"),
            Self::DeadlineRequired => f.write_str("this policy needs a deadline"),
            Self::BeyondHorizon(end) => write!(f, "bookings are taken up to tick {end}"),
            Self::NoRoom => f.write_str("there is not enough free capacity in time"),
        }
    }
}

impl core::error::Error for PlanError {}

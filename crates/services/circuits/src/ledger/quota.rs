use std::collections::BTreeMap;

use longhaul_calendar::{LinkId, Path, Request};

use super::order::{Ask, LinkSpec, Quota, Refusal, Route, Rules};

/// Limits on further bookings of a project: the ledger decides by them, and previews apply them
/// too.
#[derive(Clone, Copy, Debug)]
pub struct Allowance<'a> {
    project: &'a str,
    quota: Quota,
    rules: &'a Rules,
    links: &'a [LinkSpec],
    areas: &'a Areas,
    now: u64,
}

/// Channel ticks that the open bookings of a project hold, by project and link.
pub type Areas = BTreeMap<(String, u32), u64>;

impl<'a> Allowance<'a> {
    /// The allowance of `project` at the tick `now`.
    ///
    /// # Errors
    /// There is no such project.
    pub fn of(
        project: &'a str,
        projects: &BTreeMap<String, Quota>,
        rules: &'a Rules,
        links: &'a [LinkSpec],
        areas: &'a Areas,
        now: u64,
    ) -> Result<Self, Refusal> {
        let quota = projects.get(project).copied().ok_or(Refusal::UnknownProject)?;
        Ok(Self { project, quota, rules, links, areas, now })
    }

    /// The request within the rate and the horizon of the project. As the book's horizon does, that
    /// of the project bounds a deadline, or a latest start, that lies beyond it.
    pub fn within(&self, ask: Ask) -> Result<Ask, Refusal> {
        let Self { quota, now, .. } = *self;
        let ask = ask.at_once(now);
        let request: Request = ask.into();
        if request.max_rate() > quota.max_rate {
            return Err(Refusal::RateQuota { max_rate: quota.max_rate });
        }
        let Some(until) = self.until() else { return Ok(ask) };
        let beyond = Refusal::HorizonQuota { until };
        Ok(match ask {
            Ask::File { volume, max_rate, earliest, deadline, policy } => {
                if earliest >= until {
                    return Err(beyond);
                }
                let deadline = Some(deadline.unwrap_or(until).min(until));
                Ask::File { volume, max_rate, earliest, deadline, policy }
            }
            Ask::Hold { duration, min_rate, max_rate, earliest, latest_start } => {
                let length = duration.saturating_add(self.rules.guard);
                let last = until.checked_sub(length).filter(|last| *last >= earliest);
                let last = last.ok_or(beyond)?;
                let latest_start = Some(latest_start.unwrap_or(last).min(last));
                Ask::Hold { duration, min_rate, max_rate, earliest, latest_start }
            }
        })
    }

    /// One past the last tick that the project may book, if that is sooner than the book's horizon.
    fn until(&self) -> Option<u64> {
        let horizon = Some(self.quota.horizon).filter(|horizon| *horizon < self.rules.horizon)?;
        Some(self.now.saturating_add(horizon))
    }

    /// Checks that the project may have a booking up to `finish`.
    ///
    /// # Errors
    /// It lies beyond the project's horizon.
    pub(super) fn reaches(&self, finish: u64) -> Result<(), Refusal> {
        match self.until().filter(|until| finish > *until) {
            Some(until) => Err(Refusal::HorizonQuota { until }),
            None => Ok(()),
        }
    }

    /// The paths on whose links the project's share has room for `asks` in place of what is `held`
    /// already.
    pub fn affordable(
        &self,
        paths: &[Route],
        asks: &[Ask],
        held: impl Fn(LinkId) -> u64,
    ) -> Result<Vec<Path>, Refusal> {
        self.affordable_area(paths, asks.iter().map(area).fold(0, u64::saturating_add), held)
    }

    /// The same for so many channel ticks.
    pub fn affordable_area(
        &self,
        paths: &[Route],
        asked: u64,
        held: impl Fn(LinkId) -> u64,
    ) -> Result<Vec<Path>, Refusal> {
        let mut found = Vec::with_capacity(paths.len());
        let mut refusal = None;
        for route in paths {
            let Some(path) = route.path() else { continue };
            let over = path.links().iter().find_map(|link| {
                let spec = self.links.get(link.0 as usize)?;
                let horizon = u128::from(self.quota.horizon.min(self.rules.horizon));
                let share = u128::from(self.quota.share_ppm);
                let limit = horizon * u128::from(spec.capacity) * share / 1_000_000;
                let limit = u64::try_from(limit).unwrap_or(u64::MAX);
                let area = self.areas.get(&(self.project.to_owned(), link.0)).copied();
                let area = area.unwrap_or(0).saturating_sub(held(*link));
                (area.saturating_add(asked) > limit).then_some(Refusal::ShareQuota {
                    link: link.0,
                    held: area,
                    limit,
                })
            });
            match over {
                None => found.push(path),
                Some(over) => refusal = refusal.or(Some(over)),
            }
        }
        match refusal.filter(|_| found.is_empty()) {
            Some(refusal) => Err(refusal),
            None => Ok(found),
        }
    }
}

/// Channel ticks that a request may come to hold.
pub(super) fn area(ask: &Ask) -> u64 {
    match *ask {
        Ask::File { volume, .. } => volume,
        Ask::Hold { duration, max_rate, .. } => duration.saturating_mul(u64::from(max_rate)),
    }
}

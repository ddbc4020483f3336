use alloc::vec::Vec;

use longhaul_engine::Suspension;
use longhaul_rate_control::Division;
use longhaul_units::{Duration, Instant, Rate};

use crate::shared_path::SharedPath;

/// Limits of the rate of all paths of a connection together, and SUSPEND, which holds every path,
/// whichever brought it.
///
/// A path with a reservation has what is reserved; the others have the rest of the limits, divided by
/// what they deliver ([`Division`]), and a hundredth at least. The connection's driver calls
/// [`ConnectionLimits::look`] ten times a second, and whenever lanes have moved. Each path's governor
/// knows the limits of the connection, and gets its own share of them. No two paths are
/// locked at once.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimits {
    division: Division,
    suspension: Option<Suspension>,
}

impl ConnectionLimits {
    /// Looks at all paths, with the number of lanes on each, and tells them. What is booked for a path
    /// without lanes is nobody's; but what the peer wished there last holds.
    pub fn look<P: SharedPath>(&mut self, now: Instant, paths: &[(P, u32)]) {
        let (mut limit, mut reserved, mut round_trip) = (None, Rate::ZERO, Duration::ZERO);
        let (mut delivered, mut divided) = (Vec::new(), Vec::new());
        for (path, lanes) in paths {
            let mut path = path.lock();
            // No lane may have looked at it since its booking began or changed.
            path.handle_timeout(now);
            self.suspension = self.suspension.max(path.suspension());
            if *lanes == 0 {
                divided.push(false);
                continue;
            }
            limit = limit.into_iter().chain(path.governor().connection_limit()).min();
            match path.reserved() {
                Some(rate) => reserved = reserved + rate,
                None => {
                    delivered.push(path.delivered());
                    round_trip = round_trip.max(path.rtt().smoothed());
                }
            }
            divided.push(path.reserved().is_none());
        }
        let limit: Option<Rate> = limit;
        let shares = limit.map(|limit| {
            let rest = (limit - reserved).max(limit.scale(1, 100));
            let shares = self.division.update(now, rest, &delivered, round_trip);
            shares.into_iter().map(move |share| part(rest.scale(share, WHOLE), limit))
        });
        let mut shares = shares.into_iter().flatten();
        for ((path, _), is_divided) in paths.iter().zip(divided) {
            let mut path = path.lock();
            if is_divided && let Some(share) = shares.next() {
                path.govern(now, |governor| governor.set_share(share));
            }
            self.suspension.into_iter().for_each(|suspension| path.suspend(now, suspension));
        }
    }
}

/// Part of `limit` that a rate is, in parts per million.
fn part(rate: Rate, limit: Rate) -> u32 {
    let ppm = u128::from(rate.as_bps()) * u128::from(WHOLE);
    ppm.checked_div(u128::from(limit.as_bps())).map_or(WHOLE, |ppm| ppm.min(1_000_000) as u32)
}

/// All, in parts per million.
const WHOLE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use core::cell::{RefCell, RefMut};
    use core::ops::DerefMut;
    use longhaul_engine::Path;
    use longhaul_rate_control::{Governor, Profile, TimeRange, Trc, Vector};
    use longhaul_units::Bottleneck;

    struct Shared(RefCell<Path>);

    impl SharedPath for Shared {
        fn lock(&self) -> impl DerefMut<Target = Path> {
            let path: RefMut<'_, Path> = self.0.borrow_mut();
            path
        }
    }

    fn paths(limits: [Option<Rate>; 2]) -> [(Shared, u32); 2] {
        let now = Instant::ZERO;
        limits.map(|limit| {
            let fixed = Profile::wished(Some("fixed"), Some(Rate::from_gbps(1)), []).unwrap();
            let controller = fixed.controller(now, 1500, None);
            let mut governor = Governor::new(now, true);
            limit.into_iter().for_each(|limit| governor.set(Bottleneck::UserLimit, limit));
            let round_trip = Duration::from_millis(20);
            (Shared(RefCell::new(Path::new(now, controller, governor, round_trip, 1))), 1)
        })
    }

    #[test]
    fn one_limit_of_the_user_holds_over_two_paths() {
        let limit = Rate::from_mbps(300);
        let paths = paths([Some(limit); 2]);
        let mut limits = ConnectionLimits::default();
        for look in 0..10 {
            limits.look(Instant::ZERO + Duration::from_millis(100) * look, &paths);
            let allowed = paths.each_ref().map(|(path, _)| path.0.borrow().allowed());
            assert_eq!(allowed.map(|(_, bound)| bound), [Bottleneck::UserLimit; 2]);
            let sum = allowed[0].0 + allowed[1].0;
            assert!(sum <= limit && sum > limit.scale(99, 100), "{sum}");
        }
    }

    #[test]
    fn a_reservation_is_kept_and_the_others_have_the_rest() {
        let limit = Rate::from_mbps(300);
        for (booked, rest) in [(200, 100), (300, 3)] {
            let paths = paths([Some(limit); 2]);
            let booked_rate = Some(Rate::from_mbps(booked));
            let trc = Profile::wished(Some(Profile::CIRCUIT.name), booked_rate, []).unwrap();
            let circuit = trc.controller(Instant::ZERO, 1500, None);
            paths[1].0.0.borrow_mut().set_controller(Instant::ZERO, circuit);
            ConnectionLimits::default().look(Instant::ZERO, &paths);
            let [(ip, why), (circuit, _)] = paths.map(|(path, _)| path.0.borrow().allowed());
            assert_eq!(why, Bottleneck::UserLimit);
            assert_eq!(circuit, Rate::from_mbps(booked).scale(995, 1000));
            let rest = Rate::from_mbps(rest);
            assert!(ip >= rest && ip < rest + limit.scale(1, 100), "{ip}");
        }
    }

    #[test]
    fn without_a_limit_each_path_goes_at_its_own_rate() {
        let paths = paths([None; 2]);
        ConnectionLimits::default().look(Instant::ZERO, &paths);
        for (path, _) in paths {
            assert_eq!(path.0.borrow().allowed().0, Rate::from_gbps(1));
        }
    }

    #[test]
    fn a_suspend_that_one_path_brought_holds_the_other_until_a_newer_one() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let paths = paths([None; 2]);
        let mut limits = ConnectionLimits::default();
        let until = |(path, _): &(Shared, u32)| {
            path.0.borrow().suspension().map(|suspension| suspension.until)
        };
        paths[1].0.0.borrow_mut().suspend(at(0), Suspension { order: 4, until: at(500) });
        limits.look(at(100), &paths);
        assert_eq!(until(&paths[0]), Some(at(500)));
        paths[0].0.0.borrow_mut().suspend(at(0), Suspension { order: 5, until: at(150) });
        limits.look(at(150), &paths);
        assert_eq!(paths.each_ref().map(until), [Some(at(150)); 2], "lifted");
    }

    #[test]
    fn a_suspend_that_comes_on_two_paths_ends_at_one_time_on_both() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let paths = paths([None; 2]);
        let until = |(path, _): &(Shared, u32)| {
            path.0.borrow().suspension().map(|suspension| suspension.until)
        };
        // The longer path was the first to be looked at, and is 20 ms longer.
        for (path, ms) in [(0, 320), (1, 300)] {
            paths[path].0.0.borrow_mut().suspend(at(0), Suspension { order: 1, until: at(ms) });
        }
        ConnectionLimits::default().look(at(100), &paths);
        assert_eq!(paths.each_ref().map(until), [Some(at(300)); 2]);
    }

    #[test]
    fn a_suspend_that_came_over_a_path_which_was_left_at_once_holds() {
        let until = Instant::ZERO + Duration::from_millis(500);
        let mut paths = paths([None; 2]);
        paths[0].0.0.borrow_mut().suspend(Instant::ZERO, Suspension { order: 1, until });
        paths[0].1 = 0;
        ConnectionLimits::default().look(Instant::ZERO, &paths);
        assert_eq!(
            paths[1].0.0.borrow().suspension().map(|suspension| suspension.until),
            Some(until)
        );
    }

    #[test]
    fn a_booking_counts_from_its_first_moment_on_though_no_lane_was_there_to_see() {
        let limit = Rate::from_mbps(300);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let paths = paths([Some(limit); 2]);
        let range = TimeRange { start: at(50), end: at(500), rate: Rate::from_mbps(200) };
        let trc = Trc::new(at(0), Vector::new(vec![range]).unwrap(), 1500);
        paths[1].0.0.borrow_mut().set_controller(at(0), Box::new(trc));
        ConnectionLimits::default().look(at(50), &paths);
        let ip = paths[0].0.0.borrow().allowed().0;
        assert!(ip <= limit - range.rate.scale(995, 1000), "{ip}");
    }
}

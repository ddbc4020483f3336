//! Rates that change while a copy runs, by a clock that the test sets.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul::{CarrierChoice, RateSchedule};
use longhaul_units::Rate;

use crate::server::{Copying, Server, each_way, run};
use crate::test::{limited, until};
use crate::trees::{assert_same, noise};

#[test]
fn a_copy_goes_on_at_the_rate_of_the_hour_whichever_end_sends() {
    limited(|test| {
        let server = Server::start(test);
        each_way(test, &server, |from, to, mut options| {
            let tcp = options.connect.carrier == CarrierChoice::Tcp;
            fs::create_dir(from).unwrap();
            fs::write(from.join("file"), noise(7, 50_000_000)).unwrap();
            // The whole copy would take over half an hour before the hour changes.
            let hour = Arc::new(AtomicU64::new(0));
            let clock = hour.clone();
            let rates = [Some(Rate::from_mbps(1)), Some(Rate::from_kbps(200)), None];
            let now = move || rates[clock.load(Ordering::Relaxed) as usize];
            options.connect.rate_schedule = Some(RateSchedule::new(now));
            let copying = Copying::start(test, options);
            let progress = copying.progress.clone();
            until("something has moved", || (progress.snapshot().bytes_done > 0).then_some(()));
            hour.store(1, Ordering::Relaxed);
            let is_slow = || !tcp && progress.snapshot().bound == longhaul::Bottleneck::UserLimit;
            until("the limit holds", || (tcp || is_slow()).then_some(()));
            hour.store(2, Ordering::Relaxed);
            let report = copying.end().unwrap();
            assert_eq!(report.failures.count, 0, "{report:?}");
            assert_same(from, to);
        });
    });
}

#[test]
fn one_rate_is_of_profiles_that_need_one() {
    limited(|test| {
        let server = Server::start(test);
        let mut options = crate::server::pull(server.address, b"", &test.here(""));
        options.connect.rate_schedule = Some(RateSchedule::new(|| Some(Rate::from_mbps(10))));
        options.connect.profile = "fixed".into();
        let error = run(test, &options).unwrap_err().to_string();
        assert!(error.contains("sends at one rate, and --rate has several"), "{error}");
    });
}

//! Queues of the sending host that drop.

use std::fs;
use std::net::SocketAddr;

use longhaul::CarrierChoice;
use longhaul_needs::needs;
use longhaul_sys::netns::{DEVICE, NetnsPair, Side};
use longhaul_sys::traffic_control::{Change, Class, Egress, burst};
use longhaul_units::Rate;

use crate::server::{Server, over, push, run};
use crate::test::limited;
use crate::trees::{assert_same, noise};

#[needs(namespaces, htb)]
#[test]
fn packets_that_a_queue_of_the_sending_host_drops_are_no_loss_of_the_network() {
    limited(|test| {
        let hosts = NetnsPair::new(1500).unwrap();
        let rate = Rate::from_mbps(100);
        let burst = burst(rate, 1514);
        let class = Class { number: 1, parent: 0, rate, ceiling: rate, burst, priority: 0 };
        let queue = Change::AddQueue { class: 1, limit: 200_000 };
        let mut egress = hosts.run_in(Side::A, || Egress::of(DEVICE)).unwrap().unwrap();
        let line = [Change::AddHtb { default: 1 }, Change::AddClass(class), queue];
        egress.apply(&line).into_iter().for_each(Result::unwrap);

        fs::write(test.here("f"), noise(1, 10_000_000)).unwrap();
        let listen = SocketAddr::new(Side::B.ipv4(), 0);
        let serve = || Server::with(test, |options| options.listen = listen);
        let server = hosts.run_in(Side::B, serve).unwrap();
        let options = over(push(&test.here("f"), server.address, b"f"), |by| {
            by.profile = "fixed".into();
            (by.carrier, by.rate) = (CarrierChoice::Udp, Some(rate.scale(4, 1)));
        });
        let report = hosts.run_in(Side::A, || run(test, &options)).unwrap().unwrap();
        assert_same(&test.here("f"), &test.there("f"));
        let lost = report.link.lost;
        assert!(lost.sender > 0, "{lost:?}");
        assert_eq!(lost.network(), 0, "{lost:?}");
    });
}

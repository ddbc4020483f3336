use std::collections::VecDeque;

use longhaul_rate_control::Profile;
use longhaul_units::{Bottleneck, Rate};

use super::*;
use crate::carrier::mailboxes;
use crate::udp::path;

const SERVER: &str = "127.0.0.1:7420";
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));
const CIRCUIT: &str = "127.0.0.2:7420";

fn fresh() -> Path {
    path(&Profile::wished(None, None, []).unwrap(), Duration::from_millis(5))
}

fn ends(remote: &str, local: &str) -> Ends {
    Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn client(lanes: u16) -> ConnectionPaths {
    let owner = Owner::Client(ends(SERVER, "127.0.0.1"));
    ConnectionPaths::new(owner, fresh(), mailboxes(lanes).unwrap())
}

/// A server's, which may send so much.
fn server(lanes: u16, limit: Rate) -> ConnectionPaths {
    let round_trip = Duration::from_millis(5);
    let fresh = move || path(&Profile::wished(None, Some(limit), []).unwrap(), round_trip);
    let owner = Owner::Server(Opening(Box::new(move || Some(fresh()))));
    ConnectionPaths::new(owner, fresh(), mailboxes(lanes).unwrap())
}

/// The paths that lanes were moved to, and whether by another socket.
fn moves(paths: &ConnectionPaths) -> Vec<(usize, u16, bool)> {
    let mut moves = Vec::new();
    for (lane, mailbox) in paths.mailboxes.iter().enumerate() {
        let mut commands = VecDeque::new();
        mailbox.drain(&mut commands);
        for command in commands {
            if let Command::Move(switch) = command {
                moves.push((lane, switch.number.0, switch.socket.is_some()));
            }
        }
    }
    moves
}

#[test]
fn lanes_go_to_a_circuit_and_back_and_take_a_socket_where_theirs_is_of_no_use() {
    for (local, other) in [("127.0.0.1", false), ("127.0.0.3", true)] {
        let paths = client(3);
        let circuit = paths.add(fresh(), ends(CIRCUIT, local));
        assert_eq!(moves(&paths), []);
        for _ in 0..3 {
            paths.carry_over(circuit).unwrap();
            assert_eq!(moves(&paths), [(1, 1, other), (2, 1, other)]);
            paths.carry_over(FIRST).unwrap();
            assert_eq!(moves(&paths), [(1, 0, other), (2, 0, other)]);
        }
    }
}

#[test]
fn lanes_wait_for_a_circuit_on_a_path_over_ip() {
    let paths = client(2);
    let waiting = paths.add(fresh(), ends(SERVER, "127.0.0.1"));
    paths.carry_over(waiting).unwrap();
    let circuit = paths.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    paths.carry_over(circuit).unwrap();
    paths.carry_over(FIRST).unwrap();
    assert_eq!(moves(&paths), [(1, 1, false), (1, 2, false), (1, 0, false)]);
}

#[test]
fn lanes_stay_off_a_path_that_nothing_can_be_sent_from() {
    let paths = client(2);
    // An address of nobody here.
    let circuit = paths.add(fresh(), ends(CIRCUIT, "192.0.2.77"));
    assert!(paths.carry_over(circuit).is_err());
    assert_eq!(moves(&paths), []);
    assert_eq!(lock(&paths.set).paths.place(LaneId(1)), FIRST);
    assert!(!paths.lives(circuit));
    // With nothing left but such a path, they are not sent around for ever.
    paths.offer(FIRST, Offer::Closed);
    assert_eq!(moves(&paths), []);
}

#[test]
fn a_server_has_a_path_for_each_address_of_its_client_and_shares_the_limit() {
    // Start-up begins faster than that.
    let all = Rate::from_bps(9000);
    let paths = server(3, all);
    let [ip, other] = ["192.0.2.1", "192.0.2.9"].map(|ip| ip.parse().unwrap());
    let follow = |lane, from, on| {
        paths.follow(LaneId(lane), (HERE, from), PathId(on)).map(|(number, _)| number.0)
    };
    assert_eq!((follow(0, ip, 0), follow(1, ip, 0), follow(2, ip, 0)), (None, None, None));
    assert_eq!((follow(2, other, 0), follow(2, other, 1)), (Some(1), None));
    let allowed = [0, 1].map(|path| lock(&paths.path(PathId(path))).allowed());
    assert_eq!(allowed, [(all.scale(1, 2), Bottleneck::UserLimit); 2]);
    assert_eq!(follow(2, ip, 1), Some(0), "and back");
    let there = "198.51.100.2".parse().unwrap();
    let another = paths.follow(LaneId(1), (there, ip), FIRST).map(|(number, _)| number.0);
    assert_eq!(another, Some(2), "from one address to another of this host");
}

#[test]
fn a_server_whose_rate_is_one_for_all_has_one_path() {
    let opening = Opening(Box::new(|| None));
    let paths = ConnectionPaths::new(Owner::Server(opening), fresh(), mailboxes(2).unwrap());
    let [ip, other] = ["192.0.2.1", "192.0.2.9"].map(|ip| ip.parse().unwrap());
    assert!(paths.follow(LaneId(0), (HERE, ip), FIRST).is_none());
    assert!(paths.follow(LaneId(1), (HERE, other), FIRST).is_none());
}

#[test]
fn lanes_go_over_two_links_by_weight() {
    let paths = client(6);
    paths.offer(FIRST, Offer::Share(2));
    let second = paths.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    paths.offer(second, Offer::Share(1));
    assert_eq!(moves(&paths), [(4, 1, false), (5, 1, false)]);
    paths.stay(LaneId(4), FIRST, second);
    paths.offer(second, Offer::Share(1));
    assert_eq!(moves(&paths), [(5, 0, false)], "no way there: the other comes back");
}

#[test]
fn a_move_that_the_server_asks_for_is_made_where_there_is_another_path() {
    let paths = client(2);
    paths.handle_move_asked(MoveAsked { order: 1, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&paths), [], "beside it is where it is");
    let second = paths.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    paths.carry_over(second).unwrap();
    assert_eq!(moves(&paths), [(1, 1, false)]);
    paths.handle_move_asked(MoveAsked { order: 1, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&paths), [], "an old order");
    paths.handle_move_asked(MoveAsked { order: 2, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&paths), [(1, 0, false)]);
}

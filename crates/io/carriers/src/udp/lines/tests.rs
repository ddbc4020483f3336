use std::collections::VecDeque;

use longhaul_rate_control::Profile;
use longhaul_units::{Bottleneck, Rate};

use super::*;
use crate::connection::mailboxes;
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

fn client(lanes: u16) -> Lines {
    let owner = Owner::Client(ends(SERVER, "127.0.0.1"));
    Lines::new(owner, fresh(), mailboxes(lanes).unwrap())
}

/// A server's, which may send so much.
fn server(lanes: u16, limit: Rate) -> Lines {
    let round_trip = Duration::from_millis(5);
    let fresh = move || path(&Profile::wished(None, Some(limit), []).unwrap(), round_trip);
    let owner = Owner::Server(Opening(Box::new(move || Some(fresh()))));
    Lines::new(owner, fresh(), mailboxes(lanes).unwrap())
}

/// Where lanes were told to go, and whether by another socket.
fn moves(lines: &Lines) -> Vec<(usize, u16, bool)> {
    let mut moves = Vec::new();
    for (lane, mailbox) in lines.mailboxes.iter().enumerate() {
        let mut commands = VecDeque::new();
        mailbox.drain(&mut commands);
        for command in commands {
            if let Command::Move(way) = command {
                moves.push((lane, way.number.0, way.socket.is_some()));
            }
        }
    }
    moves
}

#[test]
fn lanes_go_to_a_circuit_and_back_and_take_a_socket_where_theirs_is_of_no_use() {
    for (local, other) in [("127.0.0.1", false), ("127.0.0.3", true)] {
        let lines = client(3);
        let circuit = lines.add(fresh(), ends(CIRCUIT, local));
        assert_eq!(moves(&lines), []);
        for _ in 0..3 {
            lines.carry_over(circuit).unwrap();
            assert_eq!(moves(&lines), [(1, 1, other), (2, 1, other)]);
            lines.carry_over(FIRST).unwrap();
            assert_eq!(moves(&lines), [(1, 0, other), (2, 0, other)]);
        }
    }
}

#[test]
fn lanes_wait_for_a_circuit_on_a_path_over_ip() {
    let lines = client(2);
    let waiting = lines.add(fresh(), ends(SERVER, "127.0.0.1"));
    lines.carry_over(waiting).unwrap();
    let circuit = lines.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    lines.carry_over(circuit).unwrap();
    lines.carry_over(FIRST).unwrap();
    assert_eq!(moves(&lines), [(1, 1, false), (1, 2, false), (1, 0, false)]);
}

#[test]
fn lanes_stay_off_a_path_that_nothing_can_be_sent_from() {
    let lines = client(2);
    // An address of nobody here.
    let circuit = lines.add(fresh(), ends(CIRCUIT, "192.0.2.77"));
    assert!(lines.carry_over(circuit).is_err());
    assert_eq!(moves(&lines), []);
    assert_eq!(lock(&lines.set).paths.place(LaneId(1)), FIRST);
    assert!(!lines.lives(circuit));
    // Where nothing is left but such a path, they are not sent around for ever.
    lines.offer(FIRST, Offer::Closed);
    assert_eq!(moves(&lines), []);
}

#[test]
fn a_server_has_a_path_for_each_address_of_its_client_and_shares_the_limit() {
    // Start-up begins faster than that.
    let all = Rate::from_bps(9000);
    let lines = server(3, all);
    let [ip, other] = ["192.0.2.1", "192.0.2.9"].map(|ip| ip.parse().unwrap());
    let follow = |lane, from, on| {
        lines.follow(LaneId(lane), (HERE, from), PathId(on)).map(|(number, _)| number.0)
    };
    assert_eq!((follow(0, ip, 0), follow(1, ip, 0), follow(2, ip, 0)), (None, None, None));
    assert_eq!((follow(2, other, 0), follow(2, other, 1)), (Some(1), None));
    let allowed = [0, 1].map(|path| lock(&lines.path(PathId(path))).allowed());
    assert_eq!(allowed, [(all.scale(1, 2), Bottleneck::UserLimit); 2]);
    assert_eq!(follow(2, ip, 1), Some(0), "and back");
    let there = "198.51.100.2".parse().unwrap();
    let another = lines.follow(LaneId(1), (there, ip), FIRST).map(|(number, _)| number.0);
    assert_eq!(another, Some(2), "from one address to another of this host");
}

#[test]
fn a_server_whose_rate_is_one_for_all_has_one_path() {
    let opening = Opening(Box::new(|| None));
    let lines = Lines::new(Owner::Server(opening), fresh(), mailboxes(2).unwrap());
    let [ip, other] = ["192.0.2.1", "192.0.2.9"].map(|ip| ip.parse().unwrap());
    assert!(lines.follow(LaneId(0), (HERE, ip), FIRST).is_none());
    assert!(lines.follow(LaneId(1), (HERE, other), FIRST).is_none());
}

#[test]
fn lanes_go_over_two_links_by_weight() {
    let lines = client(6);
    lines.offer(FIRST, Offer::Share(2));
    let second = lines.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    lines.offer(second, Offer::Share(1));
    assert_eq!(moves(&lines), [(4, 1, false), (5, 1, false)]);
    lines.stay(LaneId(4), FIRST, second);
    lines.offer(second, Offer::Share(1));
    assert_eq!(moves(&lines), [(5, 0, false)], "no way there: the other comes back");
}

#[test]
fn what_the_server_asks_is_done_where_there_is_another_path() {
    let lines = client(2);
    lines.handle_move_asked(MoveAsked { order: 1, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&lines), [], "beside it is where it is");
    let second = lines.add(fresh(), ends(CIRCUIT, "127.0.0.1"));
    lines.carry_over(second).unwrap();
    assert_eq!(moves(&lines), [(1, 1, false)]);
    lines.handle_move_asked(MoveAsked { order: 1, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&lines), [], "heard before");
    lines.handle_move_asked(MoveAsked { order: 2, lane: LaneId(1), beside: LaneId(0) });
    assert_eq!(moves(&lines), [(1, 0, false)]);
}

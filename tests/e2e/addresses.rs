//! Names and addresses that lead somewhere or nowhere.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;

use longhaul::{CarrierChoice, ErrorKind, Side, serve};
use longhaul_needs::needs;
use socket2::{Domain, Socket, Type};

use crate::program::{PROGRAM, Program};
use crate::server::{Server, over, pull, push, run, serve_options};
use crate::test::limited;
use crate::trees::{assert_same, make_tree};

#[needs(ipv6)]
#[test]
fn ipv6_carries_as_ipv4_does() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let listen = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let server = Server::with(test, |options| options.listen = listen);
        for carrier in [CarrierChoice::Udp, CarrierChoice::Tcp] {
            let to = format!("{carrier:?}");
            let options = push(&test.here("tree"), server.address, to.as_bytes());
            run(test, &over(options, |by| by.carrier = carrier)).unwrap();
            assert_same(&test.here("tree"), &test.there(&to));
            let options = pull(server.address, to.as_bytes(), &test.here(&to));
            run(test, &over(options, |by| by.carrier = carrier)).unwrap();
            assert_same(&test.here("tree"), &test.here(&to));
        }
        let there = format!("lh://[::1]:{}/program", server.address.port());
        Program::cp(test, &["here/tree", &there]).end().assert_succeeded();
        assert_same(&test.here("tree"), &test.there("program"));
    });
}

#[needs(ipv6)]
#[test]
fn a_server_for_all_addresses_answers_at_each() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let listen = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let server = Server::with(test, |options| options.listen = listen);
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost"] {
            let options = push(&test.here("tree"), server.address, host.as_bytes());
            let options = over(options, |by| {
                by.server.host = host.into();
                by.carrier = CarrierChoice::Udp;
            });
            let report = run(test, &options).unwrap();
            assert_eq!(report.link.carrier, "udp", "{host}");
            assert_same(&test.here("tree"), &test.there(host));
        }
    });
}

#[test]
fn a_name_without_an_address_is_reported() {
    limited(|test| {
        fs::write(test.here("f"), b"x").unwrap();
        let copy = Program::cp(test, &["here/f", "lh://nowhere.invalid/"]).end();
        copy.assert_failed("cannot find the host nowhere.invalid");
    });
}

#[test]
fn a_port_where_nothing_listens_is_reported() {
    limited(|test| {
        fs::write(test.here("f"), b"x").unwrap();
        // Bound, so that nobody else gets the port, but not listening.
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        let port = silent.local_addr().unwrap().as_socket().unwrap().port();
        let copy = Program::cp(test, &["here/f", &format!("lh://127.0.0.1:{port}/")]).end();
        copy.assert_failed("nothing listens there");
        let words = ["probe", "--token-file", "token", &format!("127.0.0.1:{port}")];
        let probe = Program::start(test, &words).end();
        probe.assert_failed(
            "nothing listens there; start `longhaul serve` there, or let ssh start it: `longhaul probe HOST:`",
        );
    });
}

#[test]
fn a_port_in_use_is_reported_for_tcp_and_for_udp() {
    limited(|test| {
        let server = Server::start(test);
        let tcp = server.address;
        // An address of its own: connections of other tests may take the port at the common one.
        let udp = UdpSocket::bind("127.88.0.1:0").unwrap();
        for (listen, expected) in [(tcp, "TCP"), (udp.local_addr().unwrap(), "UDP")] {
            let mut options = serve_options(&test.path("there"));
            options.listen = listen;
            let error = serve(&options, &|_| {}, &test.stop()).unwrap_err();
            assert_eq!((error.kind, error.side), (ErrorKind::Listen, Side::Here), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.to_string().contains(&listen.to_string()), "{error}");
        }
        let words = ["serve", "--listen", &tcp.to_string(), "--token-file", "token"];
        Program::start(test, &words).end().assert_failed("another program uses the port");
    });
}

#[needs(namespaces, ipv6)]
#[test]
fn a_link_local_address_leads_over_its_link() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-e", "-c", OVER_A_LINK, PROGRAM]);
        let copies = Program::spawn(test, &mut command).end();
        copies.assert_succeeded();
        for carrier in ["udp", "tcp"] {
            assert_same(&test.here("tree"), &test.there(carrier));
            assert_same(&test.here("tree"), &test.here(carrier));
        }
    });
}

/// Copies both ways over a link of a namespace of their own; `$0` is the program.
const OVER_A_LINK: &str = "
ip link add e2e0 type veth peer name e2e1
ip link set lo up
ip link set e2e0 up
ip link set e2e1 up
ip addr add fe80::1/64 dev e2e0 nodad
ip addr add fe80::2/64 dev e2e1 nodad
\"$0\" serve --listen '[::]:7420' --root there --token-file token 2> log &
server=$!
trap 'kill $server' EXIT
until grep -q listening log; do sleep 0.1; done
for carrier in udp tcp; do
    at=\"lh://[fe80::1%e2e0]/$carrier\"
    \"$0\" cp --carrier $carrier --token-file token here/tree \"$at\"
    \"$0\" cp --carrier $carrier --token-file token \"$at\" here/$carrier
done
";

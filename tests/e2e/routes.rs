//! Several routes to a server, of which some are lost.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::gateway::gateway;
use crate::program::Program;
use crate::test::{Test, limited, until};

/// A gateway, and where it listens.
fn one(test: &Test) -> (Program<'_>, String) {
    let words = ["--listen", "127.0.0.1:0", "--token-file", "token", "--metrics", "0"];
    let (program, at) = gateway(test, &words, 1);
    (program, at[0].to_string())
}

/// Waits until the gateway has passed on a tenth of the file. It asks by itself, not by a process: on a
/// busy machine that takes as long as a copy.
fn passes_on(gateway: &mut Program<'_>) {
    let text = gateway.prints("metrics at http://");
    let at = text.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    until("a tenth of the file", || {
        let mut stream = TcpStream::connect(&at).unwrap();
        write!(stream, "GET /status HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let bytes = |way: &str| status["totals"][way].as_u64().unwrap();
        (bytes("bytes_there") + bytes("bytes_back") > 6_000_000).then_some(())
    });
}

/// An address where nothing listens.
fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn contents() -> Vec<u8> {
    (0..60_000_000u32).map(|i| (i % 241) as u8).collect()
}

/// A copy at a moderate rate, by these routes.
fn copy<'t>(test: &'t Test, routes: &[&str], from: &str, to: &str) -> Program<'t> {
    let mut words = vec!["--rate", "100Mbps"];
    routes.iter().for_each(|route| words.extend(["--via", route]));
    Program::cp(test, &[&words[..], &[from, to]].concat())
}

#[test]
fn a_copy_goes_on_by_its_next_route_when_a_gateway_is_killed() {
    limited(|test| {
        let (_server, server) = Program::serve(test, "127.0.0.1:0", &[]);
        fs::write(test.here("file"), contents()).unwrap();
        let there = format!("lh://{server}/copy");
        for (from, to) in [("here/file", &*there), (&*there, "here/back")] {
            let (mut first, at_first) = one(test);
            let (_second, at_second) = one(test);
            let copying = copy(test, &[&at_first, &at_second, "direct"], from, to);
            passes_on(&mut first);
            first.signal(Signal::KILL);
            let ended = copying.end();
            ended.assert_succeeded();
            let report = ended.json();
            assert_eq!((&report["via"][0], &report["verified"]), (&json!(at_second), &json!(true)));
            assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
            let notice = report["notices"][0].as_str().unwrap();
            // A connection that the gateway took while it was killed is reset.
            let faults = [
                format!("gateway {at_first}: cannot connect to {at_first}"),
                format!("the connection to {at_first} broke: "),
            ];
            assert!(notice.starts_with(&format!("through {at_first}: ")), "{notice}");
            assert!(faults.iter().any(|fault| notice.contains(fault)), "{notice}");
            assert!(ended.stderr.contains(notice), "{ended:?}");
        }
        assert!(fs::read(test.here("back")).unwrap() == contents());
    });
}

#[test]
fn the_gateway_at_fault_is_named_behind_another_and_the_direct_route_is_taken_where_it_is_allowed()
{
    limited(|test| {
        let (_server, server) = Program::serve(test, "127.0.0.1:0", &[]);
        fs::write(test.here("file"), contents()).unwrap();
        let (_near, at_near) = one(test);
        // Refused, or reset where the far gateway took the connection and was killed in that moment.
        let fault = |far: &str| format!("gateway {at_near}: could not reach {far}: connection re");
        let killed = |name: &str, more: &[&str]| {
            let there = format!("lh://{server}/{name}");
            let (mut far, at_far) = one(test);
            let route = format!("{at_near},{at_far}");
            let copying = copy(test, &[&[&*route], more].concat(), "here/file", &there);
            passes_on(&mut far);
            far.signal(Signal::KILL);
            (copying.end(), at_far)
        };
        let (ended, at_far) = killed("a", &[]);
        ended.assert_failed(&fault(&at_far));
        let closed = nowhere();
        let (ended, at_far) = killed("b", &[&closed]);
        ended.assert_failed("no route is left: through ");
        assert!(ended.stderr.contains(&fault(&at_far)), "{ended:?}");
        let unreachable = format!("through {closed}: gateway {closed}: cannot connect to {closed}");
        assert!(ended.stderr.contains(&unreachable), "{ended:?}");
        assert!(ended.stderr.contains("run the same command again to go on"), "{ended:?}");
        let (ended, at_far) = killed("c", &["direct"]);
        ended.assert_succeeded();
        let report = ended.json();
        assert_eq!(report["via"].as_array().map(Vec::len), Some(0), "{report}");
        assert!(ended.stderr.contains(&fault(&at_far)), "{ended:?}");
        assert!(ended.stderr.contains("; going on directly"), "{ended:?}");
        assert!(fs::read(test.there("c")).unwrap() == contents());
    });
}

#[test]
fn a_pipe_takes_the_next_route_before_data_has_moved_and_none_afterwards() {
    limited(|test| {
        let (_server, server) = Program::serve(test, "127.0.0.1:0", &[]);
        let (first, at_first) = one(test);
        let closed = nowhere();
        let routes = ["--via", &closed, "--via", &at_first, "--via", "direct"];
        let receive = [&routes[..], &["--receive"]].concat();
        fs::write(test.here("file"), contents()).unwrap();
        let file = || fs::File::open(test.here("file")).unwrap();
        let receiver = Program::pipe(test, &receive, server, Stdio::null(), Stdio::null());
        let sender = Program::pipe(test, &routes, server, file(), Stdio::piped());
        for end in [sender, receiver] {
            let ended = end.end();
            assert_eq!(ended.status, Some(0), "{ended:?}");
            let part = format!("through {closed}: gateway {closed}: cannot connect to ");
            assert!(ended.stderr.contains(&part), "{ended:?}");
        }

        let (input, mut writer) = std::io::pipe().unwrap();
        let (mut reader, output) = std::io::pipe().unwrap();
        let mut receiver = Program::pipe(test, &receive, server, Stdio::null(), output);
        let mut sender = Program::pipe(test, &routes, server, input, Stdio::piped());
        std::io::Write::write_all(&mut writer, b"some").unwrap();
        std::io::Read::read_exact(&mut reader, &mut [0; 4]).unwrap();
        first.signal(Signal::KILL);
        for end in [&mut sender, &mut receiver] {
            end.prints("the pipe broke: ");
        }
        for end in [sender, receiver] {
            let ended = end.end();
            ended.assert_failed("the pipe broke: ");
            assert!(!ended.stderr.contains("going on directly"), "{ended:?}");
        }
    });
}

#[test]
fn a_listing_goes_through_gateways_too() {
    limited(|test| {
        let (_server, server) = Program::serve(test, "127.0.0.1:0", &[]);
        fs::write(test.there("f"), "f").unwrap();
        let (_gateway, at) = one(test);
        let closed = nowhere();
        let place = format!("lh://{server}/");
        let words = ["ls", "--token-file", "token", "--via", &closed, "--via", &at, &place];
        let ended = Program::start(test, &words).end();
        assert_eq!((ended.status, &ended.stdout[..]), (Some(0), "f\n"), "{ended:?}");
    });
}

//! The gateway as a program.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use longhaul_needs::needs;
use rustix::process::Signal;

use crate::program::Program;
use crate::test::{Test, limited};

/// A gateway with `words`, and its addresses.
pub fn gateway<'t>(test: &'t Test, words: &[&str], doors: usize) -> (Program<'t>, Vec<SocketAddr>) {
    let fixed = ["gateway", "serve", "--allow", "127.0.0.0/8"];
    let mut program = Program::start(test, &[&fixed[..], words].concat());
    let mut addresses = Vec::new();
    crate::test::until("a gateway that listens", || {
        let text = program.says("listening on ");
        let lines = text.lines().filter_map(|line| line.strip_prefix("listening on "));
        addresses = lines.map(|at| at.parse().unwrap()).collect();
        (addresses.len() == doors).then_some(())
    });
    (program, addresses)
}

/// Serves one file over HTTP to each client that comes.
pub fn web(contents: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, contents) = (stream.unwrap(), contents.clone());
            thread::spawn(move || {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ";
                write!(stream, "{head}{}\r\n\r\n", contents.len()).unwrap();
                stream.write_all(&contents).unwrap();
            });
        }
    });
    address
}

#[needs(curl)]
#[test]
fn curl_fetches_a_file_by_socks_through_two_gateways() {
    limited(|test| {
        let contents: Vec<u8> = (0..30_000_000u32).map(|i| (i % 251) as u8).collect();
        let target = web(contents.clone());
        fs::write(test.path("passwords"), "alice:a secret\n").unwrap();
        let listen = ["--listen", "127.0.0.1:0", "--token-file", "token"];
        let (far, at_far) = gateway(test, &listen, 1);
        let via = at_far[0].to_string();
        let socks = ["--socks", "127.0.0.1:0", "--socks-password-file", "passwords"];
        let via = ["--via", &via, "--via-token-file", "token", "--json"];
        let (near, at_near) = gateway(test, &[&socks[..], &via].concat(), 1);

        let fetch = |user: &str| {
            let proxy = format!("socks5h://{user}@{}", at_near[0]);
            // The far gateway resolves the name.
            let url = format!("http://localhost:{}/", target.port());
            Command::new("curl").args(["-4", "-s", "--proxy", &proxy, &url]).output().unwrap()
        };
        let fetched = fetch("alice:a%20secret");
        assert!(fetched.status.success() && fetched.stdout == contents);
        let refused = fetch("alice:guess");
        assert!(!refused.status.success() && refused.stdout.is_empty());

        for program in [near, far] {
            program.signal(Signal::TERM);
            let ended = program.end();
            ended.assert_succeeded();
            if !ended.stdout.is_empty() {
                let counts = ended.json();
                assert_eq!((&counts["sessions"], &counts["refused"]), (&2.into(), &1.into()));
                assert!(counts["bytes_back"].as_u64().unwrap() > 30_000_000, "{counts}");
            }
        }
    });
}

#[test]
fn both_ends_see_a_reset_when_a_gateway_is_killed() {
    limited(|test| {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let forward = format!("127.0.0.1:0={}", target.local_addr().unwrap());
        let (program, at) = gateway(test, &["--forward", &forward], 1);
        let mut client = TcpStream::connect(at[0]).unwrap();
        let (mut server, _) = target.accept().unwrap();
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        program.signal(Signal::KILL);
        for stream in [&mut client, &mut server] {
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn what_a_gateway_cannot_do_is_said_before_it_listens() {
    limited(|test| {
        fs::write(test.path("bad"), "no password here\n").unwrap();
        for (words, part) in [
            (
                &["--allow", "everything"][..],
                "--allow everything: \"everything\" is not an address",
            ),
            (&["--allow", "10.0.0.0/8"], "nothing to do"),
            (&["--allow", "10.0.0.0/8", "--listen", "127.0.0.1:0"], "--token-file"),
            (&["--allow", "10.0.0.0/8", "--socks", "0.0.0.0:0"], "open to everybody"),
            (&["--allow", "10.0.0.0/8", "--forward", "0.0.0.0:0=h:1"], "open to everybody"),
            (&["--allow", "10.0.0.0/8", "--forward", "x"], "expected [ADDR:]PORT=HOST:PORT"),
            (
                &["--allow", "10.0.0.0/8", "--socks", "127.0.0.1:0", "--via", "gw"],
                "--via-token-file",
            ),
            (
                &["--allow", "10.0.0.0/8", "--socks", "127.0.0.1:0", "--congestion", "nosuch"],
                "--congestion nosuch: this kernel does not have that congestion control",
            ),
        ] {
            let words = [&["gateway", "serve"], words].concat();
            let ended = Program::start(test, &words).end();
            assert_eq!(ended.status, Some(2), "{words:?}: {ended:?}");
            assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
        }
        let socks = ["--allow", "10.0.0.0/8", "--socks", "127.0.0.1:0"];
        let words = [&["gateway", "serve", "--socks-password-file", "bad"], &socks[..]].concat();
        let ended = Program::start(test, &words).end();
        ended.assert_failed("bad: line 1 is not USER:PASSWORD");
    });
}

#[test]
fn a_file_configures_a_gateway_and_is_read_again_at_a_signal() {
    limited(|test| {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = target.local_addr().map(|at| (target, at)).unwrap();
        let file = |rest: &str| {
            let forward = format!("forward = [\"0={}\"]\n", target.1);
            fs::write(test.path("gateway.toml"), forward + rest).unwrap();
        };
        let words = ["gateway", "serve", "--config", "gateway.toml"];
        file("allow = [\"127.0.0.1\"]\n");
        let mut program = Program::start(test, &words);
        let text = program.says("listening on ");
        let at = text.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
        let at: SocketAddr = at.parse().unwrap();
        let session = || {
            let client = TcpStream::connect(at).unwrap();
            let (server, _) = target.0.accept().unwrap();
            (client, server)
        };
        let echoes = |(client, server): &mut (TcpStream, TcpStream)| {
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
        };
        let mut before = session();
        echoes(&mut before);

        file("allow = [\"127.0.0.1\"]\nmax_sessions = 0\n");
        program.signal(Signal::HUP);
        program.says("gateway.toml: line 3: max_sessions 0: expected at least 1");
        echoes(&mut session());
        file("allow = [\"127.0.0.9\"]\n");
        program.signal(Signal::HUP);
        program.says("the configuration was read again");
        let mut refused = TcpStream::connect(at).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        echoes(&mut before);
        drop(before);
        program.signal(Signal::TERM);
        program.end().assert_succeeded();
    });
}

#[test]
fn check_says_everything_that_is_wrong_with_a_file_by_line() {
    limited(|test| {
        let check = |text: &str| {
            fs::write(test.path("gateway.toml"), text).unwrap();
            Program::start(test, &["gateway", "check", "gateway.toml", "--json"]).end()
        };
        let sound = "listen = [\"127.0.0.1\"]\ntoken_file = \"token\"\nallow = [\"10.0.0.0/8\"]\n";
        check(sound).assert_succeeded();
        let ended =
            check(&format!("{sound}rate = \"fast\"\n[[route]]\nto = [\"a b\"]\nvia = []\n"));
        assert_eq!(ended.status, Some(2), "{ended:?}");
        for line in ["gateway.toml: line 4: rate fast: ", "gateway.toml: line 6: to a b: "] {
            assert!(ended.stderr.contains(line), "{ended:?}");
        }
        check(&sound.replace("\"token\"", "\"none\"")).assert_failed("line 2: token_file none: ");
        let both = ["gateway", "serve", "--config", "gateway.toml", "--allow", "10.0.0.0/8"];
        assert_eq!(Program::start(test, &both).end().status, Some(2));
    });
}

/// A server, two gateways on the path to it, and what `--via` says.
struct Chain<'t> {
    near: Program<'t>,
    far: Program<'t>,
    _server: Program<'t>,
    server: SocketAddr,
    via: String,
}

fn chain(test: &Test) -> Chain<'_> {
    let (_server, server) = Program::serve(test, "127.0.0.1:0", &[]);
    // The gateways have a token of their own, which the server does not know.
    fs::write(test.path("gateway-token"), crate::test::token(9).to_string()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(test.path("gateway-token"), private).unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--token-file", "gateway-token", "-v"];
    let (far, at_far) = gateway(test, &listen, 1);
    let (near, at_near) = gateway(test, &[&listen[..], &["--name", "near"]].concat(), 1);
    let via = format!("near@{},{}", at_near[0], at_far[0]);
    Chain { near, far, _server, server, via }
}

#[test]
fn copies_go_there_and_back_through_two_gateways() {
    limited(|test| {
        let mut chain = chain(test);
        let contents: Vec<u8> = (0..5_000_000u32).map(|i| (i % 249) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let there = format!("lh://{}/copy", chain.server);
        let through = ["--via", &chain.via, "--via-token-file", "gateway-token", "--lanes", "2"];
        for (from, to) in [("here/file", &*there), (&*there, "here/back")] {
            let ended = Program::cp(test, &[&through[..], &[from, to]].concat()).end();
            ended.assert_succeeded();
            assert_eq!(ended.json()["carrier"], "tcp");
        }
        assert!(fs::read(test.here("back")).unwrap() == contents);
        // One control and two data connections of each copy went that way.
        for gateway in [&mut chain.near, &mut chain.far] {
            crate::test::until("all sessions to end", || {
                let ended =
                    gateway.stderr_so_far().matches(&format!(" {}: ", chain.server)).count();
                (ended == 6).then_some(())
            });
        }
    });
}

#[test]
fn what_gateways_refuse_is_said_with_the_gateway_and_what_would_help() {
    limited(|test| {
        let chain = chain(test);
        fs::write(test.here("file"), "x").unwrap();
        let there = format!("lh://{}/copy", chain.server);
        let cp = |via: &str, more: &[&str], to: &str| {
            let words = ["--via", via, "here/file", to];
            Program::cp(test, &[more, &words].concat()).end()
        };
        let ours = ["--via-token-file", "gateway-token"];
        cp(&chain.via, &[], &there).assert_failed("does not accept this token: name another");
        let far = chain.via.split(',').nth(1).unwrap();
        let unnamed = chain.via.replace("near@", "");
        cp(&unnamed, &ours, &there).assert_failed("gateway near: the gateway has another name");
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let ended = cp(&chain.via, &ours, &format!("lh://{nowhere}/x"));
        ended.assert_failed(&format!(
            "gateway {far}: could not reach {nowhere}: connection refused"
        ));
        let ended = cp(&format!("{far},{nowhere}"), &ours, &there);
        ended.assert_failed(&format!(
            "gateway {far}: could not reach {nowhere}: connection refused"
        ));
        cp(&chain.server.to_string(), &ours, &there).assert_failed("");
        let udp = cp(&chain.via, &["--carrier", "udp"], &there);
        assert_eq!(udp.status, Some(2), "{udp:?}");
        let unknown = cp("gw:0", &[], &there);
        assert_eq!(unknown.status, Some(2), "{unknown:?}");
        assert!(unknown.stderr.contains("--via gw:0: expected a gateway"), "{unknown:?}");
    });
}

#[test]
fn a_copy_goes_on_directly_after_its_gateway_was_killed() {
    limited(|test| {
        let chain = chain(test);
        let contents: Vec<u8> = (0..60_000_000u32).map(|i| (i % 241) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let there = format!("lh://{}/copy", chain.server);
        let through = ["--via", &chain.via, "--via-token-file", "gateway-token"];
        let words = [&through[..], &["--rate", "200Mbps", "here/file", &there]].concat();
        let copying = Program::cp(test, &words);
        crate::test::until("data to arrive", || {
            let hidden = fs::read_dir(test.path("there")).unwrap().next()?.unwrap().path();
            let parts = fs::read_dir(hidden).ok()?.filter_map(Result::ok);
            parts
                .filter(|part| part.metadata().is_ok_and(|part| part.len() > 1 << 20))
                .count()
                .checked_sub(1)
        });
        chain.far.signal(Signal::KILL);
        let ended = copying.end();
        ended.assert_failed("");
        let ended = Program::cp(test, &["here/file", &there]).end();
        ended.assert_succeeded();
        assert!(fs::read(test.there("copy")).unwrap() == contents);
    });
}

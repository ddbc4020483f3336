//! The gateway as a program.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
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
        let text = program.prints("listening on ");
        let lines = text.lines().filter_map(|line| line.strip_prefix("listening on "));
        addresses = lines.map(|at| at.parse().unwrap()).collect();
        (addresses.len() == doors).then_some(())
    });
    (program, addresses)
}

/// Serves one file over HTTP to each client that comes.
pub fn web(at: &str, contents: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((at, 0)).unwrap();
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
        let target = web("127.0.0.1", contents.clone());
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
                assert_eq!((&counts["sessions"], &counts["refused"]), (&1.into(), &1.into()));
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
fn sessions_that_a_stop_cuts_are_counted_as_reset_and_strangers_are_no_sessions() {
    limited(|test| {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let forward = format!("127.0.0.1:0={}", target.local_addr().unwrap());
        let listen = ["--listen", "127.0.0.1:0", "--token-file", "token"];
        for (drain, at_once) in [("0", false), ("60", true)] {
            let rest = ["--forward", &forward, "--drain", drain, "--json", "-v"];
            let (mut program, at) = gateway(test, &[&listen[..], &rest].concat(), 2);
            let stranger = TcpStream::connect(at[0]).unwrap();
            let mut sessions: Vec<(TcpStream, TcpStream)> = Vec::new();
            for _ in 0..3 {
                let client = TcpStream::connect(at[1]).unwrap();
                sessions.push((client, target.accept().unwrap().0));
            }
            let (mut client, mut server) = sessions.swap_remove(0);
            client.write_all(b"hello").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(server.read_to_end(&mut Vec::new()).unwrap(), 5);
            drop(server);
            assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
            program.prints(": done, ");
            sessions[0].0.write_all(b"more").unwrap();
            sessions[0].1.read_exact(&mut [0; 4]).unwrap();
            program.signal(Signal::TERM);
            program.prints("stopping (once more to stop at once)");
            let again = rustix::process::Pid::from_raw(program.id().cast_signed()).unwrap();
            let ended = program.end_watched(|| {
                // Signals of one moment are one.
                if at_once {
                    rustix::process::kill_process(again, Signal::TERM).unwrap();
                }
            });
            assert_eq!(ended.status, Some(i32::from(at_once)), "{ended:?}");
            let counts = ended.json();
            for (name, count) in [("sessions", 3), ("failed", 0), ("refused", 0), ("reset", 2)] {
                assert_eq!(counts[name], count, "{name}: {counts}");
            }
            assert_eq!(counts["bytes_there"], if at_once { 5 } else { 9 }, "{counts}");
            drop(stranger);
        }
    });
}

#[test]
fn a_gateway_reports_what_it_cannot_do_before_it_listens() {
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
        let text = program.prints("listening on ");
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
        program.prints(
            "gateway.toml: line 3: max_sessions 0: expected a whole number from 1 to 100000",
        );
        echoes(&mut session());
        file("allow = [\"127.0.0.9\"]\n");
        program.signal(Signal::HUP);
        program.prints("the configuration was read again");
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

#[test]
fn a_gateway_with_few_descriptors_answers_those_for_whom_there_are_none() {
    limited(|test| {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let words = ["gateway", "serve", "--allow", "127.0.0.1", "--socks", "127.0.0.1:0"];
        let mut program = Program::start_within(test, "-n 256", &words);
        let text = program.prints("listening on ");
        assert!(text.contains("for 21 sessions, not 1024"), "{text}");
        let at = text.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
        let at: SocketAddr = at.parse().unwrap();
        let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut request = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01".to_vec();
        request.extend_from_slice(&target.local_addr().unwrap().port().to_be_bytes());
        let mut sessions = Vec::new();
        for number in 0..30 {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(&request).unwrap();
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[3], u8::from(number >= 21), "session {number}");
            sessions.push(stream);
        }
        drop((silent, sessions));
        program.signal(Signal::TERM);
        program.end().assert_succeeded();
    });
}

#[test]
fn a_gateway_that_could_serve_nobody_does_not_start_and_readable_passwords_are_warned_of() {
    limited(|test| {
        fs::write(test.path("passwords"), "alice:a secret\n").unwrap();
        fs::set_permissions(test.path("passwords"), fs::Permissions::from_mode(0o644)).unwrap();
        let words = ["gateway", "serve", "--allow", "127.0.0.1", "--socks", "127.0.0.1:0"];
        let words = [&words[..], &["--socks-password-file", "passwords"]].concat();
        let ended = Program::start_within(test, "-n 70", &words).end();
        ended.assert_failed("no session could pass: 70 descriptors");
        assert!(ended.stderr.contains("others can read the passwords in passwords"), "{ended:?}");
    });
}

#[test]
fn status_shows_the_sessions_of_a_gateway_to_people_and_to_programs() {
    limited(|test| {
        let target = TcpListener::bind("127.0.0.1:0").unwrap();
        let forward = format!("0={}", target.local_addr().unwrap());
        let (mut program, at) = gateway(test, &["--forward", &forward, "--metrics", "0"], 1);
        let text = program.prints("metrics at http://");
        let metrics = text.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap();
        let mut client = TcpStream::connect(at[0]).unwrap();
        let (mut server, _) = target.accept().unwrap();
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        let ended = Program::start(test, &["gateway", "status", metrics, "--json"]).end();
        ended.assert_succeeded();
        let session = &ended.json()["sessions"][0];
        assert_eq!(session["target"], target.local_addr().unwrap().to_string());
        assert_eq!(session["bytes_there"], 5);
        let ended = Program::start(test, &["gateway", "status", metrics]).end();
        ended.assert_succeeded();
        let expected =
            format!("127.0.0.1 -> {}: 5 B there, 0 B back", target.local_addr().unwrap());
        assert!(ended.stdout.contains(&expected), "{ended:?}");
        let nobody = Program::start(test, &["gateway", "status", "127.0.0.1:1"]).end();
        nobody.assert_failed("it was started with --metrics");
    });
}

#[test]
fn a_server_knows_clients_behind_a_trusted_proxy_and_takes_nobodys_word_but_its() {
    limited(|test| {
        let words =
            ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--token-file", "token"];
        let mut trusting =
            Program::start(test, &[&words[..], &["--trust-proxy", "127.0.0.1"]].concat());
        let mut wary = Program::start(test, &words);
        let (at, at_wary) = (trusting.listens(), wary.listens());
        let file = "listen = [\"127.0.0.1:0\"]\ntoken_file = \"token\"\nallow = [\"127.0.0.1\"]\n\
                    [[route]]\nto = [\"127.0.0.1\"]\nproxy_protocol = true\n";
        fs::write(test.path("gateway.toml"), file).unwrap();
        let mut gateway = Program::start(test, &["gateway", "serve", "--config", "gateway.toml"]);
        let text = gateway.prints("listening on ");
        let via = text.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
        fs::write(test.here("file"), "contents").unwrap();
        let copy = |words: &[&str], to: SocketAddr| {
            let to = format!("lh://{to}/copy");
            Program::cp(test, &[words, &["here/file", &to]].concat()).end()
        };
        let through = ["--via", via];
        copy(&through, at).assert_succeeded();
        assert_eq!(fs::read(test.there("copy")).unwrap(), b"contents");
        assert_ne!(copy(&["--carrier", "tcp"], at).status, Some(0));
        trusting.prints("it sends no PROXY header, as a trusted proxy has to");
        assert_ne!(copy(&through, at_wary).status, Some(0));
        wary.prints("it sends a PROXY header, and its address is not among --trust-proxy");

        let mut proxy = TcpStream::connect(at).unwrap();
        let client = "192.0.2.77:1234".parse().unwrap();
        proxy.write_all(&longhaul_relay::proxy::encode(client, at)).unwrap();
        proxy.write_all(b"nonsense").unwrap();
        trusting.prints("192.0.2.77:1234: refused: ");
    });
}

#[needs(namespaces)]
#[test]
fn a_session_survives_a_path_that_is_dark_for_five_seconds() {
    limited(|test| {
        let contents: Vec<u8> = (0..10_000_000u32).map(|i| (i % 247) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-e", "-c", DARK, crate::program::PROGRAM]);
        Program::spawn(test, &mut command).end().assert_succeeded();
        assert!(fs::read(test.there("copy")).unwrap() == contents);
        let log = fs::read_to_string(test.path("gateway.log")).unwrap();
        assert!(!log.contains("acknowledges nothing"), "{log}");
    });
}

/// A copy through a gateway to a namespace whose link is down for a while; `$0` is the program.
const DARK: &str = r#"
ip link set lo up
unshare -n sleep 300 &
host=$!
trap 'kill $host $server $gateway' EXIT
until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
there="nsenter -t $host -n"
ip link add a0 type veth peer name b0 netns $host
ip addr add 10.77.0.1/24 dev a0
ip link set a0 up
$there ip addr add 10.77.0.2/24 dev b0
$there ip link set b0 up
$there "$0" serve --listen 0.0.0.0:7420 --root there --token-file token 2> log &
server=$!
"$0" gateway serve --listen 127.0.0.1:7421 --token-file token --allow 10.77.0.2 2> gateway.log &
gateway=$!
until grep -q listening log && grep -q listening gateway.log; do sleep 0.1; done
"$0" cp --rate 20Mbps --via 127.0.0.1 --token-file token here/file lh://10.77.0.2/copy &
copying=$!
count() { awk '$1 == "a0:" { print $10 }' /proc/net/dev; }
until [ $(count) -gt 1000000 ]; do kill -0 $copying; sleep 0.05; done
$there ip link set b0 down
sleep 5
$there ip link set b0 up
wait $copying
"#;

/// A server, two gateways on the path to it, and the value of `--via`.
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
    let listen = ["--listen", "127.0.0.1:0", "--token-file", "gateway-token", "-v", "--json"];
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
fn good_copies_and_pipes_end_every_session_in_order_at_each_gateway() {
    limited(|test| {
        let chain = chain(test);
        fs::write(test.here("file"), vec![7; 2_000_000]).unwrap();
        let far = chain.via.split(',').nth(1).unwrap();
        let there = format!("lh://{}/copy", chain.server);
        for round in 0..12 {
            for via in [&chain.via, far] {
                let through = ["--via", via, "--via-token-file", "gateway-token", "--lanes", "2"];
                let back = format!("here/back-{round}");
                for (from, to) in [("here/file", &*there), (&*there, &*back)] {
                    Program::cp(test, &[&through[..], &[from, to]].concat())
                        .end()
                        .assert_succeeded();
                }
                fs::remove_file(test.path(&back)).unwrap();
                fs::remove_file(test.there("copy")).unwrap();
            }
        }
        let through = ["--via", &chain.via, "--via-token-file", "gateway-token"];
        let receiver = [&through[..], &["--receive"]].concat();
        let file = || fs::File::open(test.here("file")).unwrap();
        let receiver = Program::pipe(test, &receiver, chain.server, Stdio::null(), Stdio::piped());
        let sender = Program::pipe(test, &through, chain.server, file(), Stdio::piped());
        assert_eq!((sender.end().status, receiver.end().status), (Some(0), Some(0)));
        // Of each copy a control and two data connections, of each end of the pipe one of both.
        for (gateway, sessions) in [(chain.near, 76), (chain.far, 148)] {
            crate::test::until("all sessions to end", || {
                let log = gateway.stderr_so_far();
                (log.matches(": done, ").count() == sessions).then_some(())
            });
            gateway.signal(Signal::TERM);
            let ended = gateway.end();
            ended.assert_succeeded();
            assert!(!ended.stderr.contains("closed before"), "{ended:?}");
            let counts = ended.json();
            for (name, count) in
                [("sessions", sessions), ("failed", 0), ("refused", 0), ("reset", 0)]
            {
                assert_eq!(counts[name], count, "{name}: {counts}");
            }
        }
    });
}

#[test]
fn a_refusal_of_a_gateway_names_the_gateway_and_what_would_help() {
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
fn a_gateway_that_accepts_and_never_answers_is_named_to_cp_and_ends_socks_and_forwarded_clients() {
    limited(|test| {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let via = silent.local_addr().unwrap().to_string();
        fs::write(test.here("file"), "x").unwrap();
        let words = ["--via", &via, "here/file", "lh://127.0.0.1:9/copy"];
        let copying = Program::cp(test, &words);
        let doors = ["--socks", "127.0.0.1:0", "--forward", "127.0.0.1:0=127.0.0.1:9"];
        let via_words = ["--via", &via, "--via-token-file", "token"];
        let (mut near, at) = gateway(test, &[&doors[..], &via_words].concat(), 2);
        let mut socks = TcpStream::connect(at[0]).unwrap();
        let mut forwarded = TcpStream::connect(at[1]).unwrap();
        socks.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x09").unwrap();
        let mut reply = [0; 12];
        socks.read_exact(&mut reply).unwrap();
        // "Host unreachable".
        assert_eq!(reply[..4], [5, 0, 5, 4]);
        let error = forwarded.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        near.prints(&format!("timeout to {via}: it did not answer in time"));
        copying.end().assert_failed(&format!("gateway {via} gave no answer in 30 s"));
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

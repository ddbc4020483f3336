//! Programs that know of no gateways, led through them by `longhaul gateway run`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::SystemTime;

use longhaul_needs::needs;
use longhaul_relay::{Answer, Clock, Gatekeeper, Received, Status};
use rustix::process::Signal;

use crate::gateway::{gateway, web};
use crate::program::{Ended, PROGRAM, Program};
use crate::test::{Test, limited};

/// The folder of the preload and of the library for C, as they are now: cargo builds them for no test.
pub fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "longhaul-preload"]);
        build.args(["-p", "longhaul-relay-c", "--target-dir"]).arg(target);
        assert!(build.current_dir(sources()).status().unwrap().success());
        target.join("debug")
    })
}

/// The workspace.
pub fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Our own client, compiled.
fn client(test: &Test) -> String {
    compile(test, &sources().join("tests/e2e/preload/client.c"), &[])
}

/// The client that uses the library for C.
fn library(test: &Test) -> String {
    let include = format!("-I{}", sources().join("bindings/c/include").display());
    let library = libraries().join("liblonghaul_relay_c.a").display().to_string();
    let words = ["-Wall", "-Wextra", "-Werror", &include, &library, "-ldl", "-lm"];
    compile(test, &sources().join("tests/e2e/preload/library.c"), &words)
}

fn compile(test: &Test, source: &Path, words: &[&str]) -> String {
    let program = test.path(source.file_stem().unwrap().to_str().unwrap());
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).args([&program, source]).args(words);
    assert!(compiler.status().unwrap().success());
    program.display().to_string()
}

/// Sends what comes back to who sent it, each direction to its own end.
fn echo() -> SocketAddr {
    serve(|mut stream| back(&mut stream))
}

/// An address where nobody listens: a port that was free a moment ago another test may have by now.
pub fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

fn back(stream: &mut TcpStream) {
    let mut buffer = [0; 65536];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// Speaks first.
fn speaker(len: usize) -> SocketAddr {
    serve(move |mut stream| {
        let text: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        stream.write_all(&text).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0]);
    })
}

fn serve(work: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, work) = (stream.unwrap(), work.clone());
            thread::spawn(move || work(stream));
        }
    });
    address
}

/// Two gateways; `via` leads through both.
pub struct Route<'t> {
    test: &'t Test,
    near: Program<'t>,
    far: Program<'t>,
    at: [SocketAddr; 2],
}

impl<'t> Route<'t> {
    pub fn new(test: &'t Test) -> Self {
        let listen = ["--listen", "127.0.0.1:0", "--token-file", "token", "--json"];
        let (far, at_far) = gateway(test, &listen, 1);
        let (near, at_near) = gateway(test, &[&listen[..], &["--name", "near"]].concat(), 1);
        Self { test, near, far, at: [at_near[0], at_far[0]] }
    }

    pub fn via(&self) -> String {
        format!("near@{},{}", self.at[0], self.at[1])
    }

    /// The address at which the first one listens.
    pub fn near(&self) -> SocketAddr {
        self.at[0]
    }

    fn run(&self, words: &[&str]) -> Ended {
        let via = self.via();
        let options = ["--via", &via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
        run(self.test, &options, words)
    }

    /// Sessions that the first gateway carried, and bytes there and back.
    pub fn counts(self) -> [u64; 3] {
        self.counts_of_both()[0]
    }

    pub fn counts_of_both(self) -> [[u64; 3]; 2] {
        [self.near, self.far].map(|gateway| {
            gateway.signal(Signal::TERM);
            let counts = gateway.end().json();
            ["sessions", "bytes_there", "bytes_back"].map(|name| counts[name].as_u64().unwrap())
        })
    }
}

fn run(test: &Test, options: &[&str], words: &[&str]) -> Ended {
    begin(test, options, words).end()
}

pub fn begin<'t>(test: &'t Test, options: &[&str], words: &[&str]) -> Program<'t> {
    let mut command = Command::new(PROGRAM);
    command.env("LONGHAUL_PRELOAD", libraries().join("liblonghaul_preload.so"));
    command.args(["gateway", "run"]).args(options).arg("--").args(words);
    Program::spawn(test, &mut command)
}

fn words<'a>(
    client: &'a str,
    at: SocketAddr,
    port: &'a mut String,
    mode: &[&'a str],
) -> Vec<&'a str> {
    assert!(at.ip().is_loopback());
    *port = at.port().to_string();
    [&[client, "127.0.0.1", port], mode].concat()
}

#[test]
fn a_program_with_threads_and_children_is_led_through_gateways() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let ended = route.run(&words(&client, echo(), &mut port, &["family"]));
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        assert_eq!(ended.stderr, "");
        assert_eq!(route.counts()[0], 8 * 20 + 2);
    });
}

#[test]
fn a_program_that_asks_by_connect_again_has_its_stream_untouched() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let ended = route.run(&words(&client, echo(), &mut port, &["twice"]));
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        assert_eq!(route.counts()[0], 2);
    });
}

#[test]
fn an_edge_triggered_program_that_speaks_first_loses_no_byte() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let ended = route.run(&words(&client, echo(), &mut port, &["speaks", "20000000"]));
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        assert_eq!(route.counts(), [1, 20_000_000, 20_000_000]);
    });
}

#[test]
fn an_edge_triggered_program_that_only_listens_is_spoken_to() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        // Payload right behind the answer, and none at all.
        for len in ["0", "1", "5000000"] {
            let at = speaker(len.parse().unwrap());
            let ended = route.run(&words(&client, at, &mut port, &["listens", len]));
            assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        }
        assert_eq!(route.counts()[0], 3);
    });
}

#[test]
fn a_program_that_blocks_after_a_timed_connect_is_not_woken_by_the_answer() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let at = echo();
        for how in ["fcntl", "ioctl"] {
            let ended = route.run(&words(&client, at, &mut port, &["blocking-again", how]));
            assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        }
        assert_eq!(route.counts()[0], 2);
    });
}

#[test]
fn the_errno_of_the_far_end_arrives_from_wherever_a_program_looks_for_it() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let nobody = nobody();
        for from in
            ["connect", "SO_ERROR", "read", "write", "again", "writable, again", "getpeername"]
        {
            let ended = route.run(&words(&client, nobody, &mut port, &["failure", from]));
            assert_eq!(ended.stdout, format!("{from}: ECONNREFUSED\n"), "{ended:?}");
            // As without gateways, no message has to name it.
            assert_eq!(ended.stderr, "");
        }
        // A refusal by the far gateway is its own, and is printed.
        let outside = "127.0.0.1:9".parse().unwrap();
        let serve = ["gateway", "serve", "--allow", "192.0.2.0/24", "--listen", "127.0.0.1:0"];
        let mut strict = Program::start(test, &[&serve[..], &["--token-file", "token"]].concat());
        let listening = strict.prints("listening on ");
        let at = listening.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap();
        let options = ["--via", at, "--via-token-file", "token", "--to", "127.0.0.0/8"];
        let ended =
            run(test, &options, &words(&client, outside, &mut port, &["failure", "connect"]));
        assert_eq!(ended.stdout, "connect: EACCES\n");
        assert!(ended.stderr.contains("the gateway may not go there"), "{ended:?}");
    });
}

#[test]
fn a_program_without_a_gateway_connects_directly_only_where_that_is_allowed() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let nobody = nobody().to_string();
        let beyond = format!("near@{},{nobody}", route.at[0]);
        let at = echo();
        for via in [&nobody, &beyond] {
            let options = ["--via", via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
            let ended = run(test, &options, &words(&client, at, &mut port, &["echo"]));
            assert_eq!(ended.stdout, "connect: ENETUNREACH\n", "{ended:?}");
            assert!(ended.stderr.contains("connection refused"), "{ended:?}");
            let options = [&options[..], &["--direct-if-unreachable"]].concat();
            for mode in [&["echo"][..], &["blocking-again", "fcntl"]] {
                let ended = run(test, &options, &words(&client, at, &mut port, mode));
                assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
                assert!(ended.stderr.contains("connecting directly"), "{ended:?}");
            }
        }
    });
}

/// A gateway whose clock is an hour ahead, and which is the target itself: it echoes. Before it refuses
/// a clock, so much payload has come.
fn gateway_of_later(early: usize) -> SocketAddr {
    gateway_of_later_to(early, |mut stream, _, came| {
        stream.write_all(came).unwrap();
        back(&mut stream);
    })
}

/// The same, which leads its sessions, of which so much has come, to their targets by `lead`.
pub fn gateway_of_later_to(
    early: usize,
    lead: impl Fn(TcpStream, Option<SocketAddr>, &[u8]) + Send + Clone + 'static,
) -> SocketAddr {
    let keys = [&crate::test::token(1)].into_iter().collect();
    let keeper = Arc::new(Mutex::new(Gatekeeper::new(keys, None, Clock::from_micros(0))));
    let refused = Arc::new(AtomicBool::new(false));
    serve(move |mut stream| {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = Clock::from_micros((since.as_secs() + 3600) * 1_000_000);
        let local = stream.local_addr().unwrap().into();
        let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            came.extend_from_slice(&buffer[..len]);
            let header =
                8 + came.get(6..8).map_or(0, |len| usize::from(len[0]) << 8 | usize::from(len[1]));
            let has_refused = refused.load(Ordering::Relaxed);
            if !has_refused && came.len() < header + early {
                continue;
            }
            match keeper.lock().unwrap().receive(&came, &local, now) {
                Received::Incomplete => {}
                Received::Refused(refusal) => {
                    assert_eq!(refusal.answer.status, Status::WRONG_CLOCK);
                    refused.store(true, Ordering::Relaxed);
                    stream.write_all(&refusal.bytes).unwrap();
                    // The client may have left already.
                    let _ = stream.shutdown(Shutdown::Write);
                    while let Ok(1..) = stream.read(&mut buffer) {}
                    return;
                }
                Received::Header(request) => {
                    let peer = Some(stream.local_addr().unwrap());
                    let answer = Answer { peer, ..Answer::new(Status::CONNECTED, "later") };
                    stream.write_all(&request.sign(&answer)).unwrap();
                    let target = request.header.target.place.address();
                    return lead(stream, target, &came[request.length..]);
                }
            }
        }
    })
}

#[test]
fn a_gateway_whose_clock_differs_is_dialled_again_on_the_same_socket() {
    limited(|test| {
        let (client, mut port) = (client(test), String::new());
        let at = gateway_of_later(0);
        let via = at.to_string();
        let options = ["--via", &via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
        for mode in [&["echo"][..], &["blocking-again", "fcntl"]] {
            let ended = run(test, &options, &words(&client, at, &mut port, mode));
            assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
            assert_eq!(ended.stderr, "");
        }
        let library = library(test);
        let mut command = Command::new(&library);
        let ended = Program::spawn(test, command.args([&via, "token", &via, "blocking"])).end();
        assert_eq!(ended.stdout, "there and back\n");
    });
}

#[test]
fn bytes_that_a_program_wrote_before_the_answer_go_out_again_where_a_gateways_clock_differs() {
    limited(|test| {
        let (client, mut port) = (client(test), String::new());
        let speak = |early: usize, port: &mut String, mode: &[&str]| {
            let at = gateway_of_later(early);
            let via = at.to_string();
            let options = ["--via", &via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
            run(test, &options, &words(&client, at, port, mode))
        };
        // All of it, and its end with it, had been taken.
        let ended = speak(60_000, &mut port, &["speaks", "60000"]);
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        let ended = speak(1, &mut port, &["speaks", "3"]);
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        // More than is kept, and what cannot be: the answer comes first.
        for (early, mode) in [(60_000, ["speaks", "1000000"]), (0, ["sends-file", "50000"])] {
            let ended = speak(early, &mut port, &mode);
            assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
            assert_eq!(ended.stderr, "");
        }
    });
}

#[test]
fn a_gateway_that_accepts_and_never_answers_is_given_up_in_a_time_that_is_documented() {
    limited(|test| {
        let (client, mut port) = (client(test), String::new());
        let at = echo();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let via = silent.local_addr().unwrap().to_string();
        let options = ["--via", &via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
        let direct = [&options[..], &["--direct-if-unreachable"]].concat();
        let words = words(&client, at, &mut port, &["echo"]);
        let refused = begin(test, &options, &words);
        let directly = begin(test, &direct, &words);
        let library = library(test);
        let at = at.to_string();
        let libraries = ["blocking", "ready", "parts"].map(|how| {
            let words = [&via, "token", &at, how];
            Program::spawn(test, Command::new(&library).args(words))
        });
        let silence = format!("gateway {via} gave no answer in 30 s");
        let ended = refused.end();
        assert_eq!(ended.stdout, "connect: ETIMEDOUT\n", "{ended:?}");
        assert!(ended.stderr.contains(&silence), "{ended:?}");
        let ended = directly.end();
        assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        assert!(ended.stderr.contains(&format!("{silence}; connecting directly")), "{ended:?}");
        for library in libraries {
            let ended = library.end();
            assert_eq!(ended.stdout, format!("Connection timed out: {silence}\n"), "{ended:?}");
        }
    });
}

#[test]
fn a_blocking_connect_goes_on_behind_signals_whose_handlers_want_that_and_ends_at_others() {
    limited(|test| {
        let (client, mut port) = (client(test), String::new());
        // A gateway whose answer comes when the program has had its signals.
        for (mode, expected) in [("restart", "done\n"), ("interrupt", "connect: EINTR\n")] {
            let keys = [&crate::test::token(1)].into_iter().collect();
            let keeper = Mutex::new(Gatekeeper::new(keys, None, Clock::from_micros(0)));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            let via = at.to_string();
            let options = ["--via", &via, "--via-token-file", "token", "--to", "127.0.0.0/8"];
            let words = words(&client, at, &mut port, &["signals", mode]);
            let mut program = begin(test, &options, &words);
            let (mut stream, _) = listener.accept().unwrap();
            let mut header = [0; 4096];
            let len = stream.read(&mut header).unwrap();
            crate::test::until("the program to sleep", || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", program.id())).unwrap();
                stat.contains(") S ").then_some(())
            });
            program.signal(Signal::USR1);
            program.prints("a signal came");
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let now = Clock::from_micros(since.as_micros() as u64);
            let received = keeper.lock().unwrap().receive(&header[..len], &at.into(), now);
            let Received::Header(request) = received else { panic!("{received:?}") };
            stream.write_all(&request.sign(&Answer::new(Status::CONNECTED, "slow"))).unwrap();
            let echoing = thread::spawn(move || back(&mut stream));
            assert_eq!(program.end().stdout, expected, "{mode}");
            echoing.join().unwrap();
        }
    });
}

#[test]
fn destinations_that_are_not_named_are_connected_to_directly() {
    limited(|test| {
        let (route, client, mut port) = (Route::new(test), client(test), String::new());
        let (via, at) = (route.via(), echo());
        for to in [&[][..], &["--to", "192.0.2.0/24"], &["--to", "127.0.0.0/8:1"]] {
            let options = [&["--via", &via, "--via-token-file", "token"], to].concat();
            let ended = run(test, &options, &words(&client, at, &mut port, &["echo"]));
            assert_eq!((ended.status, &*ended.stdout), (Some(0), "done\n"), "{ended:?}");
        }
        assert_eq!(route.counts()[0], 0);
    });
}

#[test]
fn the_environment_of_children_has_no_secret() {
    limited(|test| {
        let ended = Route::new(test).run(&["sh", "-c", "env"]);
        ended.assert_succeeded();
        let token = fs::read_to_string(test.path("token")).unwrap();
        assert!(ended.stdout.contains("LONGHAUL_PRELOAD_TOKEN_FILE=/"), "{ended:?}");
        assert!(!ended.stdout.contains(&token.trim()[4..16]), "{ended:?}");
    });
}

#[test]
fn programs_that_no_library_can_be_put_in_front_of_are_refused_with_the_reason() {
    limited(|test| {
        fs::write(test.path("main.c"), "int main(void) { return 0; }\n").unwrap();
        let route = Route::new(test);
        let fixed = compile(test, &test.path("main.c"), &["-static"]);
        route.run(&[&fixed]).assert_failed("linked statically");
        fs::write(test.path("script"), format!("#! {fixed}\n")).unwrap();
        fs::set_permissions(test.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
        route.run(&["./script"]).assert_failed("linked statically");
        route.run(&["no-such-program"]).assert_failed("no no-such-program in PATH");
        let ended = run(test, &["--via", "gw:0", "--via-token-file", "token"], &["true"]);
        assert_eq!(ended.status, Some(2), "{ended:?}");
    });
}

#[needs(root)]
#[test]
fn a_set_user_id_program_is_refused_since_the_system_would_load_no_library() {
    limited(|test| {
        let route = Route::new(test);
        fs::copy("/bin/true", test.path("other")).unwrap();
        std::os::unix::fs::chown(test.path("other"), Some(65534), None).unwrap();
        fs::set_permissions(test.path("other"), PermissionsExt::from_mode(0o4755)).unwrap();
        route.run(&["./other"]).assert_failed("set-user-id");
    });
}

#[needs(curl)]
#[test]
fn curl_fetches_a_file_through_two_gateways() {
    limited(|test| {
        let contents: Vec<u8> = (0..30_000_000u32).map(|i| (i % 251) as u8).collect();
        let (route, at) = (Route::new(test), web("127.0.0.1", contents.clone()));
        let (one, two) = (format!("http://{at}/"), format!("http://{at}/2"));
        let words = ["curl", "-sS", "--parallel", "--connect-timeout", "60", "-o", "1", "-o", "2"];
        route.run(&[&words[..], &[&one, &two]].concat()).assert_succeeded();
        for name in ["1", "2"] {
            assert!(fs::read(test.path(name)).unwrap() == contents);
        }
        let nobody = nobody();
        let ended = route.run(&["curl", "-sS", &format!("http://{nobody}/")]);
        // "Couldn't connect", or "failure in receiving": it connects without blocking.
        assert!([Some(7), Some(56)].contains(&ended.status), "{ended:?}");
        let [sessions, _, back] = route.counts();
        assert!(sessions == 3 && back > 60_000_000, "{sessions}, {back}");
    });
}

#[needs(gridftp)]
#[test]
fn globus_url_copy_is_led_through_two_gateways_with_its_data_channels() {
    limited(|test| {
        let contents: Vec<u8> = (0..30_000_000u32).map(|i| (i % 241) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let (_server, at) = gridftp_server(test, &mut Command::new("globus-gridftp-server"));
        let source = format!("file://{}", test.here("file").display());
        let target = format!("ftp://{at}{}", test.there("copy").display());
        let route = Route::new(test);
        let ended = route.run(&["globus-url-copy", "-fast", "-p", "4", &source, &target]);
        ended.assert_succeeded();
        assert!(fs::read(test.there("copy")).unwrap() == contents);
        let [sessions, there, _] = route.counts();
        assert!(sessions >= 5 && there > 30_000_000, "{sessions}, {there}");
    });
}

/// A GridFTP server for everybody on loopback, and where it listens.
pub fn gridftp_server<'t>(test: &'t Test, command: &mut Command) -> (Program<'t>, SocketAddr) {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    command.args(["-aa", "-allow-root", "-anonymous-user", "root", "-threads", "1"]);
    command.args(["-p", &at.port().to_string()]);
    command.args(["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]);
    let server = Program::spawn(test, command);
    await_listening(at);
    (server, at)
}

pub fn await_listening(at: SocketAddr) {
    crate::test::until("a server to listen", || match TcpStream::connect(at) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => None,
        _ => Some(()),
    });
}

#[test]
fn a_program_in_c_uses_the_library_by_waiting_by_readiness_and_by_parts() {
    limited(|test| {
        let program = library(test);
        // By address: the program leaves names to the library.
        let (route, at) = (Route::new(test), echo().to_string());
        let nobody = nobody().to_string();
        for how in ["blocking", "ready", "parts"] {
            let run = |via: &str, token: &str, target: &str| {
                let words = [via, token, target, how];
                Program::spawn(test, Command::new(&program).args(words)).end()
            };
            assert_eq!(run(&route.via(), "token", &at).stdout, "there and back\n");
            let refused = run(&route.via(), "token", &nobody);
            let words = format!("could not reach {nobody}: connection refused\n");
            assert!(refused.stdout.starts_with("Connection refused: gateway 127"), "{refused:?}");
            assert!(refused.stdout.ends_with(&words), "{refused:?}");
            assert!(run("gw:0", "token", &at).stdout.contains("expected a gateway"));
            assert!(
                run("gw", "no-file", &at).stdout.contains("cannot read the token file no-file")
            );
        }
        assert_eq!(route.counts()[0], 6);
    });
}

#[needs(iperf3)]
#[test]
fn iperf3_is_led_through_two_gateways_with_one_stream_or_eight_in_both_directions() {
    limited(|test| {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = at.port().to_string();
        let server = ["-s", "-B", "127.0.0.1", "-p", &port];
        let server = Program::spawn(test, Command::new("iperf3").args(server));
        await_listening(at);
        for (words, sessions) in [
            (&[][..], 2),
            (&["-R"], 2),
            (&["-P", "8"], 9),
            (&["-P", "8", "-R"], 9),
            (&["--connect-timeout", "60000"], 2),
        ] {
            let route = Route::new(test);
            let fixed = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-n", "20M", "-J"];
            let ended = route.run(&[&fixed[..], words].concat());
            assert_eq!(ended.status, Some(0), "{words:?}: {ended:?}");
            let report = ended.json();
            let received = report["end"]["sum_received"]["bytes"].as_u64().unwrap();
            assert!(received > 0, "{report}");
            let connected = &report["start"]["connected"];
            assert_eq!(connected.as_array().unwrap().len(), sessions - 1);
            assert_eq!(connected[0]["remote_port"].to_string(), port, "{report}");
            let [counted, there, back] = route.counts();
            assert_eq!(counted, sessions as u64, "{words:?}");
            assert!(there.max(back) >= received, "{words:?}: {there}, {back}, {received}");
        }
        server.signal(Signal::TERM);
    });
}

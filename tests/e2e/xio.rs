//! The Globus XIO driver, in GridFTP servers that know no more of gateways than their administrator
//! named when they were started.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use longhaul_needs::needs;

use crate::preload::{Route, gateway_of_later_to, gridftp_server, libraries, nobody, sources};
use crate::program::Program;
use crate::test::{Test, limited};

/// The folder of the driver.
pub fn driver() -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(sources().join("bindings/xio/build.sh"));
        assert!(build.arg(libraries()).status().unwrap().success());
    });
    libraries().into()
}

/// A server with the driver, whose data channels go by `stack` where nobody asks for another.
fn server<'t>(test: &'t Test, stack: &str, via: &str, allow: &str) -> (Program<'t>, SocketAddr) {
    let mut command = Command::new("globus-gridftp-server");
    command.args(["-dc-whitelist", "tcp,longhaul", "-dc-default", stack]);
    command.env("LD_LIBRARY_PATH", driver()).env("LONGHAUL_VIA", via);
    command.env("LONGHAUL_XIO_ALLOW", allow);
    command.env("LONGHAUL_VIA_TOKEN_FILE", test.path("token"));
    gridftp_server(test, &mut command)
}

#[needs(gridftp, globus_xio)]
#[test]
fn third_party_copies_go_through_two_gateways_with_one_stream_and_with_eight() {
    limited(|test| {
        let contents: Vec<u8> = (0..30_000_000u32).map(|i| (i % 239) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        for streams in [1, 8] {
            let route = Route::new(test);
            let (_source, from) = server(test, "tcp,longhaul", &route.via(), "");
            // The other one accepts, for which it needs no gateway.
            let (_target, to) = server(test, "tcp,longhaul", "nowhere.invalid", "");
            let source = format!("ftp://{from}{}", test.here("file").display());
            let target = format!("ftp://{to}{}", test.there("copy").display());
            let mut copy = Command::new("globus-url-copy");
            copy.args(["-fast", "-p", &streams.to_string(), &source, &target]);
            Program::spawn(test, &mut copy).end().assert_succeeded();
            assert!(fs::read(test.there("copy")).unwrap() == contents);
            let [near, far] = route.counts_of_both();
            assert_eq!(near, far);
            assert!((1..=streams).contains(&near[0]) && near[1] > 30_000_000, "{near:?}");
        }
    });
}

#[needs(gridftp, globus_xio)]
#[test]
fn a_remote_user_chooses_among_the_gateways_that_the_administrator_allows() {
    limited(|test| {
        let contents: Vec<u8> = (0..1_000_000u32).map(|i| (i % 239) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let route = Route::new(test);
        let both = route.via().replace(',', "+");
        let nobody = nobody();
        let allow = format!("{nobody} {both}");
        let (_server, at) = server(test, "tcp", "nowhere.invalid", &allow);
        let file = test.here("file").display().to_string();
        let (reply, came) = fetch(at, &format!("tcp,longhaul:via={both}"), &file);
        assert!(reply.starts_with("226"), "{reply}");
        assert!(came == contents);
        let nearest = both.split('+').next().unwrap();
        let (reply, came) = fetch(at, &format!("tcp,longhaul:via={nearest}"), &file);
        assert!(reply.contains("LONGHAUL_XIO_ALLOW does not list"), "{reply}");
        assert!(came.is_empty());
        // A list: of a file GridFTP may name the read that it cancels then, instead of why.
        let list = format!("NLST {}", test.path("here").display());
        let (reply, came) = ask_for(at, &format!("tcp,longhaul:via={nobody}"), &list);
        assert!(reply.contains("Connection refused"), "{reply}");
        assert!(came.is_empty());
        assert_eq!(route.counts()[0], 1);
    });
}

#[needs(gridftp, globus_xio)]
#[test]
fn a_gateway_that_accepts_and_never_answers_is_given_up_with_the_words_of_all_clients() {
    limited(|test| {
        fs::write(test.here("file"), "x").unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let via = silent.local_addr().unwrap().to_string();
        let (_server, at) = server(test, "tcp,longhaul", &via, "");
        let (reply, came) = fetch(at, "tcp,longhaul", &test.here("file").display().to_string());
        assert!(reply.contains(&format!("gateway {via} gave no answer in 30 s")), "{reply}");
        assert!(came.is_empty());
        // The driver has closed the connection.
        assert!(silent.accept().unwrap().0.read_to_end(&mut Vec::new()).is_ok());
    });
}

#[needs(gridftp, globus_xio)]
#[test]
fn the_first_connection_of_a_process_stands_where_the_clock_of_its_gateway_differs() {
    limited(|test| {
        let contents: Vec<u8> = (0..3_000_000u32).map(|i| (i % 239) as u8).collect();
        fs::write(test.here("file"), &contents).unwrap();
        let via = gateway_of_later_to(0, |mut near, target, came| {
            let mut far = TcpStream::connect(target.unwrap()).unwrap();
            far.write_all(came).unwrap();
            io::copy(&mut near, &mut far).unwrap();
        });
        let (_server, at) = server(test, "tcp,longhaul", &via.to_string(), "");
        for _ in 0..2 {
            let file = test.here("file").display().to_string();
            let (reply, came) = fetch(at, "tcp,longhaul", &file);
            assert!(reply.starts_with("226"), "{reply}");
            assert!(came == contents);
        }
    });
}

#[needs(namespaces, gridftp, globus_xio)]
#[test]
fn the_lab_runs_gridftp_through_gateways() {
    limited(|test| {
        driver();
        let file = test.path("chain.toml");
        fs::write(&file, CHAIN).unwrap();
        let results = test.path("results");
        let (file, results) = (file.display().to_string(), results.display().to_string());
        Program::start(test, &["lab", "run", &file, "--results", &results])
            .end()
            .assert_succeeded();
        let record = fs::read_to_string(test.path("results/chain.jsonl")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["verdict"], "done", "{record}");
        assert_eq!(record["bytes"], 3_000_000);
        // The gateways carried it.
        for node in ["near", "far"] {
            assert!(record["cpu_between"][node].as_f64().unwrap() > 0.0, "{record}");
        }
    });
}

/// An experiment of one cell.
const CHAIN: &str = r#"
name = "chain"
title = "GridFTP"
question = "Through gateways?"
source = "a test"
repeats = 1
contenders = [{ name = "gridftp-gateways bbr -p 2", via = [{ node = "near" }, { node = "far" }] }]
[testbed]
name = "chain"
[[testbed.node]]
name = "host"
[[testbed.node]]
name = "near"
[[testbed.node]]
name = "far"
[[testbed.node]]
name = "peer"
[[testbed.link]]
name = "lan"
between = ["host", "near"]
both = { delay = "1ms", rate = "1Gbps" }
[[testbed.link]]
name = "wan"
between = ["near", "far"]
both = { delay = "1ms", rate = "1Gbps" }
[[testbed.link]]
name = "far-lan"
between = ["far", "peer"]
both = { delay = "1ms", rate = "1Gbps" }
[job]
link = "wan"
bytes = "3MB"
patience = "60s"
[[plot]]
title = "Goodput"
x = "contender"
y = "goodput"
"#;

/// Fetches a file by FTP with a data channel that the server opens through `stack`: what it says at the
/// end, and what came.
fn fetch(at: SocketAddr, stack: &str, file: &str) -> (String, Vec<u8>) {
    ask_for(at, stack, &format!("RETR {file}"))
}

/// The same of a command whose answer comes by a data channel.
fn ask_for(at: SocketAddr, stack: &str, command: &str) -> (String, Vec<u8>) {
    let mut control = BufReader::new(TcpStream::connect(at).unwrap());
    answer(&mut control);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let data_at = listener.local_addr().unwrap();
    let [high, low] = data_at.port().to_be_bytes();
    for words in [
        "USER anonymous",
        "PASS nobody",
        "TYPE I",
        &format!("SITE SETNETSTACK {stack}"),
        &format!("PORT 127,0,0,1,{high},{low}"),
    ] {
        let reply = ask(&mut control, words);
        assert!(reply.starts_with(['2', '3']), "{words}: {reply}");
    }
    let receiving = thread::spawn(move || {
        let mut came = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut came).unwrap();
        came
    });
    let mut reply = ask(&mut control, command);
    if reply.starts_with('1') {
        reply = answer(&mut control);
    }
    if !reply.starts_with('2') {
        // Nobody came.
        drop(TcpStream::connect(data_at).unwrap());
    }
    (reply, receiving.join().unwrap())
}

fn ask(control: &mut BufReader<TcpStream>, words: &str) -> String {
    control.get_mut().write_all(format!("{words}\r\n").as_bytes()).unwrap();
    answer(control)
}

/// An answer, whose last line has a space behind its number.
fn answer(control: &mut BufReader<TcpStream>) -> String {
    let mut reply = String::new();
    loop {
        let start = reply.len();
        assert!(control.read_line(&mut reply).unwrap() > 0, "{reply}");
        let line = &reply.as_bytes()[start..];
        if line.len() > 3 && line[..3].iter().all(u8::is_ascii_digit) && line[3] == b' ' {
            return reply;
        }
    }
}

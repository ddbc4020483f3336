//! A server shows itself: a line for each transfer, metrics, its state, and its unit.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_needs::needs;
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{PROGRAM, Program};
use crate::test::{limited, until};
use crate::trees::noise;

#[test]
fn serve_writes_a_line_for_each_transfer_which_no_name_of_a_client_forges() {
    limited(|test| {
        for form in ["json", "text"] {
            let (mut server, at) = Program::serve(test, "127.0.0.1:0", &["--log", form]);
            fs::write(test.here("file"), noise(1, 300_000)).unwrap();
            let name = "a%22%20outcome=%22done%22%0Atime=1%1B[2J";
            let to = format!("lh://{at}/{name}");
            Program::cp(test, &["here/file", &to]).end().assert_succeeded();
            let back = format!("lh://{at}/nothing");
            Program::cp(test, &[&back, "here/back"]).end().assert_failed("no such file");
            let words = server.prints("outcome");
            server.signal(Signal::TERM);
            let all = server.end().stderr;
            let lines: Vec<&str> = all.lines().filter(|line| line.contains("bottleneck")).collect();
            assert_eq!(lines.len(), 2, "{all}");
            assert!(words.contains(lines[0]));
            if form == "text" {
                assert!(
                    lines[0].contains(" bytes=300000 ") && lines[0].contains("direction=\"push\"")
                );
                assert_eq!(lines[0].matches("outcome=\"").count(), 1, "{}", lines[0]);
                continue;
            }
            let [done, failed] = [0, 1].map(|n| serde_json::from_str::<Value>(lines[n]).unwrap());
            assert_eq!((&done["direction"], &done["outcome"]), (&"push".into(), &"done".into()));
            assert_eq!((&done["bytes"], &done["failed"]), (&300_000.into(), &0.into()));
            assert!(done["path"].as_str().unwrap().starts_with("a\" outcome=\"done\""), "{done}");
            assert!(done["seconds"].as_f64().unwrap() > 0.0 && done["key"].is_string());
            assert!(done["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{done}");
            assert_eq!(
                (&failed["direction"], &failed["path"]),
                (&"pull".into(), &"nothing".into())
            );
            assert_ne!(failed["outcome"], "done");
        }
    });
}

#[test]
fn serve_counts_transfers_for_prometheus_and_says_if_it_lets_clients_in() {
    limited(|test| {
        let words = ["--listen", "127.0.0.1:0", "--token-file", "token", "--metrics", "0"];
        let mut server = Program::start(test, &[&["serve", "there"][..], &words].concat());
        let at = server.listens();
        let page = page_of(&mut server);
        fs::write(test.here("file"), noise(1, 300_000)).unwrap();
        Program::cp(test, &["here/file", &format!("lh://{at}/")]).end().assert_succeeded();
        let metrics = until("a transfer is counted", || {
            let (_, text) = get(page, "/metrics");
            text.contains("transfers_total{direction=\"push\",outcome=\"done\"} 1").then_some(text)
        });
        for line in [
            "# TYPE longhaul_serve_transfers_total counter",
            "longhaul_serve_bytes_total{direction=\"push\"} 300000",
            "longhaul_serve_running_transfers 0",
            "longhaul_serve_ready 1",
            "longhaul_serve_transfer_seconds_count 1",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        assert_eq!(get(page, "/healthz").0, 200);
        assert_eq!(get(page, "/readyz").0, 200);
        assert_eq!(get(page, "/status").0, 404);
        fs::write(test.here("large"), noise(2, 12 << 20)).unwrap();
        let slow = ["--rate", "24Mbps", "here/large", &format!("lh://{at}/")];
        let running = Program::cp(test, &slow);
        until("it is under way", || {
            get(page, "/metrics").1.contains("longhaul_serve_running_transfers 1").then_some(())
        });
        server.signal(Signal::TERM);
        until("nobody is let in", || (get(page, "/readyz").0 == 503).then_some(()));
        assert_eq!(get(page, "/healthz").0, 200);
        running.end().assert_succeeded();
        server.end().assert_succeeded();
    });
}

#[needs(prometheus)]
#[test]
fn serve_metrics_pass_promtool_and_are_read_by_prometheus() {
    limited(|test| {
        let (mut server, at) = Program::serve(test, "127.0.0.1:0", &["--metrics", "0"]);
        let page = page_of(&mut server);
        fs::write(test.here("file"), noise(1, 300_000)).unwrap();
        Program::cp(test, &["here/file", &format!("lh://{at}/")]).end().assert_succeeded();
        let text = until("a transfer is counted", || {
            let (_, text) = get(page, "/metrics");
            text.contains("outcome=\"done\"").then_some(text)
        });
        let mut check = Command::new("promtool");
        let check = check.args(["check", "metrics"]);
        let mut check = check
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let checked = check.wait_with_output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: longhaul\n  \
             static_configs:\n  - targets: ['{page}']\n"
        );
        fs::write(test.path("prometheus.yml"), config).unwrap();
        let own = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut command = Command::new("prometheus");
        command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=prometheus");
        command.arg(format!("--web.listen-address={own}"));
        let _prometheus = Program::spawn(test, &mut command);
        let query = "/api/v1/query?query=longhaul_serve_transfers_total";
        until("Prometheus has it", || {
            let found = TcpStream::connect(own).ok().map(|stream| ask(stream, query).1)?;
            (found.contains("\"outcome\":\"done\"") && found.contains("\"1\"")).then_some(())
        });
    });
}

#[test]
fn serve_says_to_a_service_manager_when_it_is_ready_reloads_and_stops() {
    limited(|test| {
        let manager = UnixDatagram::bind(test.path("notify")).unwrap();
        fs::write(
            test.path("config"),
            "listen = \"127.0.0.1:0\"\n[[access]]\ntoken_file = \"token\"\nroot = \"there\"\n",
        )
        .unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--config", "config"]).env("NOTIFY_SOCKET", test.path("notify"));
        let server = Program::spawn(test, &mut command);
        let next = || {
            let mut text = [0; 200];
            let len = manager.recv(&mut text).unwrap();
            String::from_utf8(text[..len].to_vec()).unwrap()
        };
        assert_eq!(next().trim_end(), "READY=1");
        server.signal(Signal::HUP);
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next().trim_end(), "READY=1");
        server.signal(Signal::TERM);
        assert_eq!(next().trim_end(), "STOPPING=1");
        server.end().assert_succeeded();
    });
}

#[needs(systemd_analyze)]
#[test]
fn the_unit_of_the_server_exposes_little() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/longhaul-serve.service");
    let words = ["security", "--offline=true", "--threshold=20", "--no-pager"];
    let judged = Command::new("systemd-analyze").args(words).arg(unit).output().unwrap();
    assert!(judged.status.success(), "{judged:?}");
}

/// Where a server shows its metrics.
fn page_of(server: &mut Program<'_>) -> SocketAddr {
    let words = server.prints("metrics at http://");
    let at = words.split("metrics at http://").nth(1).unwrap();
    at.split('/').next().unwrap().parse().unwrap()
}

fn get(at: SocketAddr, path: &str) -> (u16, String) {
    ask(TcpStream::connect(at).unwrap(), path)
}

/// The status and text of a page.
fn ask(mut stream: TcpStream, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let text = answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    (status, text)
}

/// Nobody else takes it at once.
fn free_port() -> u16 {
    let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    bound.local_addr().unwrap().port()
}

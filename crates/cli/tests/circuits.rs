//! `longhaul circuits` from end to end: a service and its clients as processes.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A service that ends with the test.
struct Service {
    child: Child,
    folder: tempfile::TempDir,
    url: String,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["circuits", "serve", "--listen", "127.0.0.1:0", "--link", "l=a-b:10Gbps"])
            .arg("--store")
            .arg(folder.path().join("book.db"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        let first = next();
        let url = first.strip_prefix("listening on ").unwrap().split(',').next().unwrap().into();
        next();
        let made = next();
        let token = made.split(' ').find(|word| word.starts_with("lh1-")).unwrap().to_owned();
        let file = folder.path().join("token");
        std::fs::write(&file, token).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, folder, url }
    }

    /// Runs a command; its exit status, what it wrote, and what it complained about.
    fn run(&self, words: &str) -> (i32, String, String) {
        let done = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .arg("circuits")
            .args(words.split(' '))
            .args(["--url", &self.url, "--token-file"])
            .arg(self.folder.path().join("token"))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
    }

    fn json(&self, words: &str) -> Value {
        let (status, out, error) = self.run(&format!("{words} --json"));
        assert_eq!(status, 0, "{words}: {error}");
        serde_json::from_str(&out).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn plan_request_list_show_change_cancel_and_audit() {
    let service = Service::start();
    let nightly = "a b --bytes 5GB --max-rate 10Gbps --at 02:30 --by 06:00 --zone Europe/Zurich";
    let nights = service.json(&format!("plan {nightly} --count 3"));
    assert_eq!(nights["occurrences"].as_array().unwrap().len(), 3);
    assert_eq!(nights["plan"], nights["occurrences"][0]["plan"]);
    let (status, _, error) = service.run(&format!("plan {nightly} --count 3 --start +1h"));
    assert_eq!(status, 2, "{error}");
    let file = "a b --bytes 10GB --max-rate 8Gbps --start +1h --label run-17";
    let plan = service.json(&format!("plan {file}"));
    let quote = plan["quote"]["id"].as_str().unwrap();
    let made = service.json(&format!("request --quote {quote}"));
    let booking = &made["bookings"][0];
    assert_eq!((booking["state"].as_str(), booking["id"].as_u64()), (Some("scheduled"), Some(0)));
    let (status, table, _) = service.run("list");
    assert_eq!(status, 0);
    assert!(table.contains("run-17") && table.contains('█'), "{table}");
    let shown = service.json("show 0");
    assert_eq!(shown["ranges"][0]["rate_bps"].as_u64(), Some(8_000_000_000));
    assert!(shown["explanation"]["summary"].is_string());

    let held = service.json("request a b --time 5min --max-rate 1Gbps --start +2h --hold-for 60s");
    assert_eq!(held["bookings"][0]["state"], "held");
    assert_eq!(service.json("commit 1")["bookings"][0]["state"], "scheduled");
    let faster = service.json("modify 1 --time 10min --max-rate 2Gbps");
    let faster = &faster["bookings"][0];
    assert_eq!(faster["ranges"][0]["rate_bps"].as_u64(), Some(2_000_000_000));
    let longer = service.json("extend 1 --time 5min");
    assert!(longer["bookings"][0]["finish"].as_str() > faster["finish"].as_str(), "{longer}");
    assert_eq!(service.run("modify 1 --bytes 5GB").0, 1, "it is no file");
    assert_eq!(service.run("extend 1").0, 2);
    assert_eq!(service.json("release 1")["bookings"][0]["state"], "released");
    assert_eq!(service.json("cancel 0")["bookings"][0]["state"], "cancelled");
    let (status, out, error) = service.run("cancel 0 --json");
    assert_eq!((status, error.trim()), (1, "longhaul: booking 0 is cancelled already"));
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["error"], "booking 0 is cancelled already");
    assert_eq!(json["problem"]["type"], "urn:longhaul:circuits:ended");
    assert_eq!(service.run("list").1.trim(), "no bookings");
    assert_eq!(service.json("list --all")["bookings"].as_array().unwrap().len(), 2);

    let nights = service.json(&format!("plan {nightly} --count 3"));
    let quote = nights["quote"]["id"].as_str().unwrap();
    let made = service.json(&format!("request --quote {quote}"));
    for (booking, night) in made["bookings"].as_array().unwrap().iter().zip(0..) {
        assert_eq!(booking["ranges"], nights["occurrences"][night]["plan"]["ranges"]);
    }
    assert_eq!(service.json("cancel 2 --series")["bookings"].as_array().unwrap().len(), 3);

    let refused = service.run("request a b --bytes 10TB --max-rate 8Gbps --deadline +60s");
    assert_eq!(refused.0, 1);
    assert!(refused.2.contains("it would be accepted with a deadline of"), "{}", refused.2);
    let (status, out, _) =
        service.run("plan a b --bytes 10TB --max-rate 8Gbps --deadline +60s --json");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert!(status == 1 && json["explanation"].is_object(), "{json}");
    assert!(json["error"].as_str().unwrap().starts_with("no room: "), "{json}");
    assert_eq!(service.run("plan a nowhere --bytes 1GB --max-rate 1Gbps").0, 1);
    assert_eq!(service.run("plan a b --bytes 1GB").0, 2);
    let store = service.folder.path().join("book.db");
    let (status, _, error) = audit(&store);
    assert!(status == 1 && error.contains("leads"), "the service uses it: {error}");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("book.db");
    drop(service.run("list"));
    std::fs::copy(&store, &copy).unwrap();
    let wal = |path: &Path| format!("{}-wal", path.display());
    std::fs::copy(wal(&store), wal(&copy)).unwrap();
    let (status, out, error) = audit(&copy);
    assert_eq!((status, error.as_str()), (0, ""));
    assert!(out.contains("5 bookings; at most"), "{out}");
}

fn audit(store: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let done = command.args(["circuits", "audit"]).arg(store).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

#[test]
fn tokens_do_not_cross_the_network_in_the_clear_by_mistake() {
    let done = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["circuits", "serve", "--listen", "0.0.0.0:0", "--link", "l=a-b:10Gbps"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8(done.stderr).unwrap().contains("--plain-http"));
}

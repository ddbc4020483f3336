//! Finds out what this machine has of what tests need, and writes it down as `MEANS` for `needs`.
//!
//! Done again when a package was installed, for another user, and when `LONGHAUL_MAY_LACK` changed.
//! After any other change of the machine `touch` this file; until then a test that lost its means
//! fails, and one that gained them is still reported as ignored.

use std::env;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// There, or why not.
type Found = Result<(), String>;

/// Looks for one thing.
type Probe = fn() -> Found;

/// Everything that a test may ask for.
const ALL: &[(&str, Probe)] = &[
    ("root", root),
    // Namespaces of the network, with TUN devices in them.
    ("namespaces", namespaces),
    ("ipv6", ipv6),
    // A queueing discipline of the kernel, and `tc`.
    ("htb", || qdisc("handle 1: htb default 1")),
    // File systems can be mounted.
    ("mounts", mounts),
    ("fuse", fuse),
    // Files for a while in a file system with a page cache and a way past it.
    ("direct_io", direct_io),
    // `chattr +i` keeps even who has a file open from writing to it.
    ("immutable_files", immutable_files),
    // System calls can be sent to a supervisor.
    ("supervision", supervision),
    // System calls of a program can be made to fail.
    ("strace", || run("strace", &["-qq", "-e", "inject=getppid:error=EPERM", "true"])),
    // The kernel records context switches.
    ("switch_records", || switch_records(0)),
    // And those of a thread to itself.
    ("own_switch_records", || switch_records(2)),
    // It says how long somebody waited for a processor.
    ("pressure", || fs::read_to_string("/proc/pressure/cpu").map(drop).map_err(|e| e.to_string())),
    // Threads may run before others.
    ("priority", || run("chrt", &["--fifo", "1", "true"])),
    ("postgresql", || programs(&["initdb", "postgres", "setpriv"])),
    ("ip", || programs(&["ip"])),
    // It checks lists of hashes.
    ("b3sum", || programs(&["b3sum"])),
    // Shells for which there are completions.
    ("zsh", || programs(&["zsh"])),
    ("fish", || programs(&["fish"])),
    ("curl", || programs(&["curl"])),
    // Other programs for moving data.
    // Debian's, with what checks metrics.
    ("prometheus", || programs(&["prometheus", "promtool"])),
    ("systemd_analyze", || programs(&["systemd-analyze"])),
    ("iperf3", || programs(&["iperf3"])),
    ("gridftp", || programs(&["globus-url-copy", "globus-gridftp-server"])),
    ("gridftp_udt", gridftp_udt),
    // A driver for it is compiled with this.
    ("globus_xio", || header("/usr/include/globus/globus_xio_driver.h")),
    // Certificates are made with it.
    ("openssl", || programs(&["openssl"])),
    ("udt", udt),
    ("xrootd", || programs(&["xrdcp", "xrootd"])),
    ("uftp", || programs(&["uftp", "uftpd"])),
    ("srt", || programs(&["srt-file-transmit"])),
    ("haproxy", || programs(&["haproxy"])),
    ("stunnel", || programs(&["stunnel"])),
    ("rsync", || programs(&["rsync"])),
    ("sshd", || programs(&["ssh", "sshd", "ssh-keygen", "ssh-agent"])),
    ("rsync_ssh", || programs(&["rsync", "ssh", "sshd", "ssh-keygen"])),
];

const MAY_LACK: &str = "LONGHAUL_MAY_LACK";

fn main() {
    println!("cargo::rerun-if-env-changed={MAY_LACK}");
    println!("cargo::rerun-if-env-changed=HOME");
    println!("cargo::rerun-if-changed=build.rs");
    let packages = Path::new("/var/lib/dpkg/status");
    if packages.exists() {
        println!("cargo::rerun-if-changed={}", packages.display());
    }
    let may_lack = env::var(MAY_LACK).ok();
    let may_lack: Option<Vec<&str>> = may_lack
        .as_deref()
        .map(|names| names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect());
    for name in may_lack.iter().flatten() {
        assert!(ALL.iter().any(|(known, _)| known == name), "{MAY_LACK}: `{name}` is not known");
    }
    let mut table = "const MEANS: &[(&str, Option<&str>)] = &[\n".to_owned();
    for (name, probe) in ALL {
        let asked = may_lack.as_ref().is_none_or(|names| names.contains(name));
        let missing = if asked { probe().err() } else { None };
        table += &format!("    ({name:?}, {missing:?}),\n");
    }
    table += "];\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    fs::write(out.join("means.rs"), table).expect("the table can be written");
}

fn root() -> Found {
    // Its owner is who runs this.
    let own = fs::metadata("/proc/self").map_err(|error| format!("/proc: {error}"))?;
    (own.uid() == 0).then_some(()).ok_or_else(|| "this user is not root".into())
}

fn namespaces() -> Found {
    root()?;
    run("unshare", &["--net", "true"])?;
    device("/dev/net/tun")
}

fn ipv6() -> Found {
    UdpSocket::bind("[::1]:0").map(drop).map_err(|error| format!("::1: {error}"))
}

fn qdisc(what: &str) -> Found {
    root()?;
    programs(&["tc"])?;
    let words = format!("--net tc qdisc add dev lo root {what}");
    run("unshare", &words.split(' ').collect::<Vec<_>>())
}

fn mounts() -> Found {
    root()?;
    let folder = Scratch::new()?;
    let at = folder.0.display().to_string();
    run("unshare", &["--mount", "mount", "-t", "tmpfs", "longhaul-needs", &at])
}

fn fuse() -> Found {
    mounts()?;
    device("/dev/fuse")
}

fn direct_io() -> Found {
    let folder = Scratch::new()?;
    let at = folder.0.display().to_string();
    let output = output_of("stat", &["-f", "-c", "%T", &at])?;
    if matches!(output.trim(), "tmpfs" | "ramfs") {
        return Err(format!("files for a while are in memory, in a {}", output.trim()));
    }
    let to = format!("of={at}/file");
    run("dd", &["if=/dev/zero", &to, "bs=65536", "count=1", "oflag=direct"])
}

fn immutable_files() -> Found {
    root()?;
    let folder = Scratch::new()?;
    let path = folder.0.join("file");
    let file = File::create(&path).map_err(|error| error.to_string())?;
    let name = path.display().to_string();
    run("chattr", &["+i", &name])?;
    let written = std::io::Write::write(&mut &file, b"x");
    run("chattr", &["-i", &name])?;
    written.err().map(drop).ok_or_else(|| "what is open can be written to nevertheless".into())
}

fn supervision() -> Found {
    let path = "/proc/sys/kernel/seccomp/actions_avail";
    let actions = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let there = actions.split_whitespace().any(|action| action == "user_notif");
    there.then_some(()).ok_or_else(|| format!("{path} does not have user_notif"))
}

fn switch_records(most: i32) -> Found {
    let path = "/proc/sys/kernel/perf_event_paranoid";
    let level = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let open = level.trim().parse::<i32>().is_ok_and(|level| level <= most);
    if open { Ok(()) } else { root() }
}

fn gridftp_udt() -> Found {
    programs(&["globus-url-copy", "globus-gridftp-server"])?;
    let name = "libglobus_xio_udt_driver.so";
    let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let there = places.map(|place| place.path().join(name)).any(|file| file.exists());
    there.then_some(()).ok_or_else(|| format!("no {name}"))
}

fn udt() -> Found {
    programs(&["g++"])?;
    header("/usr/include/udt/udt.h")
}

fn header(path: &str) -> Found {
    Path::new(path).exists().then_some(()).ok_or_else(|| format!("no {path}"))
}

fn device(path: &str) -> Found {
    let opened = File::options().read(true).write(true).open(path);
    opened.map(drop).map_err(|error| format!("{path}: {error}"))
}

/// All of them are in PATH, or where servers are that PATH may not show.
fn programs(names: &[&str]) -> Found {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    // Debian keeps PostgreSQL's programs here, by version.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let missing =
        names.iter().find(|name| !folders.iter().any(|folder| folder.join(name).is_file()));
    missing.map_or(Ok(()), |name| Err(format!("no {name} in PATH")))
}

fn run(program: &str, words: &[&str]) -> Found {
    output_of(program, words).map(drop)
}

/// Output of a command, or the first line of its complaint.
fn output_of(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let line = complaint.lines().next().unwrap_or("it failed without a word");
    Err(format!("{program} {}: {line}", words.join(" ")))
}

/// A folder where tests make theirs, as long as this lives.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let path = env::temp_dir().join(format!("longhaul-needs-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it is an empty folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

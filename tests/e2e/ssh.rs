//! Copies over ssh: by Debian's sshd, with keys, a port and a configuration of its own.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_needs::needs;
use longhaul_sys::processes::with_variable;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{Ended, PROGRAM, Program};
use crate::test::{Test, limited, until};
use crate::trees::{assert_same, make_tree, noise};
use crate::verify::{assert_spoilt, spoil, tree};

/// An ssh server that lets one key in, and what a client needs to know of it: hosts `dtn2`, and `dtn3` behind it.
pub struct Sshd<'t> {
    test: &'t Test,
    _server: Program<'t>,
}

/// Treatment of a command by the account.
pub enum Login<'a> {
    /// Runs it in the test's folder `there`, which is the home, after these commands.
    After(&'a str),
    /// Something else, as the key says.
    Key(&'a str),
}

/// Writes keys, and the configurations of an ssh server at that address and of a client that knows it.
pub fn configure(test: &Test, login: &Login<'_>, (address, port): (&str, u16)) {
    let folder = test.folder().display();
    for name in ["host-key", "user-key", "other-key"] {
        let words = ["-q", "-t", "ed25519", "-N", "", "-f"];
        run(Command::new("ssh-keygen").args(words).arg(test.path(name)));
    }
    let key = fs::read_to_string(test.path("user-key.pub")).unwrap();
    let host_key = fs::read_to_string(test.path("host-key.pub")).unwrap();
    let (options, force) = match login {
        Login::After(commands) => (
            String::new(),
            format!(
                "ForceCommand cd {folder}/there; HOME={folder}/there; export HOME; {commands} eval \
                 \"$SSH_ORIGINAL_COMMAND\"\n"
            ),
        ),
        Login::Key(options) => (format!("{options} "), String::new()),
    };
    fs::write(test.path("authorized_keys"), format!("{options}{key}")).unwrap();
    fs::write(test.path("known"), format!("[{address}]:{port} {host_key}")).unwrap();
    let server = format!(
        "Port {port}\nListenAddress {address}\nHostKey {folder}/host-key\nPidFile none\n\
         AuthorizedKeysFile {folder}/authorized_keys\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         SetEnv {VARIABLE}={folder}\n{force}"
    );
    fs::write(test.path("sshd_config"), server).unwrap();
    let client = format!(
        "Host dtn2 dtn3 DTN2\n HostName {address}\n Port {port}\n IdentityFile {folder}/user-key\n \
         IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {folder}/known\n \
         StrictHostKeyChecking yes\n BatchMode yes\n"
    );
    fs::write(test.path("ssh_config"), client).unwrap();
    // As root sshd wants the folder that it is built for, which a service manager makes elsewhere.
    if rustix::process::geteuid().is_root() {
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let bin = test.there(".local/bin");
    fs::create_dir_all(&bin).unwrap();
    symlink(PROGRAM, bin.join("longhaul")).unwrap();
}

impl<'t> Sshd<'t> {
    pub fn start(test: &'t Test, login: &Login<'_>) -> Self {
        // Free now, at an address that few others use.
        let free = TcpListener::bind(test.own_address()).unwrap().local_addr().unwrap();
        let (address, port) = (free.ip().to_string(), free.port());
        configure(test, login, (&address, port));
        let mut command = Command::new("/usr/sbin/sshd");
        let mut server =
            Program::spawn(test, command.args(["-D", "-e", "-f"]).arg(test.path("sshd_config")));
        server.prints("Server listening on");
        until("sshd", || TcpStream::connect((&address[..], port)).ok().map(drop));
        Self { test, _server: server }
    }

    /// `longhaul` with `words`, and the ssh that knows the host.
    pub fn program(&self, words: &[&str]) -> Program<'t> {
        let ssh = format!("ssh -F {}/ssh_config", self.test.folder().display());
        let fixed = [words[0], "--json", "-e", &ssh];
        Program::start(self.test, &[&fixed[..], &words[1..]].concat())
    }

    pub fn cp(&self, words: &[&str]) -> Ended {
        self.program(&[&["cp"][..], words].concat()).end()
    }

    /// Processes that the server runs for its users.
    pub fn processes(&self) -> Vec<u32> {
        let folder = self.test.folder().to_str().unwrap().to_owned();
        with_variable(VARIABLE, |value| value == folder).unwrap()
    }
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// It failed, with `part` in its words and in JSON.
pub fn assert_failed(ended: &Ended, part: &str) {
    ended.assert_failed(part);
    let error = ended.json()["error"].to_string();
    assert!(error.contains(part), "{error}");
}

#[needs(sshd)]
#[test]
fn a_tree_goes_over_ssh_and_back_and_nothing_is_sent_twice() {
    limited(|test| {
        make_tree(&test.here("tree"));
        let sshd = Sshd::start(test, &Login::After(""));
        let push = sshd.cp(&["here/tree", "dtn2:in/"]);
        push.assert_succeeded();
        assert_same(&test.here("tree"), &test.there("in/tree"));
        assert_eq!(push.json()["carrier"], "udp");
        let missing = sshd.cp(&["dtn2:in/zip", "here/"]);
        missing.assert_failed("dtn2:in/zip: no such file or directory at the server");
        let missing = sshd.program(&["ls", "dtn2:zip"]).end();
        assert_failed(&missing, "zip: no such file or directory");
        assert!(missing.stderr.contains("longhaul: dtn2:zip: no such"), "{missing:?}");
        let nowhere = sshd.cp(&["here/tree", "DTN2:none/x/../copy"]);
        assert_failed(&nowhere, "DTN2:none/x/../copy: no such directory at the server");
        let nowhere = sshd.cp(&["here/tree", "DTN2:~/none/copy"]);
        assert_failed(&nowhere, "DTN2:~/none: no such directory at the server");
        let again = sshd.cp(&["here/tree", "dtn2:in"]).json();
        let sent = (&again["bytes"], &again["unchanged"]["bytes"]);
        assert_eq!(sent, (&0.into(), &push.json()["bytes"]), "{again}");
        sshd.cp(&["dtn2:in/tree", "here/copy"]).assert_succeeded();
        assert_same(&test.here("tree"), &test.here("copy"));
        // By names from the root, through a link, and of a home; several at once.
        symlink("in", test.there("link")).unwrap();
        let whole = format!("dtn2:{}", test.there("link/tree/big").display());
        sshd.cp(&[&whole, "dtn2:~/in/tree/a/b/f3", "ssh://dtn2/in/../in/tree/a/b/f4", "here/"])
            .assert_succeeded();
        for (name, from) in [("big", "big"), ("f3", "a/b/f3"), ("f4", "a/b/f4")] {
            assert_same(&test.here("tree").join(from), &test.here(name));
        }
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
    });
}

#[needs(sshd)]
#[test]
fn names_that_a_shell_would_read_are_names() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        let name = "a $(touch x) `touch y` ; * 'q' \"d\" \\ \n";
        fs::write(test.here(name), "contents").unwrap();
        let place = format!("dtn2:{name}");
        sshd.cp(&[&format!("here/{name}"), &place]).assert_succeeded();
        assert_eq!(fs::read(test.there(name)).unwrap(), b"contents");
        sshd.cp(&[&place, "here/back"]).assert_succeeded();
        assert!(!test.there("x").exists() && !test.there("y").exists());
    });
}

#[needs(sshd)]
#[test]
fn an_agent_and_a_jump_host_of_the_configuration_hold() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        let socket = test.path("agent");
        let mut agent = Command::new("ssh-agent");
        let _agent = Program::spawn(test, agent.arg("-D").arg("-a").arg(&socket));
        until("the agent", || socket.exists().then_some(()));
        run(Command::new("ssh-add").arg(test.path("user-key")).env("SSH_AUTH_SOCK", &socket));
        let config = fs::read_to_string(test.path("ssh_config")).unwrap();
        let config = config
            .replace("IdentityAgent none", &format!("IdentityAgent {}", socket.display()))
            .replace("user-key", "user-key.pub");
        fs::rename(test.path("user-key"), test.path("hidden")).unwrap();
        fs::write(test.path("ssh_config"), format!("Host dtn3\n ProxyJump dtn2\n{config}"))
            .unwrap();
        // A jump needs a channel of its own, which no command of the account takes part in.
        fs::write(test.there("file"), "contents").unwrap();
        sshd.cp(&["dtn3:file", "here/"]).assert_succeeded();
        assert_eq!(fs::read(test.here("file")).unwrap(), b"contents");
    });
}

#[needs(sshd)]
#[test]
fn what_a_login_script_writes_is_passed_over_up_to_64_kib() {
    for (bytes, passes) in [(60_000, true), (70_000, false)] {
        limited(move |test| {
            let noise = format!("echo welcome >&2; head -c {bytes} /dev/zero | tr '\\0' '\\r';");
            let sshd = Sshd::start(test, &Login::After(&noise));
            fs::write(test.here("file"), "contents").unwrap();
            let copy = sshd.cp(&["here/file", "dtn2:"]);
            assert!(copy.stderr.contains("welcome"), "{copy:?}");
            if passes {
                copy.assert_succeeded();
                assert_eq!(fs::read(test.there("file")).unwrap(), b"contents");
            } else {
                assert_failed(&copy, "dtn2: more than 64 KiB came before longhaul answered");
                assert_failed(&copy, "login script");
            }
        });
    }
}

#[needs(sshd)]
#[test]
fn why_ssh_starts_no_server_is_in_its_own_words() {
    limited(|test| {
        let login = "echo This account is currently not available.; exit 1;";
        let sshd = Sshd::start(test, &Login::After(login));
        fs::write(test.here("file"), "contents").unwrap();
        let copy = sshd.cp(&["here/file", "dtn2:"]);
        assert_failed(&copy, "This account is currently not available.");
        let known = fs::read_to_string(test.path("known")).unwrap();
        let other = fs::read_to_string(test.path("other-key.pub")).unwrap();
        let (host, _) = known.split_once(' ').unwrap();
        fs::write(test.path("known"), format!("{host} {other}")).unwrap();
        let copy = sshd.cp(&["here/file", "dtn2:"]);
        assert_failed(&copy, "dtn2: ssh failed: Host key verification failed.");
        let nobody = sshd.cp(&["here/file", "no-such-host.invalid:"]);
        assert_failed(&nobody, "Could not resolve hostname");
    });
}

#[needs(sshd)]
#[test]
fn where_longhaul_is_not_installed_the_message_says_where_it_was_searched() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After("HOME=$HOME/none; PATH=/usr/bin:/bin;"));
        fs::write(test.here("file"), "contents").unwrap();
        let copy = sshd.cp(&["here/file", "dtn2:"]);
        assert_failed(
            &copy,
            "dtn2: longhaul is not installed (searched PATH, ~/.local/bin, /usr/local/bin); \
             --remote-path says where",
        );
        let copy = sshd.cp(&["--remote-path", "/no/longhaul", "here/file", "dtn2:"]);
        assert_failed(&copy, "dtn2: /no/longhaul (--remote-path) is no program there");
        sshd.cp(&["--remote-path", PROGRAM, "here/file", "dtn2:"]).assert_succeeded();
        assert_eq!(fs::read(test.there("file")).unwrap(), b"contents");
    });
}

#[needs(sshd)]
#[test]
fn another_version_is_named() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        let old = test.path("old");
        fs::write(&old, "#!/bin/sh\necho error: unexpected argument --ssh >&2\nexit 2\n").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
        let path = old.to_str().unwrap();
        let copy = sshd.cp(&["--remote-path", path, "token", "dtn2:"]);
        assert_failed(&copy, "dtn2: the longhaul there does not serve over ssh; here is");
    });
}

#[needs(sshd)]
#[test]
fn a_key_with_a_command_does_what_the_command_says_whatever_the_client_asks() {
    limited(|test| {
        let root = test.there("").display().to_string();
        let command =
            format!("command=\"{PROGRAM} serve --ssh --root {root} --allow-read\",restrict");
        let sshd = Sshd::start(test, &Login::Key(&command));
        make_tree(&test.there("tree"));
        symlink("../here", test.there("out")).unwrap();
        fs::write(test.here("secret"), "secret").unwrap();
        sshd.cp(&["dtn2:/tree", "here/"]).assert_succeeded();
        assert_same(&test.there("tree"), &test.here("tree"));
        let copy = sshd.cp(&["here/secret", "dtn2:"]);
        assert_failed(&copy, "dtn2: this key lets nobody copy to here");
        assert!(!test.there("secret").exists());
        let hash = blake3::hash(b"secret").to_hex();
        fs::write(test.path("list"), format!("{hash}  secret\n")).unwrap();
        let compared = sshd.program(&["verify", "--ignore-extra", "list", "dtn2:/tree"]).end();
        assert_eq!(compared.json()["missing"]["count"], 1, "{compared:?}");
        let outside = sshd.program(&["verify", "list", "dtn2:../here"]).end();
        assert_failed(&outside, "leads upwards");
        let outside = sshd.program(&["verify", "list", "dtn2:out"]).end();
        assert_eq!(outside.json()["files"], Value::Null, "{outside:?}");
        let upwards = sshd.cp(&["dtn2:../here/secret", "here/stolen"]);
        assert_failed(&upwards, "leads upwards");
        let through = sshd.cp(&["dtn2:out/secret", "here/stolen"]);
        assert_eq!(through.status, Some(1), "{through:?}");
        assert!(!test.here("stolen").exists());
        let shell = format!("ssh -F {}/ssh_config dtn2 touch {root}/made", test.folder().display());
        let words: Vec<&str> = shell.split(' ').collect();
        let done = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output().unwrap();
        assert!(!done.status.success() && !test.there("made").exists(), "{done:?}");
    });
}

#[needs(sshd)]
#[test]
fn ls_and_probe_look_over_ssh() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::create_dir(test.there("tree")).unwrap();
        fs::write(test.there("tree/file"), "contents").unwrap();
        let listed = sshd.program(&["ls", "dtn2:tree"]).end();
        listed.assert_succeeded();
        assert_eq!(listed.json()["entries"][0]["path"], "file");
        let left = test.there("tree/.longhaul-00000000000000000000000000000000");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("record"), "").unwrap();
        let found = sshd.program(&["resume", "dtn2:tree"]).end().json();
        assert!(
            found["copies"][0]["path"].to_string().contains("dtn2:tree/.longhaul-0"),
            "{found}"
        );
        let gone = sshd.program(&["resume", "--discard", "dtn2:"]).end().json();
        assert_eq!((&gone["discarded"], left.exists()), (&1.into(), false), "{gone}");
        let (first, last) = (40_000, 40_999);
        let ports = format!("{first}-{last}");
        let probed = sshd.program(&["probe", "--ports", &ports, "dtn2:"]).end();
        probed.assert_succeeded();
        let server = probed.json()["server"].as_str().unwrap().to_owned();
        let port: u16 = server.rsplit_once(':').unwrap().1.parse().unwrap();
        assert!((first..=last).contains(&port), "{server}");
    });
}

#[needs(sshd)]
#[test]
fn verify_compares_where_the_files_are_over_ssh() {
    limited(|test| {
        let folder = test.there("data");
        tree(test, &folder);
        let sshd = Sshd::start(test, &Login::After(""));
        let verify = |place: &str| sshd.program(&["verify", "list", place]).end();
        for place in ["dtn2:data", "dtn2:~/data/", "ssh://dtn2/data"] {
            let ended = verify(place);
            assert_eq!(ended.status, Some(0), "{ended:?}");
            assert_eq!(ended.json()["files"], 4, "{ended:?}");
        }
        spoil(&folder);
        assert_spoilt(&verify("dtn2:data"));
        assert_failed(&verify("dtn2:none"), "dtn2:none: no such directory at the server");
        assert_failed(&verify("dtn2:data/other"), "it is no directory");
    });
}

#[needs(sshd)]
#[test]
fn where_others_have_the_ports_tcp_carries_and_else_ssh() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        make_tree(&test.here("tree"));
        // Below the ports that the kernel gives away: nobody else's TCP is to have it.
        let pid = std::process::id() as u16;
        let free = (0..1_000).map(|next| 20_000 + (pid.wrapping_add(next)) % 10_000);
        let free = free.filter(|port| TcpListener::bind(("::", *port)).is_ok());
        let mut free = free.filter_map(|port| Some((UdpSocket::bind(("::", port)).ok()?, port)));
        let (_udp, port) = free.next().expect("a free port");
        let ports = format!("{port}-{port}");
        let copy = |words: &[&str]| sshd.cp(&[&["--ports", &ports][..], words].concat());
        let only_tcp = copy(&["here/tree", "dtn2:one"]);
        only_tcp.assert_succeeded();
        assert_eq!(only_tcp.json()["carrier"], "tcp", "{only_tcp:?}");
        let noted = |ended: &Ended, part: &str| {
            assert!(ended.json()["notices"].to_string().contains(part), "{ended:?}");
        };
        let lack =
            "dtn2: no port of --ports is free for both TCP and UDP at the server: TCP carries";
        noted(&only_tcp, lack);
        assert_same(&test.here("tree"), &test.there("one"));
        until("the server has ended", || sshd.processes().is_empty().then_some(()));
        let _tcp = TcpListener::bind(("::", port)).unwrap();
        for (from, to) in [("here/tree", "dtn2:two"), ("dtn2:two", "here/back")] {
            let through_ssh = copy(&[from, to]);
            through_ssh.assert_succeeded();
            assert_eq!(through_ssh.json()["carrier"], "ssh", "{through_ssh:?}");
            noted(&through_ssh, "dtn2: no port of --ports is free for TCP at the server: data");
        }
        assert_same(&test.here("tree"), &test.here("back"));
        assert_failed(
            &copy(&["--carrier", "udp", "here/tree", "dtn2:three"]),
            "no port of --ports",
        );
    });
}

#[needs(sshd)]
#[test]
fn where_ssh_ends_in_the_middle_the_server_ends_and_the_same_command_goes_on() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::write(test.here("big"), noise(1, 60_000_000)).unwrap();
        let cut = |words: &[&str]| {
            let copy = sshd.program(&[&["cp", "--rate", "100Mbps"], words].concat());
            let ssh = until("ssh", || child(copy.id(), "ssh"));
            let files = || walk(&test.there(""));
            let record = || files().iter().filter(|it| it.0 == "record").map(|it| it.1).sum();
            let begun: u64 = until("a record", || Some(record()).filter(|size| *size > 0));
            until("something more is durable", || (record() > begun).then_some(()));
            kill_process(Pid::from_raw(ssh.cast_signed()).unwrap(), Signal::KILL).unwrap();
            copy.end()
        };
        let ended = cut(&["--retry", "0", "here/big", "dtn2:"]);
        assert_failed(&ended, "run the same command again to go on");
        assert_failed(
            &ended,
            "the connection to dtn2 ended: ssh, which had started the server, has ended",
        );
        until("the server has ended", || sshd.processes().is_empty().then_some(()));
        let again = sshd.cp(&["here/big", "dtn2:"]);
        again.assert_succeeded();
        assert_same(&test.here("big"), &test.there("big"));
        assert!(again.json()["resumed_bytes"].as_u64().unwrap() > 0, "{again:?}");
        // One who has patience need not say it again: ssh is run once more.
        let ended = cut(&["here/big", "dtn2:other"]);
        ended.assert_succeeded();
        assert_eq!(ended.json()["reconnects"], 1, "{ended:?}");
        assert_same(&test.here("big"), &test.there("other"));
    });
}

/// One end of the pipe `name`.
fn pipe<'t>(sshd: &Sshd<'t>, words: &str, name: &str) -> Program<'t> {
    let ssh = format!("ssh -F {}/ssh_config", sshd.test.folder().display());
    let script = format!("exec \"$0\" pipe --json -e \"$1\" \"$2\" {words}");
    let mut command = Command::new("sh");
    Program::spawn(sshd.test, command.args(["-c", &script, PROGRAM, &ssh, name]))
}

/// A server waits for the other end of a pipe.
fn waits_for_other_end(test: &Test) {
    let pipes = || walk(&test.there(".local/state/longhaul/pipes"));
    until("the first end", || pipes().iter().any(|(_, size)| *size == 18).then_some(()));
}

const SENDER: &str = "< here/data";
const RECEIVER: &str = "--receive > here/out";

#[needs(sshd)]
#[test]
fn both_ends_of_a_pipe_meet_over_ssh_whichever_comes_first() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::write(test.here("data"), noise(4, 5_000_000)).unwrap();
        for [first, second] in [[SENDER, RECEIVER], [RECEIVER, SENDER]] {
            let first = pipe(&sshd, first, "dtn2:a/name");
            waits_for_other_end(test);
            let second = pipe(&sshd, second, "ssh://dtn2/a/name");
            for end in [first.end(), second.end()] {
                end.assert_succeeded();
                assert!(
                    end.stdout.contains("5000000") || end.stderr.contains("5000000"),
                    "{end:?}"
                );
            }
            assert!(fs::read(test.here("data")).unwrap() == fs::read(test.here("out")).unwrap());
            until("the servers have ended", || sshd.processes().is_empty().then_some(()));
            assert!(walk(&test.there(".local/state/longhaul/pipes")).is_empty());
        }
    });
}

#[needs(sshd)]
#[test]
fn a_pipe_over_ssh_has_one_end_of_each_kind_and_ends_with_the_first() {
    limited(|test| {
        let sshd = Sshd::start(test, &Login::After(""));
        fs::write(test.here("data"), noise(4, 60_000_000)).unwrap();
        let first = pipe(&sshd, "--rate 50Mbps < here/data", "dtn2:x");
        waits_for_other_end(test);
        let another = pipe(&sshd, SENDER, "dtn2:x").end();
        another.assert_failed("the pipe x has a sender already; choose another name, or wait");
        let receiver = pipe(&sshd, RECEIVER, "dtn2:x");
        let out = || fs::metadata(test.here("out")).map_or(0, |it| it.len());
        until("something has come", || (out() > 1_000_000).then_some(()));
        let ssh = until("ssh", || child(first.id(), "ssh"));
        kill_process(Pid::from_raw(ssh.cast_signed()).unwrap(), Signal::KILL).unwrap();
        assert_eq!((first.end().status, receiver.end().status), (Some(1), Some(1)));
        let (data, out) =
            (fs::read(test.here("data")).unwrap(), fs::read(test.here("out")).unwrap());
        assert!(out.len() < data.len() && data.starts_with(&out));
        until("the servers have ended", || sshd.processes().is_empty().then_some(()));
    });
}

/// The child of `parent` with that name.
pub fn child(parent: u32, name: &str) -> Option<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(path).ok()?;
    let is_it = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == name
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_it)
}

/// Names and sizes of all files below.
pub fn walk(folder: &Path) -> Vec<(OsString, u64)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => files.extend(walk(&entry.path())),
            Ok(metadata) => files.push((entry.file_name(), metadata.len())),
            // It is being moved to its place.
            Err(_) => {}
        }
    }
    files
}

/// `longhaul` with a script in the place of ssh.
fn with_script(test: &Test, script: &str) -> Ended {
    let path = test.path("script");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let program = path.to_str().unwrap();
    Program::start(test, &["cp", "--json", "-e", program, "token", "dtn2:"]).end()
}

#[test]
fn nonsense_in_the_place_of_an_answer_is_a_clear_failure() {
    limited(|test| {
        let ended = with_script(test, "head -c 1000000000 /dev/zero");
        assert_failed(&ended, "more than 64 KiB came before longhaul answered");
        let ended = with_script(test, "yes hello | head -c 100000 >&2; exit 3");
        assert_failed(&ended, "did not start");
        let ended = with_script(test, "head -c 16; printf '\\377\\377\\377'; sleep 1");
        assert_failed(&ended, "answers with something else than longhaul does");
        let none = Program::start(test, &["cp", "--json", "-e", "no-such-ssh", "token", "dtn2:"]);
        assert_failed(&none.end(), "cannot run no-such-ssh");
    });
}

#[test]
fn a_host_that_could_be_an_option_is_refused() {
    limited(|test| {
        for place in ["-oProxyCommand=touch:x", "ssh://-oProxyCommand=touch/x", "me@-x:y"] {
            let ended = Program::start(test, &["cp", "--json", "token", "--", place]).end();
            assert_eq!(ended.status, Some(2), "{ended:?}");
            assert!(ended.json()["error"].to_string().contains("begins with -"), "{ended:?}");
        }
    });
}

/// Marks the processes of a test's ssh server.
const VARIABLE: &str = "LONGHAUL_TEST_SSHD";

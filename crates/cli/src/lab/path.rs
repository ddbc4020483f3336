//! `longhaul lab path`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_lab::disk::SlowDisk;
use longhaul_lab::{
    Builtin, Conditions, Duplicate, Host, JitterSpec, LineKind, LinkSpec, Marking, Testbed,
    TestbedOptions, Topology,
};
use longhaul_pathsim::Direction;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGINT;

use super::args::{LineArgs, PathArgs};
use super::{cannot_build, prepare, summary, unknown};
use crate::failure::Failure;
use crate::output::{Output, complain};
use crate::signals::that_stop;

pub(super) fn run(args: &PathArgs, output: &Output) -> Result<ExitCode, Failure> {
    let topology = topology(args)?;
    let at = args.at.as_deref().unwrap_or(&topology.nodes[0].name);
    let runs = runs(args, &topology, at)?;
    let mut records = Records::open(args)?;
    prepare(output)?;
    let signals = Signals::install()?;
    let log = if args.losses.is_some() { LOG } else { 0 };
    let options = TestbedOptions { seed: args.seed, log };
    let testbed = Testbed::new(&topology, &options).map_err(cannot_build)?;
    introduce(&testbed, &topology, at, output);

    // Before any command: commands have mounts of their own.
    let disks = args.disk.iter().map(SlowDisk::mount).collect::<io::Result<Vec<_>>>();
    let disks = disks.map_err(cannot("put a disk in its folder"))?;
    let node = |name: &str| testbed.host(name).ok_or_else(|| Failure::failed("a node has gone"));
    let mut others = Vec::new();
    for (name, line) in runs {
        others.push((format!("{line} at {name}"), beside(&testbed, node(name)?, line)?));
    }
    let loads =
        args.load.iter().map(|load| Ok((load, load.start()?))).collect::<io::Result<Vec<_>>>();
    let loads = loads.map_err(cannot("start a load"))?;
    disks.iter().for_each(SlowDisk::begin);
    let start = Instant::now();
    let (program, mut command) = command(args);
    if output.json {
        command.stdout(to_stderr()?);
    }
    let program = program.to_string_lossy();
    let child = testbed.spawn(node(at)?, command).map_err(cannot(&format!("start {program}")))?;
    let status = wait(child, &mut others, &signals, &mut records, &testbed)?;
    let seconds = start.elapsed().as_secs_f64();

    let mut work = Vec::new();
    for (load, running) in loads {
        let report =
            running.stop().map_err(cannot(&format!("keep up the load {}", load.work.name())))?;
        work.push((load.work, report));
    }
    let end = |disk: SlowDisk| Ok((disk.spec().folder.clone(), disk.end()?));
    let disks = disks.into_iter().map(end).collect::<io::Result<Vec<_>>>();
    let disks = disks.map_err(cannot("take a disk away"))?;
    records.write(&testbed)?;
    records.finish()?;
    let links = summary::links(&testbed).map_err(cannot("read the counters"))?;
    let printed = if output.json {
        let json = serde_json::json!({
            "status": code(status), "seconds": seconds, "seed": args.seed,
            "links": summary::json(&testbed, &links),
            "loads": summary::loads_json(&work), "disks": summary::disks_json(&disks),
        });
        output.print_json(&json)
    } else {
        output.say(summary::text(&testbed, &links).trim_end());
        if !work.is_empty() {
            output.say(summary::loads_text(&work).trim_end());
        }
        if !disks.is_empty() {
            output.say(summary::disks_text(&disks).trim_end());
        }
        Ok(())
    };
    testbed.close().map_err(cannot("carry packets to the end"))?;
    printed?;
    Ok(ExitCode::from(code(status)))
}

/// Nodes and the command lines that run there beside COMMAND, which runs `at` one of them.
fn runs<'a>(
    args: &'a PathArgs,
    topology: &Topology,
    at: &str,
) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    let runs = args.peer.iter().map(|command| ("peer", command.as_str()));
    let runs: Vec<(&str, &str)> =
        runs.chain(args.run.iter().map(|(node, command)| (&node[..], &command[..]))).collect();
    for node in runs.iter().map(|(node, _)| *node).chain([at]) {
        topology.node(node).ok_or_else(|| {
            Failure::usage(format!("topology {} has no node {node}", topology.name))
        })?;
    }
    let by_kernel = |link: &&LinkSpec| link.line == LineKind::Htb;
    if let (Some(_), Some(link)) = (&args.losses, topology.links.iter().find(by_kernel)) {
        let name = &link.name;
        let why = format!("--losses: HTB tells the losses of link {name} as one number");
        return Err(Failure::usage(why));
    }
    Ok(runs)
}

/// From the options, by name, or from a file.
fn topology(args: &PathArgs) -> Result<Topology, Failure> {
    let Some(name) = &args.topology else {
        let topology = two_hosts(&args.line);
        topology.validate().map_err(|error| Failure::usage(error.to_string()))?;
        return Ok(topology);
    };
    if let Some(builtin) = Builtin::find(name) {
        return Ok(builtin.topology());
    }
    if !Path::new(name).exists() {
        return Err(unknown(name).adding("and there is no such file"));
    }
    let text = std::fs::read_to_string(name).map_err(cannot(&format!("read {name}")))?;
    Topology::parse(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

fn two_hosts(args: &LineArgs) -> Topology {
    let line = Conditions {
        delay: Some(args.rtt / 2),
        rate: args.rate,
        queue: args.queue,
        path_mtu: args.path_mtu,
        swallows_udp: args.swallow_udp,
        ..Conditions::default()
    };
    let impaired = Conditions {
        ecn: args.ecn.map(|from| Marking { from, to: None, probability: None }),
        loss: args.loss,
        burst_loss: args.burst_loss,
        jitter: args.jitter.map(|max| JitterSpec { max, hold: None }),
        reorder: args.reorder,
        duplicate: args.duplicate.map(|probability| Duplicate { probability, by: Duration::ZERO }),
        corrupt: args.corrupt,
        ..Conditions::default()
    };
    let backward = if args.one_way { Conditions::default() } else { impaired.clone() };
    Topology::two_hosts(LinkSpec {
        mtu: args.mtu,
        black_hole: args.black_hole,
        forward: impaired,
        backward,
        ..LinkSpec::between_hosts(line)
    })
}

/// Says what there is, and how to get at it from elsewhere.
fn introduce(testbed: &Testbed, topology: &Topology, at: &str, output: &Output) {
    for link in &topology.links {
        output.say(format!("{}: {}", link.name, link.describe()));
    }
    for host in testbed.hosts().iter().filter(|host| host.name() != at) {
        let enter = testbed.netns_name(host).map(|name| format!(", ip netns exec {name} COMMAND"));
        output.say(format!("{}: {}{}", host.name(), host.ipv4(), enter.unwrap_or_default()));
    }
    // Where links lie side by side, each has its own address of the other end.
    let links = &topology.links;
    for (number, link) in links.iter().enumerate() {
        let beside = links.iter().filter(|other| other.between == link.between).count() > 1;
        let near = link.between.iter().position(|node| node == at).filter(|_| beside);
        let far = near.and_then(|near| Some((1 - near, testbed.host(&link.between[1 - near])?)));
        if let Some((end, host)) = far {
            let address = host.ipv4_on(number, end);
            output.say(format!("{} over {}: {address}", host.name(), link.name));
        }
    }
}

/// Starts a command line beside COMMAND.
fn beside(testbed: &Testbed, host: &Host, line: &str) -> Result<Child, Failure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).stdin(Stdio::null()).stdout(to_stderr()?);
    let child = testbed.spawn(host, shell).map_err(cannot(&format!("start {line}")))?;
    wait_for_listener(host);
    Ok(child)
}

fn command(args: &PathArgs) -> (OsString, Command) {
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, words) = match &args.command[..] {
        [program, words @ ..] => (program.clone(), words),
        [] => (shell(), &[][..]),
    };
    let mut command = Command::new(&program);
    command.args(words);
    (program, command)
}

/// Waits for the command, and for a while for the others to say why they have ended.
fn wait(
    mut child: Child,
    others: &mut Vec<(String, Child)>,
    signals: &Signals,
    records: &mut Records,
    testbed: &Testbed,
) -> Result<ExitStatus, Failure> {
    let mut next = Instant::now() + INTERVAL;
    let mut asked = None;
    loop {
        if let Some(status) = child.try_wait().map_err(cannot("wait for the command"))? {
            return Ok(status);
        }
        for index in (0..others.len()).rev() {
            let (what, other) = &mut others[index];
            if let Some(status) = other.try_wait().map_err(cannot("wait for a command"))? {
                if !status.success() {
                    complain(format!("longhaul: {what} has ended: {status}"));
                }
                others.remove(index);
            }
        }
        if signals.end.load(Ordering::Relaxed) {
            let at = *asked.get_or_insert_with(|| {
                signal(&child, Signal::TERM);
                Instant::now()
            });
            if at.elapsed() > GRACE {
                signal(&child, Signal::KILL);
            }
        }
        if Instant::now() >= next {
            next += INTERVAL;
            records.write(testbed)?;
        }
        if !testbed.is_running() {
            signal(&child, Signal::KILL);
        }
        std::thread::sleep(TURN);
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended just now.
        let _ = kill_process(pid, signal);
    }
}

/// Gives a server time to open its sockets: until one listens, or it is plainly something else.
fn wait_for_listener(host: &Host) {
    let deadline = Instant::now() + LISTENING;
    while Instant::now() < deadline && !host.listens(None).unwrap_or(true) {
        std::thread::sleep(TURN);
    }
}

/// Like a shell: 128 and more for a signal.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// What the commands' words go to where standard output is for something else.
fn to_stderr() -> Result<Stdio, Failure> {
    let fd = io::stderr().as_fd().try_clone_to_owned();
    Ok(fd.map_err(cannot("copy standard error"))?.into())
}

/// What the terminal's signals do while the command runs.
struct Signals {
    /// Somebody wants everything to end. Ctrl-C is the command's own affair.
    end: Arc<AtomicBool>,
}

impl Signals {
    fn install() -> Result<Self, Failure> {
        let (end, ignored) = (Arc::default(), Arc::default());
        let register = |signal, flag: &Arc<AtomicBool>| {
            signal_hook::flag::register(signal, flag.clone()).map_err(cannot("wait for signals"))
        };
        for signal in that_stop().map_err(cannot("look at signals"))? {
            register(signal, if signal == SIGINT { &ignored } else { &end })?;
        }
        Ok(Self { end })
    }
}

/// Files that are written while the command runs.
struct Records {
    losses: Option<BufWriter<File>>,
    series: Option<BufWriter<File>>,
    start: longhaul_units::Instant,
}

impl Records {
    fn open(args: &PathArgs) -> Result<Self, Failure> {
        let create = |path: &Path| {
            let file = File::create(path);
            file.map(BufWriter::new).map_err(cannot(&format!("write {}", path.display())))
        };
        let mut losses = args.losses.as_deref().map(create).transpose()?;
        if let Some(file) = &mut losses {
            writeln!(
                file,
                "seconds,link,direction,number,reason,bytes,protocol,from_port,to_port,head"
            )
            .map_err(cannot("write the losses"))?;
        }
        let series = args.series.as_deref().map(create).transpose()?;
        Ok(Self { losses, series, start: longhaul_sys::clock::now() })
    }

    /// What has happened since the last call.
    fn write(&mut self, testbed: &Testbed) -> Result<(), Failure> {
        let links = &testbed.topology().links;
        if let Some(file) = &mut self.losses {
            for (index, link) in links.iter().enumerate() {
                for (direction, word) in
                    [(Direction::Forward, "forward"), (Direction::Backward, "backward")]
                {
                    let (losses, left_out) = testbed.take_losses(index, direction);
                    let name = &link.name;
                    let write = || {
                        for loss in losses {
                            let at = loss.at.since(self.start).as_secs_f64();
                            let longhaul_lab::Flow { protocol, source_port, destination_port } =
                                loss.flow;
                            let (number, reason, bytes) = (loss.number, loss.reason, loss.bytes);
                            let head = loss.head.map(|byte| format!("{byte:02x}")).concat();
                            writeln!(
                                file,
                                "{at:.6},{name},{word},{number},{reason},{bytes},{protocol},\
                                 {source_port},{destination_port},{head}"
                            )?;
                        }
                        Ok(())
                    };
                    write().map_err(cannot("write the losses"))?;
                    if left_out > 0 {
                        complain(format!(
                            "longhaul: {left_out} losses are not in the file: too many at once"
                        ));
                    }
                }
            }
        }
        if let Some(file) = &mut self.series {
            let stats = summary::links(testbed).map_err(cannot("read the counters"))?;
            let seconds = longhaul_sys::clock::now().since(self.start).as_secs_f64();
            let links = summary::json(testbed, &stats);
            writeln!(file, "{}", serde_json::json!({ "seconds": seconds, "links": links }))
                .map_err(cannot("write the series"))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        for file in self.losses.iter_mut().chain(&mut self.series) {
            file.flush().map_err(cannot("write a record"))?;
        }
        Ok(())
    }
}

fn cannot(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::failed(format!("cannot {what}: {error}"))
}

/// Of the series, and of the polls for losses.
const INTERVAL: Duration = Duration::from_millis(100);
/// Between two looks whether the command has ended.
const TURN: Duration = Duration::from_millis(5);
/// From asking a command to end to killing it.
const GRACE: Duration = Duration::from_secs(5);
/// For a server to open its sockets.
const LISTENING: Duration = Duration::from_secs(2);
/// Losses of 100 ms at ten million packets a second.
const LOG: usize = 1 << 20;

//! One run: commands at both ends under one deadline, and an account of what they used.

use std::fs::File;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use longhaul_lab::{Host, Testbed};
use longhaul_sys::clock;
use longhaul_sys::process::{reap, wait_for_end};
use longhaul_units::Instant;
use tempfile::TempDir;

use crate::account::{Account, Series};
use crate::contender::{ContenderError, End, Job};
use crate::counters::{Count, Counters};
use crate::processes;

/// Two ends of a testbed and nodes between, the commands started there, and a folder for their
/// files. Whatever it started ends with it.
pub(crate) struct Session<'a> {
    testbed: &'a Testbed,
    job: &'a Job,
    /// The sending end, the receiving end, and what is between.
    hosts: Vec<&'a Host>,
    deadline: Instant,
    mark: String,
    processes: Vec<Process>,
    /// CPU time of what has ended, at each node.
    used: Vec<Duration>,
    /// The most memory that a process of each node has had.
    memory: Vec<u64>,
    counters: [Counters; 2],
    started: Option<Started>,
    over: Option<Instant>,
    /// Pairs of nodes whose routes have a congestion control of their own.
    controlled: Vec<[End; 2]>,
    folder: TempDir,
}

/// A command that was started; its output is in files.
struct Process {
    what: String,
    end: End,
    child: Option<Child>,
}

/// The start of a transfer.
struct Started {
    at: Instant,
    before: [Count; 2],
    series: Series,
}

impl<'a> Session<'a> {
    /// Takes up position; the job's patience begins now.
    pub(crate) fn new(testbed: &'a Testbed, job: &'a Job) -> Result<Self, ContenderError> {
        let deadline = clock::now() + job.patience;
        let host = |name: &str| {
            let unknown = || ContenderError::unsuitable(format!("the testbed has no node {name}"));
            testbed.host(name).ok_or_else(unknown)
        };
        let between = job.via.iter().map(|waypoint| &waypoint.node);
        let hosts = [&job.from, &job.to].into_iter().chain(between);
        let hosts = hosts.map(|name| host(name)).collect::<Result<Vec<_>, _>>()?;
        let folder = testbed.scratch().map_err(ContenderError::system("make a folder"))?;
        // Servers that give up root go through it.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode)
            .map_err(ContenderError::system("open a folder"))?;
        let counters =
            |host| Counters::of(host).map_err(ContenderError::system("open the counters"));
        let counters = [counters(hosts[0])?, counters(hosts[1])?];
        Ok(Self {
            testbed,
            job,
            deadline,
            // Names the run: no other has this folder.
            mark: folder.path().display().to_string(),
            processes: Vec::new(),
            used: vec![Duration::ZERO; hosts.len()],
            memory: vec![0; hosts.len()],
            hosts,
            counters,
            started: None,
            over: None,
            controlled: Vec::new(),
            folder,
        })
    }

    pub(crate) fn job(&self) -> &'a Job {
        self.job
    }

    fn host(&self, end: End) -> &'a Host {
        self.hosts[index(end)]
    }

    /// Both nodes, the sending one first.
    pub(crate) fn hosts(&self) -> (&'a Host, &'a Host) {
        (self.hosts[0], self.hosts[1])
    }

    pub(crate) fn address(&self, end: End) -> IpAddr {
        self.host(end).ipv4()
    }

    /// For configuration, keys and output; in memory where possible.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.since(clock::now())
    }

    /// A folder of that name for a server that gives up its privileges: anybody may write there.
    pub(crate) fn own_folder(&self, name: &str) -> Result<std::path::PathBuf, ContenderError> {
        let folder = self.folder().join(name);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        let made = std::fs::create_dir(&folder);
        let made = made.and_then(|()| std::fs::set_permissions(&folder, mode));
        made.map(|()| folder).map_err(ContenderError::system("make a folder"))
    }

    /// Has connections between the ends, made from now on until the session is over, use a
    /// congestion control of the kernel, and makes sure that they do.
    pub(crate) fn use_congestion_control(&mut self, name: &str) -> Result<(), ContenderError> {
        self.use_congestion_control_between([End::Sender, End::Receiver], name)
    }

    /// As [`Session::use_congestion_control`], between two nodes of the transfer.
    pub(crate) fn use_congestion_control_between(
        &mut self,
        nodes: [End; 2],
        name: &str,
    ) -> Result<(), ContenderError> {
        let [from, to] = nodes.map(|node| self.host(node));
        self.controlled.push(nodes);
        let used = || {
            self.testbed.set_congestion_control(from, to, Some(name))?;
            let listener = to.run(|| TcpListener::bind((to.ipv4(), 0)))??;
            let (target, left) = (listener.local_addr()?, self.left().max(TURN));
            let stream = from.run(|| TcpStream::connect_timeout(&target, left))??;
            longhaul_sys::tcp::congestion_control(&stream)
        };
        let used = used().map_err(ContenderError::system(&format!("choose {name}")))?;
        if used != name {
            return Err(ContenderError::unsuitable(format!(
                "the kernel uses {used} in place of {name}"
            )));
        }
        Ok(())
    }

    /// Starts a command at a node, without input.
    pub(crate) fn start(&mut self, end: End, command: Command) -> Result<usize, ContenderError> {
        self.start_joined(end, command, None, None)
    }

    /// As [`Session::start`], joined to something in place of no input and of a file for output.
    pub(crate) fn start_joined(
        &mut self,
        end: End,
        mut command: Command,
        input: Option<Stdio>,
        output: Option<Stdio>,
    ) -> Result<usize, ContenderError> {
        let what = command.get_program().to_string_lossy().into_owned();
        let what = Path::new(&what)
            .file_name()
            .map_or(what.clone(), |name| name.to_string_lossy().into_owned());
        let number = self.processes.len();
        let file = |kind| File::create(self.output_file(number, kind)).map(Stdio::from);
        let prepared = file("out").and_then(|out| Ok((out, file("err")?)));
        let (out, err) = prepared.map_err(ContenderError::system("make a file"))?;
        if command.get_current_dir().is_none() {
            command.current_dir(self.folder());
        }
        command.stdin(input.unwrap_or_else(Stdio::null)).stdout(output.unwrap_or(out)).stderr(err);
        command.env(MARK, &self.mark);
        let child = self.testbed.spawn(self.host(end), command);
        let child = child.map_err(ContenderError::system(&format!("start {what}")))?;
        self.processes.push(Process { what, end, child: Some(child) });
        Ok(number)
    }

    /// Waits until a process listens at `port`, by TCP or UDP.
    pub(crate) fn listening(&mut self, process: usize, port: u16) -> Result<(), ContenderError> {
        let host = self.host(self.processes[process].end);
        loop {
            if host.listens(Some(port)).map_err(ContenderError::system("look for sockets"))? {
                return Ok(());
            }
            let turn = (clock::now() + TURN).min(self.deadline);
            if self.has_ended(process, turn)? {
                let status = self.reap(process)?;
                return Err(self.failed(process, format!("ended before it listened, {status}")));
            }
            if self.left().is_zero() {
                return Err(self.timed_out());
            }
        }
    }

    /// When the transfer is cut, as the job says.
    pub(crate) fn cut(&self) -> Option<Instant> {
        Some(self.began()? + self.job.length?)
    }

    /// Waits until a process has ended; false where the transfer is to be cut before that.
    pub(crate) fn ends_before_cut(&mut self, process: usize) -> Result<bool, ContenderError> {
        let Some(cut) = self.cut() else { return Ok(true) };
        while !self.has_ended(process, (clock::now() + GLANCE).min(cut).min(self.deadline))? {
            self.look_at_memory();
            if clock::now() >= cut {
                return Ok(false);
            }
            if self.left().is_zero() {
                return Err(self.timed_out());
            }
        }
        Ok(true)
    }

    /// Asks a process to end (SIGTERM).
    pub(crate) fn ask_to_end(&self, process: usize) {
        if let Some(child) = &self.processes[process].child {
            processes::ask_to_end(child.id());
        }
    }

    /// Waits until a time, or until the job's patience is at its end.
    pub(crate) fn wait_until(&self, time: Instant) -> Result<(), ContenderError> {
        clock::sleep_until(time.min(self.deadline));
        if self.left().is_zero() { Err(self.timed_out()) } else { Ok(()) }
    }

    /// The transfer begins, when the job says: from here on time, packets and CPU are counted.
    pub(crate) fn begin(&mut self) -> Result<(), ContenderError> {
        if let Some(after) = self.job.begin {
            let begin = self.testbed.began() + after;
            let late = clock::now().since(begin);
            if !late.is_zero() {
                let status = format!("was ready {late:.1?} after the transfer was to begin");
                let (what, words) = ("this machine".to_owned(), String::new());
                return Err(ContenderError::Failed { what, status, words });
            }
            self.wait_until(begin)?;
        }
        let before = self.count()?;
        let counters =
            Counters::of(self.hosts[1]).map_err(ContenderError::system("open the counters"))?;
        let series = Series::start(counters, before[1].bytes_received, self.job.series);
        let series = series.map_err(ContenderError::system("start a thread"))?;
        self.used.fill(Duration::ZERO);
        self.started = Some(Started { at: clock::now(), before, series });
        Ok(())
    }

    /// Waits until a process has ended well, and returns its standard output.
    pub(crate) fn finish(&mut self, process: usize) -> Result<String, ContenderError> {
        let status = self.ended(process)?;
        if !status.success() {
            return Err(self.failed(process, status.to_string()));
        }
        Ok(self.output(process, "out"))
    }

    /// Waits until a process has ended, however.
    pub(crate) fn ended(&mut self, process: usize) -> Result<ExitStatus, ContenderError> {
        while !self.has_ended(process, (clock::now() + GLANCE).min(self.deadline))? {
            self.look_at_memory();
            if self.left().is_zero() {
                return Err(self.timed_out());
            }
        }
        self.reap(process)
    }

    /// It cannot be asked for once a process has ended.
    fn look_at_memory(&mut self) {
        for process in &self.processes {
            if let Some(child) = &process.child {
                let most = &mut self.memory[index(process.end)];
                *most = processes::peak_memory(child.id()).max(*most);
            }
        }
    }

    /// As [`Session::finish`], but gives up as soon as another process has failed; false where the
    /// transfer is to be cut before it has ended.
    pub(crate) fn finish_beside(
        &mut self,
        process: usize,
        other: usize,
    ) -> Result<bool, ContenderError> {
        let cut = self.cut();
        loop {
            self.look_at_memory();
            let turn = (clock::now() + TURN).min(self.deadline);
            if self.has_ended(process, turn)? {
                return self.finish(process).map(|_| true);
            }
            if self.processes[other].child.is_some() && self.has_ended(other, clock::now())? {
                self.finish(other)?;
            }
            if cut.is_some_and(|cut| clock::now() >= cut) {
                return Ok(false);
            }
            if self.left().is_zero() {
                return Err(self.timed_out());
            }
        }
    }

    /// Waits for a process; true if it ends within a while, or the job's patience.
    pub(crate) fn ends_within(
        &mut self,
        process: usize,
        time: Duration,
    ) -> Result<bool, ContenderError> {
        let ended = self.has_ended(process, (clock::now() + time).min(self.deadline))?;
        if ended && self.processes[process].child.is_some() {
            self.reap(process)?;
        }
        Ok(ended)
    }

    /// When the transfer began.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.started.as_ref().map(|started| started.at)
    }

    /// The receiver has everything: what happens now takes no more time.
    pub(crate) fn stop_clock(&mut self) {
        self.over = Some(clock::now());
    }

    /// Output of a process so far, on `out` or `err`.
    pub(crate) fn output(&self, process: usize, kind: &str) -> String {
        let bytes = std::fs::read(self.output_file(process, kind)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A failure of a process, in its own words.
    pub(crate) fn failed(&self, process: usize, status: impl Into<String>) -> ContenderError {
        let what = self.processes[process].what.clone();
        ContenderError::Failed { what, status: status.into(), words: self.last_words(process) }
    }

    /// The transfer is over: ends all processes and closes the account. The
    /// folder stays until the session is dropped.
    pub(crate) fn close(&mut self) -> Result<Account, ContenderError> {
        let end = self.over.unwrap_or_else(clock::now);
        let started = self.started.take();
        let started = started.ok_or_else(|| ContenderError::unsuitable("nothing was begun"))?;
        let after = self.count()?;
        let series = started.series.stop();
        self.look_at_memory();
        self.end_processes();
        let counts = [0, 1].map(|at| after[at].since(started.before[at]));
        let seconds = end.since(started.at).as_secs_f64();
        Ok(Account {
            seconds,
            counts,
            series,
            cpu: [self.used[0], self.used[1]],
            cpu_between: self.used[2..].to_vec(),
            memory: [self.memory[0], self.memory[1]],
        })
    }

    fn count(&self) -> Result<[Count; 2], ContenderError> {
        let read = |at: usize| self.counters[at].read();
        read(0).and_then(|a| Ok([a, read(1)?])).map_err(ContenderError::system("read the counters"))
    }

    fn has_ended(&self, process: usize, deadline: Instant) -> Result<bool, ContenderError> {
        let Some(child) = &self.processes[process].child else { return Ok(true) };
        wait_for_end(child, deadline).map_err(ContenderError::system("wait for a process"))
    }

    fn reap(&mut self, process: usize) -> Result<ExitStatus, ContenderError> {
        let process = &mut self.processes[process];
        let child = process.child.take();
        let child =
            child.ok_or_else(|| ContenderError::unsuitable("a process was waited for twice"))?;
        let (status, cpu) = reap(child).map_err(ContenderError::system("wait for a process"))?;
        self.used[index(process.end)] += cpu.total();
        Ok(status)
    }

    fn timed_out(&self) -> ContenderError {
        ContenderError::TimedOut { after: self.job.patience, words: self.words() }
    }

    /// The last words of each process.
    pub(crate) fn words(&self) -> String {
        let words = self.processes.iter().enumerate().map(|(at, process)| {
            let words = self.last_words(at);
            if words.is_empty() { words } else { format!("{}: {words}", process.what) }
        });
        let words: Vec<String> = words.filter(|words| !words.is_empty()).collect();
        words.join("\n")
    }

    /// The end of a process's standard error, or else of its standard output.
    fn last_words(&self, process: usize) -> String {
        let err = self.output(process, "err");
        let text = if err.trim().is_empty() { self.output(process, "out") } else { err };
        let lines: Vec<&str> =
            text.split(['\n', '\r']).map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let line = |line: &&str| line.chars().take(LINE_MAX).collect::<String>();
        let last: Vec<String> = lines.iter().rev().take(LINES).rev().map(line).collect();
        last.join("\n")
    }

    fn output_file(&self, number: usize, kind: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("command-{number}.{kind}"))
    }

    /// Kills everything that is left, and takes its CPU time into account.
    fn end_processes(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let children: Vec<(usize, u32)> = self
            .processes
            .iter()
            .enumerate()
            .filter_map(|(at, process)| Some((at, process.child.as_ref()?.id())))
            .collect();
        // Each with its descendants: the parents first, which then take no more account of them.
        let mut left = Vec::new();
        for &(at, pid) in &children {
            let family = processes::family(&[pid], None);
            processes::kill(pid);
            for pid in family {
                self.used[index(self.processes[at].end)] += processes::cpu_time(pid);
                left.push(pid);
            }
        }
        left.extend(processes::family(&[], Some((MARK, &self.mark))));
        for &pid in &left {
            processes::kill(pid);
        }
        for (at, _) in children {
            // It was killed; nothing is lost when it cannot be waited for.
            let _ = self.reap(at);
        }
        let patience = clock::now() + GOING;
        while left.iter().any(|&pid| processes::is_running(pid)) && clock::now() < patience {
            std::thread::sleep(TURN);
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.end_processes();
        for nodes in &self.controlled {
            let [from, to] = nodes.map(|node| self.host(node));
            // Who needs another sets it, and makes sure.
            let _ = self.testbed.set_congestion_control(from, to, None);
        }
    }
}

fn index(end: End) -> usize {
    match end {
        End::Sender => 0,
        End::Receiver => 1,
        End::Between(place) => 2 + place,
    }
}

/// The variable in the environment of commands that names their run.
const MARK: &str = "LONGHAUL_PEER";
const TURN: Duration = Duration::from_millis(5);
/// Between two looks at how much memory processes have: short beside a run.
const GLANCE: Duration = Duration::from_millis(50);
/// For processes to go that were killed.
const GOING: Duration = Duration::from_secs(2);
/// Most lines of a program's output that are shown, and the most of each.
const LINES: usize = 12;
const LINE_MAX: usize = 400;

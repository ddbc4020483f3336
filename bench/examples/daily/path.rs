//! Files, and the path that they are to take.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_bench::processes::{Ended, Served, make_random, make_token, success};
use longhaul_lab::{Conditions, LinkSpec, Testbed, TestbedOptions, Topology, clean_up};
use longhaul_pathsim::Probability;
use longhaul_peers::Sshd;
use longhaul_sys::clock;
use longhaul_sys::memory::HeldPages;
use longhaul_sys::process::wait_for_end;
use longhaul_units::Rate;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use tempfile::TempDir;

use super::Outcome;

/// Sources in memory, the program and its token.
pub struct Files {
    pub folder: TempDir,
    pub program: PathBuf,
    /// So that a virtual machine need not fetch memory from its host while a copy is measured.
    _held_pages: HeldPages,
}

impl Files {
    pub fn new(program: &FilePath) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("longhaul-daily-").tempdir_in("/dev/shm")?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for name in ["six", "large", "small", "targets", "home"] {
            fs::create_dir(folder.path().join(name))?;
        }
        make_random(&folder.path().join("six/file"), 6, &mut random)?;
        make_random(&folder.path().join("large/file"), 100_000_000, &mut random)?;
        for index in 0..2_000 {
            let parent = folder.path().join(format!("small/{:02}", index / 100));
            fs::create_dir_all(&parent)?;
            make_random(&parent.join(index.to_string()), 10 << 10, &mut random)?;
        }
        make_token(program, &folder.path().join("token"))?;
        let _held_pages = HeldPages::new(400 << 20)?;
        Ok(Self { folder, program: program.to_owned(), _held_pages })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new destination.
    pub fn target(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix("to-").tempdir_in(self.path("targets"))
    }

    /// Compares contents, where the copy was done.
    ///
    /// # Errors
    /// They differ.
    pub fn assert_same(
        &self,
        source: &str,
        target: &FilePath,
        done: Option<&Option<f64>>,
    ) -> Outcome<()> {
        if let Some(None) = done {
            return Ok(());
        }
        let mut diff = Command::new("diff");
        diff.arg("-rq").arg(self.path(source)).arg(target);
        Ok(success(diff.status()?.success(), "a copy")?)
    }
}

/// Two hosts, with an ssh server and a server of Longhaul's at the second.
pub struct Path<'f> {
    pub files: &'f Files,
    pub sshd: Sshd,
    /// The address of the second host.
    pub address: IpAddr,
    /// Where Longhaul's server listens.
    pub server: String,
    testbed: Testbed,
    _servers: (Ended, Served),
    _keys: TempDir,
}

impl<'f> Path<'f> {
    pub fn new(files: &'f Files, loss: Probability) -> Outcome<Self> {
        let _ = clean_up()?;
        let both = Conditions {
            delay: Some(Duration::from_millis(50)),
            rate: Some(Rate::from_gbps(1)),
            ..Conditions::default()
        };

        let forward = Conditions { loss: Some(loss), ..Conditions::default() };
        let link = LinkSpec { forward, ..LinkSpec::between_hosts(both) };
        let testbed = Testbed::new(&Topology::two_hosts(link), &TestbedOptions::default())?;
        let keys = tempfile::Builder::new().prefix("keys-").tempdir_in(files.folder.path())?;
        let (_, to) = testbed.ends();
        let address = to.ipv4();
        let sshd = Sshd::new(keys.path(), address)?;
        fs::create_dir(keys.path().join("bin"))?;
        symlink(&files.program, keys.path().join("bin/longhaul"))?;
        let mut server = sshd.server();
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let ssh_server = Ended(testbed.spawn(to, server)?);
        let until = clock::now() + PATIENCE;
        while !to.listens(Some(Sshd::PORT))? {
            success(clock::now() < until, "sshd")?;
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut server = Command::new(&files.program);
        server.args(["serve", "--listen"]).arg(format!("{address}:7420"));
        server.args(["--allow-read", "--allow-write", "--root"]).arg(files.path("targets"));
        server.arg("--token-file").arg(files.path("token"));
        let served = Served::start(server, |server| testbed.spawn(to, server))?;
        let server = served.address.clone();
        Ok(Self {
            files,
            sshd,
            address,
            server,
            testbed,
            _servers: (ssh_server, served),
            _keys: keys,
        })
    }

    /// Runs a command at the first host: its seconds, or nothing where it was not done in time.
    ///
    /// # Errors
    /// It fails, with its words.
    pub fn seconds(&self, mut command: Command) -> Outcome<Option<f64>> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(self.files.path("errors"))?);
        command.env("HOME", self.files.path("home"));
        let (from, _) = self.testbed.ends();
        let start = Instant::now();
        let mut child = Ended(self.testbed.spawn(from, command)?);
        if !wait_for_end(&child.0, clock::now() + PATIENCE)? {
            return Ok(None);
        }
        let seconds = start.elapsed().as_secs_f64();
        if child.0.wait()?.success() {
            return Ok(Some(seconds));
        }
        Err(self.errors()?.into())
    }

    /// The standard error of the last command.
    pub fn errors(&self) -> io::Result<String> {
        fs::read_to_string(self.files.path("errors"))
    }
}

/// For one command.
pub const PATIENCE: Duration = Duration::from_secs(30);

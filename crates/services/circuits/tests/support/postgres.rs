//! A PostgreSQL of our own for a test: unprivileged, in a private directory, on a private socket.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

/// Ends with the test: asked when dropped, and by the kernel if the test is killed.
pub struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        if let (Some(uid), gid) = nobody() {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let done = command("initdb")
            .args(["-A", "trust", "-U", "longhaul", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&data)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(done.status.success(), "initdb: {}", String::from_utf8_lossy(&done.stderr));
        let child = command("postgres")
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses="])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut this = Self { child, folder };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begin = Instant::now();
        // It listens before it is ready.
        while runtime.block_on(PgConnection::connect(&this.url())).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "postgres does not come up");
            let ended = this.child.try_wait().unwrap();
            assert!(ended.is_none(), "postgres ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        this
    }

    /// Where it is reached.
    pub fn url(&self) -> String {
        let host = self.folder.path().display();
        format!("postgres://longhaul@localhost/postgres?host={host}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT: at once; the data is thrown away anyway.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.child.wait();
    }
}

/// The user that PostgreSQL runs as, which must not be root.
fn nobody() -> (Option<u32>, u32) {
    (rustix::process::geteuid().is_root().then_some(65534), 65534)
}

fn command(name: &str) -> Command {
    let mut command = Command::new(find("setpriv"));
    // The server ends when the thread that started it does.
    command.args(["--pdeathsig", "QUIT"]);
    if let (Some(uid), gid) = nobody() {
        command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
    }
    command.arg("--").arg(find(name)).process_group(0);
    command
}

fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian keeps the server's programs here, by version.
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let file = folders.iter().map(|folder| folder.join(name)).find(|file| Path::is_file(file));
    file.unwrap_or_else(|| panic!("{name} is not installed"))
}

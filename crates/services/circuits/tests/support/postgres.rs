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
    /// Starts a server, or says why not.
    pub fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let data = folder.path().join("data");
        let (uid, gid) = nobody();
        if let Some(uid) = uid {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chown(folder.path(), Some(uid), Some(gid))
                .map_err(|error| error.to_string())?;
        }
        let mut init = command("initdb")?;
        let done = init
            .args(["-A", "trust", "-U", "longhaul", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&data)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("initdb: {error}"))?;
        if !done.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&done.stderr)));
        }
        let mut server = command("postgres")?;
        let child = server
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-c", "listen_addresses="])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("postgres: {error}"))?;
        let mut this = Self { child, folder };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let begin = Instant::now();
        // It listens before it is ready.
        while runtime.block_on(PgConnection::connect(&this.url())).is_err() {
            if begin.elapsed() > Duration::from_secs(60) {
                return Err("postgres does not come up".into());
            }
            if let Ok(Some(status)) = this.child.try_wait() {
                return Err(format!("postgres ended: {status}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(this)
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

fn command(name: &str) -> Result<Command, String> {
    let program = find(name).ok_or(format!("{name} is not installed"))?;
    let setpriv = find("setpriv").ok_or("setpriv is not installed")?;
    let mut command = Command::new(setpriv);
    // The server ends when the thread that started it does.
    command.args(["--pdeathsig", "QUIT"]);
    if let (Some(uid), gid) = nobody() {
        command.args(["--reuid", &uid.to_string(), "--regid", &gid.to_string(), "--clear-groups"]);
    }
    command.arg("--").arg(program).process_group(0);
    Ok(command)
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian keeps the server's programs here, by version.
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders.iter().map(|folder| folder.join(name)).find(|file| Path::is_file(file))
}

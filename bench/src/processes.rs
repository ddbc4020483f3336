//! Programs that are run for a measurement, and files of random bytes for them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A process that does not outlive this value.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running `longhaul serve --once`.
pub struct Served {
    process: Ended,
    /// The address that it listens at.
    pub address: String,
    drain: JoinHandle<io::Result<u64>>,
}

impl Served {
    /// Starts `server` by `spawn`, and waits until it listens.
    ///
    /// # Errors
    /// It does not start, or ends before it listens: with its words.
    pub fn start(
        mut server: Command,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> io::Result<Self> {
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Ended(spawn(server)?);
        let lines = process.0.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(lines);
        let address = listening(&mut lines)?;
        // So that it never waits for a reader.
        let drain = std::thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        Ok(Self { process, address, drain })
    }

    /// The process.
    pub fn process(&self) -> &Child {
        &self.process.0
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Its transfer failed.
    pub fn end(mut self) -> io::Result<()> {
        success(self.process.0.wait()?.success(), "longhaul serve")?;
        let _ = self.drain.join();
        Ok(())
    }
}

/// The address in the server's first words.
fn listening(lines: &mut impl BufRead) -> io::Result<String> {
    let mut output = String::new();
    loop {
        let start = output.len();
        if lines.read_line(&mut output)? == 0 {
            return Err(io::Error::other(format!("longhaul serve: {}", output.trim())));
        }
        if let Some(rest) = output[start..].strip_prefix("listening on ") {
            return Ok(rest.split([',', '\n']).next().unwrap_or_default().to_owned());
        }
    }
}

/// Makes a file with a token, if there is none.
///
/// # Errors
/// The program does not start, or fails.
pub fn make_token(program: &Path, file: &Path) -> io::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut keys = Command::new(program);
    keys.args(["keys", "new", "--quiet", "--token-file"]).arg(file);
    keys.stdout(Stdio::null()).stderr(Stdio::null());
    success(keys.status()?.success(), "longhaul keys")
}

/// Makes a file of so many random bytes.
///
/// # Errors
/// Those of writing it.
pub fn make_random(path: &Path, bytes: u64, random: &mut Xoshiro256PlusPlus) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0; BLOCK.min(bytes as usize)];
    let mut left = bytes as usize;
    while left > 0 {
        random.fill_bytes(&mut block);
        let len = left.min(block.len());
        file.write_all(&block[..len])?;
        left -= len;
    }
    Ok(())
}

/// An error that names `what`, unless it is `done`.
///
/// # Errors
/// It is not.
pub fn success(done: bool, what: &str) -> io::Result<()> {
    if done { Ok(()) } else { Err(io::Error::other(format!("{what} did not succeed"))) }
}

const BLOCK: usize = 1 << 20;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Driver, Switch};

/// A program of the operator, run once for each change with a JSON object on its standard input:
/// `{"do":"reset","link":NAME}` or `{"do":"set", ...}` with the fields of [`Switch`]. It must end
/// within ten seconds, with status 0 if it has done what it was told.
#[derive(Debug)]
pub struct Command {
    link: String,
    program: PathBuf,
}

impl Command {
    /// Runs `program` for `link`.
    ///
    /// # Errors
    /// There is no such file.
    pub fn new(link: &str, program: &Path) -> Result<Self, String> {
        match program.is_file() {
            true => Ok(Self { link: link.into(), program: program.into() }),
            false => Err(format!("link {link}: {} is no program", program.display())),
        }
    }

    fn run(&self, input: &serde_json::Value) -> Result<(), String> {
        let wrong = |why: String| format!("link {}: {}: {why}", self.link, self.program.display());
        let mut child = std::process::Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| wrong(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input may still do what is right.
            let _ = writeln!(stdin, "{input}");
        }
        let status = wait(&mut child).map_err(wrong)?;
        if status.success() { Ok(()) } else { Err(wrong(status.to_string())) }
    }
}

impl Driver for Command {
    fn reset(&mut self) -> Result<(), String> {
        self.run(&json!({ "do": "reset", "link": self.link }))
    }

    fn set(&mut self, switches: &[Switch], told: &mut dyn FnMut(&Switch, Result<(), String>)) {
        for switch in switches {
            let input = serde_json::to_value(switch).map_err(|error| error.to_string());
            let done = input.and_then(|mut input| {
                input["do"] = "set".into();
                self.run(&input)
            });
            told(switch, done);
        }
    }
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed() > PATIENCE => {
                // It may have ended in this moment.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("killed after {} s", PATIENCE.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

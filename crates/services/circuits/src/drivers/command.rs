use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use super::lease::Fence;
use super::{Driver, DriverError, Lease, ProgramError, Switch};

/// A program of the operator, run once for each change with a JSON object on its standard input:
/// [`Switch`]. It must end within ten seconds, and while its leader's lease lasts, with status 0 if
/// it has carried the order out; if not, it is killed with all that it has started. Epochs only
/// grow: what comes with a smaller one than before is from a leader that another has followed.
#[derive(Debug)]
pub struct Command {
    link: String,
    program: PathBuf,
    fence: Fence,
}

impl Command {
    /// Runs `program` for `link`.
    ///
    /// # Errors
    /// There is no such file.
    pub fn new(link: &str, program: &Path) -> Result<Self, DriverError> {
        match program.is_file() {
            true => {
                Ok(Self { link: link.into(), program: program.into(), fence: Fence::default() })
            }
            false => Err(DriverError::NoProgram { link: link.into(), program: program.into() }),
        }
    }

    fn run(&self, mut input: serde_json::Value) -> Result<(), DriverError> {
        let lease = self.fence.check()?;
        input["epoch"] = lease.epoch().into();
        let program = || self.program.clone();
        self.order(&input, lease)
            .map_err(|error| DriverError::Program { program: program(), error })
    }

    fn order(&self, input: &serde_json::Value, lease: &Lease) -> Result<(), ProgramError> {
        let mut child = std::process::Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(ProgramError::System)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input may still do what is right.
            let _ = writeln!(stdin, "{input}");
        }
        let status = wait(&mut child, lease)?;
        if status.success() { Ok(()) } else { Err(ProgramError::Status(status)) }
    }
}

impl Driver for Command {
    fn reset(&mut self, lease: &Lease) -> Result<(), DriverError> {
        self.fence.begin(lease)?;
        self.run(json!({ "do": "reset", "link": self.link }))
    }

    fn set(
        &mut self,
        switches: &[Switch],
        report: &mut dyn FnMut(&Switch, Result<(), DriverError>),
    ) {
        for switch in switches {
            let mut input =
                serde_json::to_value(switch).expect("texts and numbers have their JSON");
            input["do"] = "set".into();
            report(switch, self.run(input));
        }
    }
}

fn wait(child: &mut Child, lease: &Lease) -> Result<ExitStatus, ProgramError> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begin.elapsed() > PATIENCE || !lease.holds() => {
                // It may have ended in this moment.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                let _ = child.wait();
                return Err(match lease.holds() {
                    true => ProgramError::Slow { after_secs: PATIENCE.as_secs() },
                    false => ProgramError::LeaseOver { epoch: lease.epoch() },
                });
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(ProgramError::System(error)),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let (script, child) = (folder.path().join("script"), folder.path().join("child"));
        let text = format!("#!/bin/sh\nsleep 600 &\necho $! > {}\nwait\n", child.display());
        let written = folder.path().join("written");
        std::fs::write(&written, text).unwrap();
        // By another process, since nobody can run what a process just forked has open for writing.
        let mut install = std::process::Command::new("install");
        assert!(install.args(["-m", "755"]).args([&written, &script]).status().unwrap().success());
        let lease = Lease::new(1);
        let mut driver = Command::new("a-b", &script).unwrap();
        let why = driver.reset(&lease).unwrap_err().to_string();
        assert_eq!(why, format!("{}: killed after 10 s", script.display()));
        is_gone(&child);
        // Or sooner, when its leader may not switch any more.
        std::fs::remove_file(&child).unwrap();
        let begun =
            |child: &Path| std::fs::read_to_string(child).is_ok_and(|pid| pid.ends_with('\n'));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun(&child) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                lease.end();
            });
            let why = driver.reset(&lease).unwrap_err().to_string();
            assert_eq!(why, format!("{}: killed: the lease of epoch 1 is over", script.display()));
        });
        is_gone(&child);
        std::fs::remove_file(&child).unwrap();
        assert!(
            driver.reset(&lease).unwrap_err().to_string().contains("the lease of epoch 1 is over")
        );
        assert!(!child.exists(), "it is not even started");
    }

    /// Waits for the process that a file names to end.
    fn is_gone(child: &Path) {
        let child = std::fs::read_to_string(child).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        // Gone, or dead until somebody asks for its status.
        let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let begin = Instant::now();
        while lives() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{stat}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

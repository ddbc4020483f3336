//! Programs of this machine.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use longhaul_sys::clock;
use longhaul_sys::process::{reap, wait_for_end};

use crate::contender::{Absent, Presence};

/// Looks for a program in PATH, and where servers are that PATH may not show.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// The programs of these names, or which is missing and what has it.
pub(crate) fn require<const N: usize>(
    names: [&str; N],
    packages: &[&'static str],
) -> Result<[PathBuf; N], Absent> {
    let mut found = [const { PathBuf::new() }; N];
    for (place, name) in found.iter_mut().zip(names) {
        let absent = || Absent::new(format!("no {name} in PATH"), packages);
        *place = find(name).ok_or_else(absent)?;
    }
    Ok(found)
}

/// Result of a command.
pub(crate) struct CommandOutput {
    /// True if it ended by itself and well.
    pub(crate) ok: bool,
    /// Both outputs.
    pub(crate) text: String,
}

/// A command's output within some seconds, or why it cannot be started.
pub(crate) fn output(command: &mut Command) -> String {
    output_within(command, PATIENCE).text
}

/// As [`output`], for commands that take longer.
pub(crate) fn output_within(command: &mut Command, patience: Duration) -> CommandOutput {
    run(command, patience)
        .unwrap_or_else(|error| CommandOutput { ok: false, text: error.to_string() })
}

fn run(command: &mut Command, patience: Duration) -> io::Result<CommandOutput> {
    let mut file = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let mut child = command.spawn()?;
    let ended = wait_for_end(&child, clock::now() + patience)?;
    if !ended {
        // It may have ended just now.
        let _ = child.kill();
    }
    let (status, _) = reap(child)?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput { ok: ended && status.success(), text })
}

/// A program with the version that `parse` finds in what it says.
pub(crate) fn presence(
    program: PathBuf,
    argument: &str,
    parse: fn(&str) -> Option<String>,
) -> Presence {
    let text = output(Command::new(&program).arg(argument));
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let version = parse(&text).unwrap_or_else(|| format!("{name}, version unknown"));
    Presence { version, program: Some(program) }
}

fn is_executable(file: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// For a program to show its version, or to make a key.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_reported_absent() {
        let [sh] = require(["sh"], &[]).unwrap();
        assert!(sh.is_absolute());
        let absent = require(["sh", "no-such-program"], &["nothing"]).unwrap_err();
        let expected = "no no-such-program in PATH; on Debian: apt-get install nothing";
        assert_eq!(absent.to_string(), expected);
    }

    #[test]
    fn the_output_of_programs_is_read() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo a; echo b >&2"])), "a\nb\n");
        let absent = output_within(&mut Command::new("/no/such/program"), PATIENCE);
        assert!(!absent.ok && absent.text.contains("No such file"), "{}", absent.text);
        let mut slow = Command::new("sleep");
        assert!(!output_within(slow.arg("300"), Duration::from_millis(1)).ok);
    }
}

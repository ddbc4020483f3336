//! Programs of this machine.

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

/// What a command says on both outputs within some seconds; nothing when it cannot be started.
pub(crate) fn output(command: &mut Command) -> String {
    output_within(command, PATIENCE)
}

/// As [`output`], for commands that take longer.
pub(crate) fn output_within(command: &mut Command, patience: Duration) -> String {
    let Ok(folder) = tempfile::tempdir() else { return String::new() };
    let file = folder.path().join("said");
    let said = std::fs::File::create(&file).and_then(|out| Ok((out.try_clone()?, out)));
    let Ok((out, err)) = said else { return String::new() };
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    if let Ok(mut child) = command.spawn() {
        if !wait_for_end(&child, clock::now() + patience).unwrap_or(false) {
            // It may have ended just now.
            let _ = child.kill();
        }
        let _ = reap(child);
    }
    String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned()
}

/// A program with the version that `parse` finds in what it says.
pub(crate) fn presence(
    program: PathBuf,
    argument: &str,
    parse: fn(&str) -> Option<String>,
) -> Presence {
    let said = output(Command::new(&program).arg(argument));
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let version = parse(&said).unwrap_or_else(|| format!("{name}, version unknown"));
    Presence { version, program: Some(program) }
}

fn is_executable(file: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// For a program to tell its version.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_said_to_be_absent() {
        let [sh] = require(["sh"], &[]).unwrap();
        assert!(sh.is_absolute());
        let absent = require(["sh", "no-such-program"], &["nothing"]).unwrap_err();
        let expected = "no no-such-program in PATH; on Debian: apt-get install nothing";
        assert_eq!(absent.to_string(), expected);
    }

    #[test]
    fn what_programs_say_is_read() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo a; echo b >&2"])), "a\nb\n");
        assert_eq!(output(&mut Command::new("/no/such/program")), "");
    }
}

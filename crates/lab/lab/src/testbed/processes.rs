//! Processes known by a variable of their environment, which their children inherit.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks commands.
pub(super) const TAG: &str = "LONGHAUL_LAB";

/// How often processes are looked for, at most: one that is killed may take some time to end.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Kills the processes that bear a mark that is wanted, and tells how many there were. It looks until
/// there is none twice in a row: between a look and a kill a process may have begun another, and one
/// that is becoming another program has for a moment an environment that is empty.
///
/// # Errors
/// Those of listing processes. Other users' processes are not seen.
pub(super) fn kill_marked(wanted: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut killed = HashSet::new();
    let mut quiet = 0;
    for _ in 0..LOOKS {
        quiet += 1;
        for entry in fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid.filter(|pid| *pid != std::process::id() as i32) else { continue };
            match environment(&entry.path()) {
                Environment::Of(variables) if is_marked(&variables, &wanted) => {
                    if let Some(pid) = Pid::from_raw(pid)
                        && kill_process(pid, Signal::KILL).is_ok()
                    {
                        killed.insert(pid);
                        quiet = 0;
                    }
                }
                Environment::NotYet => quiet = 0,
                Environment::Of(_) | Environment::None => {}
            }
        }
        if quiet == 2 {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(killed.len())
}

/// What is known of a process's environment.
enum Environment {
    Of(Vec<u8>),
    /// It is becoming another program, whose environment is not in place yet.
    NotYet,
    /// It has none; or it is another user's, a thread of the kernel, or gone.
    None,
}

/// Reading nothing does not say which: so does a process with a new program since its file was opened.
fn environment(process: &Path) -> Environment {
    let Ok(variables) = fs::read(process.join("environ")) else { return Environment::None };
    if !variables.is_empty() {
        return Environment::Of(variables);
    }
    let Ok(stat) = fs::read_to_string(process.join("stat")) else { return Environment::None };
    // `vsize`, `env_start` and `env_end`.
    match [23, 50, 51].map(|number| stat_field(&stat, number)) {
        [Some(memory), Some(start), Some(end)] if memory > 0 && (end == 0 || start < end) => {
            Environment::NotYet
        }
        _ => Environment::None,
    }
}

/// A field of /proc/PID/stat by its number in proc_pid_stat(5), from the third on: the second, in
/// parentheses, is the name of the program and may hold anything.
pub(super) fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)?.parse().ok()
}

fn is_marked(variables: &[u8], wanted: impl Fn(&str) -> bool) -> bool {
    variables.split(|byte| *byte == 0).any(|variable| {
        let text = std::str::from_utf8(variable).unwrap_or_default();
        text.strip_prefix(TAG).and_then(|rest| rest.strip_prefix('=')).is_some_and(&wanted)
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_found_while_it_becomes_another_program() {
        for round in 0..50 {
            let mark = format!("{}-becoming-{round}", std::process::id());
            let again = r#"exec sh -c "$0" "$0""#;
            let mut process =
                Command::new("sh").args(["-c", again, again]).env(TAG, &mark).spawn().unwrap();
            let killed = kill_marked(|found| found == mark);
            process.kill().unwrap();
            process.wait().unwrap();
            assert_eq!(killed.unwrap(), 1);
        }
    }
}

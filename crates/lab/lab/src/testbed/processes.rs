//! Processes known by a variable of their environment, which their children inherit.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use longhaul_sys::processes::with_variable;
use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks commands.
pub(super) const TAG: &str = "LONGHAUL_LAB";

/// Looks for processes, at most: one that is killed may take some time to end.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Kills the processes that bear a mark that is wanted, and returns their number. It looks until
/// there is none twice in a row: between a look and a kill a process may have begun another.
///
/// # Errors
/// Errors of listing processes. Other users' processes are not seen.
pub(super) fn kill_marked(wanted: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut killed = HashSet::new();
    let mut quiet = 0;
    for _ in 0..LOOKS {
        quiet += 1;
        let others = with_variable(TAG, &wanted)?.into_iter();
        for pid in others.filter(|pid| *pid != std::process::id()) {
            if let Some(pid) = Pid::from_raw(pid as i32)
                && kill_process(pid, Signal::KILL).is_ok()
            {
                killed.insert(pid);
                quiet = 0;
            }
        }
        if quiet == 2 {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(killed.len())
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

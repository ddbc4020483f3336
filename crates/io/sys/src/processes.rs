//! Processes of this machine, as `/proc` tells of them.

use std::fs;
use std::io;
use std::time::Duration;

/// The processes that there are.
///
/// # Errors
/// Where `/proc` is not mounted.
pub fn all() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/proc")?.flatten();
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The processes whose environment has a variable with a value that is wanted; their children
/// inherit it. Other users' are not seen.
///
/// # Errors
/// Those of [`all`].
pub fn with_variable(name: &str, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<u32>> {
    let has_it = |variables: Vec<u8>| {
        variables.split(|byte| *byte == 0).any(|variable| {
            let text = std::str::from_utf8(variable).unwrap_or_default();
            text.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).is_some_and(&wanted)
        })
    };
    Ok(all()?.into_iter().filter(|pid| environment(*pid).is_some_and(has_it)).collect())
}

/// A field of `/proc/PID/stat` by its number in proc_pid_stat(5), from the third on: the second, in
/// parentheses, is the name of the program and may hold anything.
pub fn stat_field(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number.checked_sub(3)?)
}

/// A process's variables, each with a zero behind it; nothing of another user's, a thread of the
/// kernel, or one that is gone. One that is becoming another program is waited for: it has none for a
/// moment, and what is being read of its old ones ends anywhere.
fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut variables = Vec::new();
    for _ in 0..LOOKS {
        variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let number = |field| stat_field(&stat, field)?.parse::<u64>().ok();
        // `vsize`, `startcode`, `env_start` and `env_end`. The kernel sets the ends of the variables one
        // after the other, and where the code begins once both are right.
        let (memory, code) = (number(23)?, number(26)?);
        let (start, end) = (number(50)?, number(51)?);
        if memory == 0 {
            return None;
        }
        if code > CODE_UNKNOWN && end.checked_sub(start) == Some(variables.len() as u64) {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Some(variables)
}

/// Address of the code that the kernel shows while the program is not yet in place.
const CODE_UNKNOWN: u64 = 1;
/// Number of looks at a process that is becoming another program: it needs a processor for that.
const LOOKS: u32 = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_found_while_it_becomes_another_program() {
        for round in 0..50 {
            let mark = format!("{}-becoming-{round}", std::process::id());
            let again = r#"exec sh -c "$0" "$0""#;
            let mut command = Command::new("sh");
            let mut process =
                command.args(["-c", again, again]).env("LONGHAUL_SYS", &mark).spawn().unwrap();
            let found = with_variable("LONGHAUL_SYS", |value| value == mark);
            process.kill().unwrap();
            process.wait().unwrap();
            assert_eq!(found.unwrap(), [process.id()]);
        }
    }

    #[test]
    fn a_variable_is_known_by_its_whole_name_and_value() {
        let mut command = Command::new("sleep");
        let mut process = command.arg("300").env("LONGHAUL_SYS_WHOLE", "a=b").spawn().unwrap();
        let found = |name, value| with_variable(name, |found| found == value).unwrap();
        assert_eq!(found("LONGHAUL_SYS_WHOLE", "a=b"), [process.id()]);
        assert_eq!(found("LONGHAUL_SYS_WHOLE", "a"), [0; 0]);
        assert_eq!(found("LONGHAUL_SYS", "a=b"), [0; 0]);
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(found("LONGHAUL_SYS_WHOLE", "a=b"), [0; 0]);
    }

    #[test]
    fn fields_are_found_whatever_the_name() {
        let stat = "7 (a) b (c)) S 5 7 7";
        assert_eq!((stat_field(stat, 3), stat_field(stat, 4)), (Some("S"), Some("5")));
        assert_eq!(
            (stat_field(stat, 2), stat_field(stat, 7), stat_field("", 3)),
            (None, None, None)
        );
    }
}

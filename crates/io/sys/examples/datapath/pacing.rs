//! Lateness of `sleep_until`.

use std::error::Error;
use std::time::Duration;

use longhaul_sys::clock;

pub fn measure() -> Result<(), Box<dyn Error>> {
    println!("\npacing: wakes late by, in microseconds (deadlines 250 us apart, 4000 of them)");
    println!("{:<34} {:>7} {:>7} {:>7} {:>7} {:>6}", "", "p50", "p90", "p99", "max", "CPU %");
    for (name, precise, spin) in ROWS {
        // A thread of its own, because the timer slack is the thread's.
        let row = std::thread::spawn(move || -> std::io::Result<_> {
            if precise {
                clock::use_precise_timers()?;
            }
            Ok(lateness(Duration::from_micros(spin)))
        });
        let (mut late, cpu) = row.join().map_err(|_| "the sleeper panicked")??;
        late.sort_unstable();
        let at = |part: f64| late[((late.len() - 1) as f64 * part) as usize] as f64 / 1e3;
        println!(
            "{name:<34} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>6.1}",
            at(0.5),
            at(0.9),
            at(0.99),
            at(1.0),
            cpu * 100.0
        );
    }
    Ok(())
}

fn lateness(spin: Duration) -> (Vec<u64>, f64) {
    let (start, cpu) = (clock::now(), clock::thread_cpu_time());
    let mut late = Vec::with_capacity(DEADLINES);
    let mut deadline = start;
    for _ in 0..DEADLINES {
        deadline = deadline.max(clock::now()) + INTERVAL;
        if spin.is_zero() {
            clock::sleep_until(deadline);
        } else {
            clock::sleep_until_spinning(deadline, spin);
        }
        late.push((clock::now() - deadline).as_nanos() as u64);
    }
    let cpu = (clock::thread_cpu_time() - cpu).as_secs_f64();
    (late, cpu / (clock::now() - start).as_secs_f64())
}

/// Name, timer slack of 1 ns, microseconds to spin.
const ROWS: [(&str, bool, u64); 4] = [
    ("default timer slack", false, 0),
    ("timer slack 1 ns", true, 0),
    ("the same, last 50 us spinning", true, 50),
    ("the same, last 100 us spinning", true, 100),
];

const DEADLINES: usize = 4000;
const INTERVAL: Duration = Duration::from_micros(250);

//! Prints how long controllers take out of drawn states (`tests/scenarios/states.rs`) to carry what the link carries.

#[path = "../tests/scenarios/world.rs"]
mod world;

#[path = "../tests/scenarios/states.rs"]
mod states;

use longhaul_units::Duration;
use states::{State, time};
use world::{beliefs, played};

/// `states`: a table of profiles. `states PROFILE [SEEDS [FROM]]`: the same of one, and the states that it was
/// not out of in time. `states trace PROFILE SEED [MILLISECONDS]`: what it believes meanwhile, so often.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(default, |n| n.parse().expect("a number"));
    match args.first().map(String::as_str) {
        None => {
            println!("| profile | in time, % | median, s | 90 in 100, s |");
            println!("|---|---|---|---|");
            PROFILES.iter().for_each(|profile| row(profile, 1, 40, false));
        }
        Some("trace") => trace(&args[1], number(2, 0), Duration::from_millis(number(3, 100))),
        Some(profile) => row(profile, number(2, 1), number(1, 200), true),
    }
}

/// From the state on until nine tenths of what the link carries arrive. In time are those that took a round
/// trip thirty times and a second, as is asked of `auto`.
fn row(profile: &str, from: u64, count: u64, tells: bool) {
    let mut took = Vec::new();
    let mut in_time = 0;
    for seed in from..from + count {
        let state = State::drawn(seed);
        let outcome = state.run(played(profile, None), None);
        in_time += u64::from(outcome.took.is_some_and(|took| took <= time(state.rtt)));
        took.push(outcome.took.map_or(f64::INFINITY, |took| took.as_secs_f64()));
        if tells && !outcome.is_well() {
            println!("seed {seed}: {outcome:?}, {state:?}");
        }
    }
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| match took[(took.len() - 1) * percent / 100] {
        took if took.is_finite() => format!("{took:.1}"),
        _ => "over 30".to_owned(),
    };
    let percent = in_time * 100 / count;
    println!("| `{profile}` | {percent} | {} | {} |", at(50), at(90));
}

fn trace(profile: &str, seed: u64, every: Duration) {
    let state = State::drawn(seed);
    println!("{state:?}");
    let seen = beliefs(every, |path| format!(" {:?} {}", path.memory_use(), path.allowed().1));
    println!("{:?}", state.run(played(profile, None), Some(seen)));
}

/// Those that find the rate.
const PROFILES: [&str; 11] = [
    "auto",
    "bbr",
    "cubic",
    "pcc",
    "scavenger",
    "fobs",
    "fobs-linear",
    "fobs-state",
    "lambdastream",
    "sabul",
    "udt",
];

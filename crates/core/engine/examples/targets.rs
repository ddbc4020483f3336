//! Prints which targets of `auto` are reached.

#[path = "../tests/scenarios/world.rs"]
mod world;

#[path = "../tests/scenarios/targets.rs"]
mod targets;

use longhaul_units::Duration;
use targets::{TARGETS, Target};
use world::beliefs;

/// `targets [GROUP|NAME [SEEDS [FROM]]]`: the mean of so many runs, and the least and the most.
/// `targets trace NAME [MILLISECONDS [SEED]]`: what the first flow of that target believes, so often.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(default, |n| n.parse().expect("a number"));
    if args.first().is_some_and(|arg| arg == "trace") {
        let of = TARGETS.iter().find(|target| args.get(1).is_some_and(|name| target.name == name));
        let every = Duration::from_millis(number(2, 100));
        return trace(of.expect("the name of a target"), every, number(3, 7));
    }
    let (seeds, from) = (number(1, 3), number(2, 7));
    let wanted = args.first().filter(|group| *group != "all");
    let is_wanted = |target: &&Target| {
        wanted.is_none_or(|wanted| target.group == wanted || target.name.contains(&**wanted))
    };
    for target in TARGETS.iter().filter(is_wanted) {
        let runs: Vec<f64> = (from..from + seeds).map(|seed| target.reached(seed, None)).collect();
        let mean = runs.iter().sum::<f64>() / seeds as f64;
        let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let met = runs.iter().filter(|run| target.is_met(**run)).count();
        println!(
            "{:6} {:28} {:>13}: {mean:8.2} ({least:.2} to {most:.2}), wanted {} to {}: {met} of {seeds}",
            target.group,
            target.name,
            format!("{:?}", target.measure),
            target.wanted.0,
            target.wanted.1,
        );
    }
}

fn trace(target: &Target, every: Duration, seed: u64) {
    let seen = beliefs(every, |_| String::new());
    println!("{:.2}", target.reached(seed, Some(seen)));
}

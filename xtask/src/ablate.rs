//! `cargo xtask ablate`: takes the rules of `auto` out, one at a time, and looks what each is worth.
//!
//! Works on a copy of the tree in `target/ablate`. Run by hand: each rule is a build and some minutes.

mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{altered, command};

/// Runs the rules whose names contain `only` with so many seeds, and prints a row for each.
pub fn run(root: &Path, seeds: u64, only: &str) -> Result<()> {
    let tree = root.join("target/ablate/tree");
    altered::copy(root, &tree)?;
    let all = Figures::of(&tree, seeds)?;
    println!(
        "| without | paths with 2 % less, the worst | with 2 % more, the best | beside others |"
    );
    println!("|---|---|---|---|");
    for rule in rules::ALL.iter().filter(|rule| rule.name.contains(only)) {
        let path = tree.join(rule.file);
        let whole = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
        fs::write(&path, rule.put_into(&whole)?)?;
        let without = Figures::of(&tree, seeds).with_context(|| rule.name);
        fs::write(&path, whole)?;
        println!("| {} | {} |", rule.name, all.beside(&without?));
    }
    Ok(())
}

/// Output of the examples `grid wide` and `targets`.
struct Figures {
    /// Per mille of the link.
    grid: BTreeMap<String, f64>,
    /// The figure of a target, and how many of the seeds met it.
    targets: BTreeMap<String, (f64, u64)>,
}

impl Figures {
    fn of(tree: &Path, seeds: u64) -> Result<Self> {
        let build = tree.with_file_name("build");
        let mut cargo = command::cargo(tree);
        cargo.args(["build", "--quiet", "--release", "-p", "longhaul-engine"]);
        cargo.args(["--example", "grid", "--example", "targets"]);
        // A rule leaves things unused behind.
        cargo.env("RUSTFLAGS", "-Awarnings").env("CARGO_TARGET_DIR", &build);
        if !cargo.status().context("cannot start cargo")?.success() {
            bail!("it does not compile");
        }
        let example = |name: &str, first: &str| {
            let mut example = Command::new(build.join("release/examples").join(name));
            command::output(example.args([first, &seeds.to_string()]))
        };
        let grid = example("grid", "wide")?;
        let grid = grid.lines().filter_map(|line| {
            let (name, value) = line.split_once('\t')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        let targets = example("targets", "all")?;
        let targets = targets.lines().filter_map(target);
        Ok(Self { grid: grid.collect(), targets: targets.collect() })
    }

    /// The cells of a row.
    fn beside(&self, without: &Self) -> String {
        let changes = self.grid.iter().filter_map(|(name, before)| {
            let after = without.grid.get(name)?;
            Some((after - before, format!("{name}: {before} to {after}")))
        });
        let mut changes: Vec<(f64, String)> = changes.collect();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = |wanted: &dyn Fn(f64) -> bool| {
            changes.iter().filter(|(change, _)| wanted(*change)).count()
        };
        let shown = |count, end: Option<&(f64, String)>| match (count, end) {
            (0, _) | (_, None) => "none".to_owned(),
            (count, Some((_, text))) => format!("{count}; {text}"),
        };
        let worse = shown(count(&|change| change <= -WORTH), changes.first());
        let better = shown(count(&|change| change >= WORTH), changes.last());
        let targets = self.targets.iter().filter_map(|(name, (before, met))| {
            let (after, met_after) = without.targets.get(name)?;
            (met != met_after).then(|| format!("{name} {before} to {after}"))
        });
        let targets: Vec<String> = targets.collect();
        let targets =
            if targets.is_empty() { "no target changes".to_owned() } else { targets.join("; ") };
        format!("{worse} | {better} | {targets}")
    }
}

/// `loss   30 packets   OwnLoss:   0.00 (0.00 to 0.00), wanted 0 to 0.1: 1 of 1`.
fn target(line: &str) -> Option<(String, (f64, u64))> {
    let (name, rest) = line.split_once(':')?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let value = rest.split_whitespace().next()?.parse().ok()?;
    let met = rest.rsplit_once(": ")?.1.split(' ').next()?.parse().ok()?;
    Some((name, (value, met)))
}

/// Per mille.
const WORTH: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_place_in_the_code() {
        altered::check(rules::ALL);
    }

    #[test]
    fn figures_are_read_and_compared() {
        let line =
            "share  2 CUBIC, queue 25 %       Share:   177.37 (1 to 2), wanted 50 to 150: 1 of 3";
        let (name, figure) = target(line).unwrap();
        assert_eq!((&*name, figure), ("share 2 CUBIC, queue 25 % Share", (177.37, 1)));
        let figures = |a: f64, b: f64, met| Figures {
            grid: [("a".into(), a), ("b".into(), b)].into(),
            targets: [("t".into(), (5.0, met))].into(),
        };
        let all = figures(990.0, 950.0, 1);
        assert_eq!(all.beside(&figures(960.0, 955.0, 0)), "1; a: 990 to 960 | none | t 5 to 5");
        assert_eq!(
            all.beside(&figures(990.0, 975.0, 1)),
            "none | 1; b: 950 to 975 | no target changes"
        );
    }
}

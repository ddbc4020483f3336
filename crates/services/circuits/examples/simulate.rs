//! The simulations of the VBLS paper: `main`, `switching` or `scenarios`, with `--seeds N`,
//! `--requests N`, `--load X` (repeatedly), `--threads N`, `--no-tcp`, `--json` and `--svg FILE`.

use std::process::ExitCode;

use longhaul_circuits::simulate::{self, Options, figure, scenarios, switching, table};

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Arguments {
    what: String,
    seeds: Option<u64>,
    requests: Option<usize>,
    loads: Vec<f64>,
    threads: usize,
    json: bool,
    no_tcp: bool,
    svg: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut given = Arguments { what: "main".into(), threads: 1, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "main" | "switching" | "scenarios" => given.what = word,
            "--seeds" => given.seeds = Some(number(&value()?)?),
            "--requests" => given.requests = Some(number(&value()?)?),
            "--load" => given.loads.push(number(&value()?)?),
            "--threads" => given.threads = number(&value()?)?,
            "--json" => given.json = true,
            "--no-tcp" => given.no_tcp = true,
            "--svg" => given.svg = Some(value()?),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(given)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn run() -> Result<String, String> {
    let given = arguments()?;
    let mut progress = |done: usize, all: usize| eprint!("\r{done}/{all} ");
    let load = given.loads.first().copied().unwrap_or(0.8);
    let json = |value: serde_json::Result<String>| value.map_err(|e| e.to_string());
    match given.what.as_str() {
        "switching" => {
            let usual = switching::SwitchingOptions::default();
            let options = switching::SwitchingOptions {
                load,
                seeds: given.seeds.unwrap_or(usual.seeds),
                requests: given.requests.unwrap_or(usual.requests),
                threads: given.threads,
                ..usual
            };
            let report = switching::run(&options, &mut progress);
            if given.json {
                return json(serde_json::to_string(&report));
            }
            Ok(table::switching(&report))
        }
        "scenarios" => {
            let usual = scenarios::ScenarioOptions::default();
            let options = scenarios::ScenarioOptions {
                load,
                seeds: given.seeds.unwrap_or(usual.seeds),
                requests: given.requests.unwrap_or(usual.requests),
                threads: given.threads,
            };
            let report = scenarios::run(&options, &mut progress);
            if given.json {
                return json(serde_json::to_string(&report));
            }
            Ok(table::scenarios(&report))
        }
        _ => {
            let usual = Options::default();
            let options = Options {
                loads: if given.loads.is_empty() { usual.loads } else { given.loads },
                seeds: given.seeds.unwrap_or(usual.seeds),
                requests: given.requests.unwrap_or(usual.requests),
                threads: given.threads,
                tcp: if given.no_tcp { None } else { usual.tcp },
                ..usual
            };
            let report = simulate::run(&options, &mut progress);
            if let Some(file) = given.svg {
                std::fs::write(&file, figure::figure_3(&report)).map_err(|e| e.to_string())?;
            }
            if given.json {
                return json(serde_json::to_string(&report));
            }
            Ok(table::report(&report))
        }
    }
}

//! From the words of `gateway serve`, or its file, to a checked configuration.

use std::fs;
use std::path::Path;

use longhaul_gateway::config::{Checked, Config, Reading, SegmentConfig};
use longhaul_settings::{Mistake, Written, WrongValue};
use longhaul_sys::reasons::unread;

use super::args::ServeArgs;
use crate::failure::Failure;
use crate::{token, values};

pub(super) fn read(args: &ServeArgs) -> Result<Checked, Failure> {
    match &args.config {
        Some(file) => read_file(file),
        None => check(&of_options(args)).map_err(|mistakes| failure(&mistakes, "")),
    }
}

pub(super) fn read_file(file: &Path) -> Result<Checked, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::failed(format!("cannot read {shown}: {}", unread(&error))))?;
    let checked = Config::parse(&text).map_err(|mistake| vec![mistake]);
    let checked = checked.and_then(|config| check(&config));
    checked.map_err(|mistakes| failure(&mistakes, &format!("{shown}: ")))
}

fn check(config: &Config) -> Result<Checked, Vec<Mistake>> {
    if let Some(file) = &config.socks_password_file {
        token::warn_of_readers(&file.value, "passwords");
    }
    let tokens = |file: &Path| {
        token::read_at_server(file).map_err(|failure| WrongValue::new(failure.message))
    };
    config.check(Reading { tokens, time: values::written_time })
}

/// All mistakes, one a line.
fn failure(mistakes: &[Mistake], file: &str) -> Failure {
    let lines: Vec<String> = mistakes.iter().map(|mistake| format!("{file}{mistake}")).collect();
    let text = lines.join("\n");
    match mistakes.iter().all(Mistake::is_of_file) {
        true => Failure::failed(text),
        false => Failure::usage(text),
    }
}

fn of_options(args: &ServeArgs) -> Config {
    let each = |key, values: &[String]| -> Vec<Written> {
        values.iter().map(|value| Written::option(key, value.clone())).collect()
    };
    fn one<T: Clone>(key: &'static str, value: &Option<T>) -> Option<Written<T>> {
        value.clone().map(|value| Written::option(key, value))
    }
    Config {
        listen: each("listen", &args.listen),
        socks: each("socks", &args.socks),
        socks_password_file: one("socks_password_file", &args.socks_password_file),
        forward: each("forward", &args.forward),
        from: each("from", &args.from),
        via: each("via", &args.via),
        token_file: one("token_file", &args.token_file),
        neighbour_token_file: one("neighbour_token_file", &args.neighbour_token_file),
        via_token_file: one("via_token_file", &args.via_token_file),
        name: one("name", &args.name),
        allow: each("allow", &args.allow),
        segment: SegmentConfig {
            congestion: one("congestion", &args.congestion),
            ..SegmentConfig::default()
        },
        max_sessions: one("max_sessions", &args.max_sessions),
        max_sessions_per_client: one("max_sessions_per_client", &args.max_sessions_per_client),
        memory: one("memory", &args.memory),
        spares: one("spares", &args.spares),
        metrics: one("metrics", &args.metrics),
        drain: one("drain", &args.drain),
        ..Config::default()
    }
}

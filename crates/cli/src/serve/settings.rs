//! From the words of `serve`, or its file, to the options of a server.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use longhaul::{Access, DEFAULT_PORT, ServeOptions, Token};
use longhaul_rate_control::Profile;
use longhaul_settings::{
    At, Mistake, Mistakes, Section, Written, WrongValue, on_loopback, wrong_value,
};
use longhaul_sys::reasons::unread;
use longhaul_units::{Bytes, Rate};

use super::log::LogFormat;
use crate::args::{self, ServeArgs};
use crate::failure::Failure;
use crate::history;
use crate::output::Output;
use crate::token;
use crate::values;

/// All that an operator wishes of a server.
pub(super) struct Settings {
    pub options: ServeOptions,
    /// Neither read nor write the history of paths.
    pub no_history: bool,
    /// Time that SIGTERM leaves to clients.
    pub drain: Duration,
    /// The form of the lines for transfers, unless they are words.
    pub log: Option<LogFormat>,
    /// Where metrics are shown.
    pub metrics: Option<SocketAddr>,
    /// The token that was made for this run.
    pub made: Option<Token>,
}

impl Settings {
    /// As the file says, or else the options; `logs` gets the form of the log before the rest is looked at, which may
    /// have something to say.
    pub fn read(args: &ServeArgs, logs: fn(LogFormat)) -> Result<Self, Failure> {
        match &args.config {
            Some(file) => Self::of_file(file, logs),
            None => {
                args.log.into_iter().for_each(logs);
                Self::of_options(args)
            }
        }
    }

    /// The options of the server, with the history that they leave open.
    pub fn with_history(&self, output: &Output) -> ServeOptions {
        let history = history::open(self.no_history, output);
        let mut options = self.options.clone();
        options.history = history;
        options
    }

    /// Names of what `new` has otherwise, beside the options of the server, and a running one keeps.
    pub fn kept_unlike(&self, new: &Self) -> impl Iterator<Item = &'static str> {
        let differ = [
            ("log", self.log != new.log),
            ("metrics", self.metrics != new.metrics),
            ("no_history", self.no_history != new.no_history),
        ];
        differ.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name)
    }

    fn of_options(args: &ServeArgs) -> Result<Self, Failure> {
        let listen = match &args.listen {
            Some(text) => {
                address(text).map_err(|why| Failure::usage(format!("--listen {text}: {why}")))?
            }
            None if args.ssh => SocketAddr::new(any_address(), 0),
            None => SocketAddr::new(any_address(), DEFAULT_PORT),
        };
        let made = match args.token_file {
            Some(_) => None,
            None if args.ssh => None,
            None => Some(token::generate()?),
        };
        let tokens = match (&args.token_file, &made) {
            (Some(file), _) => token::read_at_server(file)?,
            (None, made) => made.iter().cloned().collect(),
        };
        let either = args.allow_read || args.allow_write;
        if args.allow_delete && either && !(args.allow_read && args.allow_write) {
            return Err(Failure::usage(
                "--allow-delete is for clients that may read and write: give both --allow-read and --allow-write, or \
                 neither",
            ));
        }
        let root = args.directory.as_ref().or(args.root.as_ref());
        let mut access = Access::new(root.cloned().unwrap_or_else(|| ".".into()), tokens);
        // A user who comes by ssh has all rights of his own there, unless the command of his key says less.
        let is_own = args.ssh && !either && root.is_none();
        access.allow_delete = args.allow_delete || is_own;
        access.allow_owners = args.allow_owners || is_own;
        access.allow_read = args.allow_read || !either;
        access.allow_write = args.allow_write || !either;
        let mut options = ServeOptions::new(listen, vec![access]);
        options.once = args.once;
        options.memory = args.memory;
        options.direct = args.direct;
        options.socket_buffer = args.socket_buffer;
        options.stall_timeout = args.stall_timeout;
        options.excuse_timeout = args.excuse_timeout;
        options.discard_after = args.discard_after;
        options.profiles.clone_from(&args.profiles);
        options.host_priority = args.host_priority;
        options.trust_proxy.clone_from(&args.trust_proxy);
        let metrics = args.metrics.as_deref().map(|text| {
            on_loopback(text).map_err(|why| Failure::usage(format!("--metrics {text}: {why}")))
        });
        let (metrics, no_history) = (metrics.transpose()?, args.no_history);
        let (drain, log) = (args.drain, args.log);
        Ok(Self { options, no_history, drain, log, metrics, made })
    }

    /// Reads a file, and those that it names; see [`Self::read`].
    pub fn of_file(file: &Path, logs: fn(LogFormat)) -> Result<Self, Failure> {
        let shown = file.display();
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::failed(format!("cannot read {shown}: {}", unread(&error))))?;
        Self::parse(&text, logs).map_err(|mistakes| {
            let lines: Vec<String> =
                mistakes.iter().map(|mistake| format!("{shown}: {mistake}")).collect();
            match mistakes.iter().all(Mistake::is_of_file) {
                true => Failure::failed(lines.join("\n")),
                false => Failure::usage(lines.join("\n")),
            }
        })
    }

    fn parse(text: &str, logs: fn(LogFormat)) -> Result<Self, Vec<Mistake>> {
        let (file, of_form) = Section::read(text, File::read).map_err(|mistake| vec![mistake])?;
        let mut mistakes = Mistakes::begin(of_form);
        let log = file.log.as_ref().and_then(|it| mistakes.one(it, log_format));
        log.into_iter().for_each(logs);
        let listen = file.listen.as_ref().and_then(|at| mistakes.one(at, address));
        let listen = listen.unwrap_or_else(|| SocketAddr::new(any_address(), DEFAULT_PORT));
        let mut options = ServeOptions::new(listen, Vec::new());
        let mut seen: Vec<(Token, At)> = Vec::new();
        for access in &file.access {
            options.access.extend(access.check(&mut mistakes, &mut seen));
        }
        if !file.has_access {
            let at = At { key: "access", line: Some(1) };
            mistakes.at(&at, "nobody is let in: [[access]] says whom, and to what");
        }
        options.memory = file.memory.as_ref().and_then(|it| mistakes.one(it, memory));
        let bytes = |text: &str| text.parse::<Bytes>().map_err(WrongValue::new);
        options.socket_buffer = file.socket_buffer.as_ref().and_then(|it| mistakes.one(it, bytes));
        options.limits.min_free = file.min_free.as_ref().and_then(|it| mistakes.one(it, bytes));
        options.limits.rate = file.rate.as_ref().and_then(|it| mistakes.one(it, rate));
        let profiles = mistakes.each(&file.profiles, profile);
        options.profiles = Some(profiles).filter(|profiles| !profiles.is_empty());
        options.trust_proxy =
            mistakes.each(&file.trust_proxy, |text| text.parse().map_err(WrongValue::new));
        if let Some(most) = &file.transfers {
            options.connections_max = most.value as usize;
        }
        let mut drain = args::DRAIN;
        for (written, time) in [
            (&file.stall_timeout, &mut options.stall_timeout),
            (&file.excuse_timeout, &mut options.excuse_timeout),
            (&file.discard_after, &mut options.discard_after),
            (&file.drain, &mut drain),
        ] {
            *time = written
                .as_ref()
                .and_then(|it| mistakes.one(it, values::written_time))
                .unwrap_or(*time);
        }
        options.direct = is_set(&file.direct);
        options.host_priority = is_set(&file.host_priority);
        let metrics = file.metrics.as_ref().and_then(|it| mistakes.one(it, on_loopback));
        let no_history = is_set(&file.no_history);
        match mistakes.is_empty() {
            true => Ok(Self { options, no_history, drain, log, metrics, made: None }),
            false => Err(mistakes.into_found()),
        }
    }
}

/// A file, as it was written.
struct File {
    listen: Option<Written>,
    access: Vec<AccessSection>,
    /// It says something of access, be it wrong.
    has_access: bool,
    memory: Option<Written>,
    min_free: Option<Written>,
    rate: Option<Written>,
    transfers: Option<Written<u32>>,
    profiles: Vec<Written>,
    trust_proxy: Vec<Written>,
    stall_timeout: Option<Written>,
    excuse_timeout: Option<Written>,
    discard_after: Option<Written>,
    drain: Option<Written>,
    log: Option<Written>,
    metrics: Option<Written>,
    direct: Option<Written<bool>>,
    host_priority: Option<Written<bool>>,
    no_history: Option<Written<bool>>,
    socket_buffer: Option<Written>,
}

impl File {
    fn read(file: &mut Section<'_>) -> Self {
        Self {
            listen: file.address("listen"),
            has_access: file.has("access"),
            access: file.sections("access", AccessSection::read),
            memory: file.one("memory"),
            min_free: file.one("min_free"),
            rate: file.one("rate"),
            transfers: file.number("transfers", TRANSFERS),
            profiles: file.each("profiles"),
            trust_proxy: file.each("trust_proxy"),
            stall_timeout: file.time("stall_timeout"),
            excuse_timeout: file.time("excuse_timeout"),
            discard_after: file.time("discard_after"),
            drain: file.time("drain"),
            log: file.one("log"),
            metrics: file.address("metrics"),
            direct: file.one("direct"),
            host_priority: file.one("host_priority"),
            no_history: file.one("no_history"),
            socket_buffer: file.one("socket_buffer"),
        }
    }
}

/// `[[access]]`
struct AccessSection {
    token_file: Option<Written<std::path::PathBuf>>,
    root: Option<Written<std::path::PathBuf>>,
    allow_read: Option<Written<bool>>,
    allow_write: Option<Written<bool>>,
    allow_delete: Option<Written<bool>>,
    allow_owners: Option<Written<bool>>,
    transfers: Option<Written<u32>>,
    min_free: Option<Written>,
    rate: Option<Written>,
}

impl AccessSection {
    fn read(section: &mut Section<'_>, at: At) -> Self {
        Self {
            token_file: section.one_needed("token_file", &at),
            root: section.one_needed("root", &at),
            allow_read: section.one("allow_read"),
            allow_write: section.one("allow_write"),
            allow_delete: section.one("allow_delete"),
            allow_owners: section.one("allow_owners"),
            transfers: section.number("transfers", TRANSFERS),
            min_free: section.one("min_free"),
            rate: section.one("rate"),
        }
    }

    /// The access that it gives; `seen` are the tokens of those before it.
    fn check(&self, mistakes: &mut Mistakes, seen: &mut Vec<(Token, At)>) -> Option<Access> {
        let file = self.token_file.as_ref()?;
        let read = |path: &Path| {
            token::read_at_server(path).map_err(|failure| WrongValue::new(failure.message))
        };
        let tokens = mistakes.file(file, read).unwrap_or_default();
        for token in &tokens {
            let id = token.key().id();
            let before = seen.iter().find(|(other, _)| other.key().id() == id);
            if let Some((_, At { line: Some(line), .. })) = before {
                let why = format_args!("line {line} gives the token {id} rights already");
                mistakes.at(&file.at, why);
            }
        }
        seen.extend(tokens.iter().map(|token| (token.clone(), file.at)));
        let root = self.root.as_ref()?;
        mistakes.file(root, directory);
        let mut access = Access::new(root.value.clone(), tokens);
        // As with the options of the command line: one alone lets clients do only that.
        let either = is_set(&self.allow_read) || is_set(&self.allow_write);
        access.allow_read = is_set(&self.allow_read) || !either;
        access.allow_write = is_set(&self.allow_write) || !either;
        access.allow_delete = is_set(&self.allow_delete);
        access.allow_owners = is_set(&self.allow_owners);
        if let Some(delete) = self.allow_delete.as_ref().filter(|delete| delete.value)
            && !(access.allow_read && access.allow_write)
        {
            mistakes.wrong(delete, "it goes with reading and writing");
        }
        access.transfers = self.transfers.as_ref().map(|most| most.value as usize);
        let bytes = |text: &str| text.parse().map_err(WrongValue::new);
        access.limits.min_free = self.min_free.as_ref().and_then(|it| mistakes.one(it, bytes));
        access.limits.rate = self.rate.as_ref().and_then(|it| mistakes.one(it, rate));
        Some(access)
    }
}

fn is_set(written: &Option<Written<bool>>) -> bool {
    written.as_ref().is_some_and(|written| written.value)
}

fn directory(path: &Path) -> Result<(), WrongValue> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(WrongValue::new("it is no directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(WrongValue::new("there is no such directory"))
        }
        Err(error) => Err(WrongValue::new(unread(&error))),
    }
}

fn memory(text: &str) -> Result<Bytes, WrongValue> {
    values::memory(text).map_err(WrongValue::new)
}

fn rate(text: &str) -> Result<Rate, WrongValue> {
    let rate: Rate = text.parse().map_err(WrongValue::new)?;
    match rate.as_bps() {
        0..8_000 => Err(WrongValue::new("expected at least 8kbps")),
        _ => Ok(rate),
    }
}

fn profile(text: &str) -> Result<String, WrongValue> {
    let known = Profile::names().any(|name| name == text);
    known.then(|| text.to_owned()).ok_or_else(|| {
        let names: Vec<&str> = Profile::names().collect();
        wrong_value!("no such profile: expected some of {}", names.join(", "))
    })
}

fn log_format(text: &str) -> Result<LogFormat, WrongValue> {
    LogFormat::from_str(text, false).map_err(|_| WrongValue::new("expected text or json"))
}

/// Reads `ADDR:PORT`, `[ADDR]:PORT`, or an address alone.
fn address(text: &str) -> Result<SocketAddr, WrongValue> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let alone = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    text.parse().or_else(|_| alone(bracketed.unwrap_or(text))).map_err(|_| {
        WrongValue::new(
            "expected an address and port of this host, like 192.0.2.7:7420 or [::]:7420",
        )
    })
}

/// IPv6 and IPv4 where both work, else IPv4.
fn any_address() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Each takes descriptors and memory, of which a host has no more.
const TRANSFERS: RangeInclusive<u32> = 1..=10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_at() {
        for (text, expected) in [
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("[::1]:80", "[::1]:80"),
            ("192.0.2.7", "192.0.2.7:7420"),
            ("::", "[::]:7420"),
            ("[::]", "[::]:7420"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for text in ["", "7420", "dtn:7420", "::1:x", "192.0.2.7:70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    /// A file with two tokens, and the text of settings that name it.
    fn example() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = [1, 2].map(|byte| Token::from_random([byte; 16]).to_string());
        for (name, token) in ["a", "b"].into_iter().zip(tokens) {
            fs::write(dir.path().join(name), token).unwrap();
        }
        let at = dir.path().display();
        let text = format!(
            "listen = \"192.0.2.7\"\nmemory = \"1GiB\"\ntransfers = 9\ndrain = 7\n\
             profiles = [\"auto\", \"cubic\"]\ntrust_proxy = [\"192.0.2.1\"]\n\
             [[access]]\ntoken_file = \"{at}/a\"\nroot = \"{at}\"\nallow_read = true\n\
             transfers = 2\nmin_free = \"5GB\"\n\
             [[access]]\ntoken_file = \"{at}/b\"\nroot = \"{at}\"\nallow_delete = true\n\
             allow_owners = true\nrate = \"2Gbps\"\n"
        );
        (dir, text)
    }

    fn mistakes(text: &str) -> Vec<String> {
        let found = Settings::parse(text, |_| {}).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_says_all_that_a_server_does() {
        let (_dir, text) = example();
        let Settings { options, drain, .. } = Settings::parse(&text, |_| {}).ok().unwrap();
        assert_eq!(options.listen, "192.0.2.7:7420".parse().unwrap());
        assert_eq!((options.connections_max, drain), (9, Duration::from_secs(7)));
        assert_eq!(options.profiles.as_deref(), Some(&["auto".into(), "cubic".into()][..]));
        let [first, second] = &options.access[..] else { panic!("two") };
        assert!(first.allow_read && !first.allow_write && !first.allow_delete);
        assert!(!first.allow_owners && second.allow_owners);
        assert_eq!(
            (first.transfers, first.limits.min_free),
            (Some(2), Some(Bytes::new(5_000_000_000)))
        );
        assert!(second.allow_read && second.allow_write && second.allow_delete);
        assert_eq!((second.transfers, second.limits.min_free), (None, None));
        assert_eq!((first.limits.rate, second.limits.rate), (None, Some(Rate::from_mbps(2_000))));
    }

    #[test]
    fn all_times_of_a_file_are_texts_as_on_the_command_line_or_seconds() {
        let (_dir, text) = example();
        for (written, seconds) in [("7", 7), ("\"7\"", 7), ("\"30s\"", 30), ("\"2 days\"", 172_800)]
        {
            let keys = ["drain", "stall_timeout", "excuse_timeout", "discard_after"];
            let times: String = keys.iter().map(|key| format!("{key} = {written}\n")).collect();
            let text = text.replacen("drain = 7\n", &times, 1);
            let Settings { options, drain, .. } = Settings::parse(&text, |_| {}).ok().unwrap();
            let all = [options.stall_timeout, options.excuse_timeout, options.discard_after, drain];
            assert_eq!(all, [Duration::from_secs(seconds); 4], "{written}");
        }
    }

    #[test]
    fn metrics_are_at_an_address_or_a_port() {
        let (_dir, text) = example();
        for (written, at) in
            [("7423", "127.0.0.1:7423"), ("\"7423\"", "127.0.0.1:7423"), ("\"[::]:1\"", "[::]:1")]
        {
            let text = text.replacen("drain = 7", &format!("metrics = {written}"), 1);
            let settings = Settings::parse(&text, |_| {}).ok().unwrap();
            assert_eq!(settings.metrics, Some(at.parse().unwrap()), "{written}");
        }
    }

    #[test]
    fn each_mistake_is_named_with_its_line_and_key_and_all_at_once() {
        let (dir, text) = example();
        let at = dir.path().display().to_string();
        for (from, to, words) in [
            ("192.0.2.7", "dtn", "line 1: listen dtn: expected an address".to_owned()),
            ("1GiB", "1MiB", "line 2: memory 1MiB: a transfer takes".to_owned()),
            ("\"192.0.2.7\"", "7420", "line 1: listen 7420: expected an address and port".to_owned()),
            ("= \"192.0.2.7\"", "= \"\"", "line 1: listen \"\": expected an address".to_owned()),
            (
                "\"192.0.2.7\"",
                "[\"192.0.2.7\", \"::1\"]",
                "line 1: listen [\"192.0.2.7\", \"::1\"]: expected one address, in quotes: listen = \"192.0.2.7\""
                    .to_owned(),
            ),
            ("= 9", "= 0", "line 3: transfers 0: expected a whole number from 1 to 10000".to_owned()),
            ("= 9", "= \"x\"", "line 3: transfers \"x\": expected a whole number from 1 to 10000".to_owned()),
            ("= 2\n", "= 10001\n", "line 11: transfers 10001: expected a whole number from 1 to 10000".to_owned()),
            ("= 7\n", "= \"soon\"\n", "line 4: drain soon: expected a time like 90s".to_owned()),
            ("= 7\n", "= -7\n", "line 4: drain -7: expected a time like 90s".to_owned()),
            ("= 7\n", "= true\n", "line 4: drain true: expected a time like \"30s\"".to_owned()),
            (
                "[\"auto\", \"cubic\"]",
                "\"auto\"",
                "line 5: profiles \"auto\": expected a list, in [ ]: profiles = [\"auto\"]"
                    .to_owned(),
            ),
            ("= 7\n", "= \"\"\n", "line 4: drain \"\": expected a time like 90s".to_owned()),
            (
                "drain = 7",
                "metrics = 99999",
                "line 4: metrics 99999: expected [ADDR:]PORT, like 7422 or 192.0.2.1:7422, with a port up to 65535"
                    .to_owned(),
            ),
            (
                "drain = 7",
                "metrics = [\"7423\"]",
                "line 4: metrics [\"7423\"]: expected one address, in quotes: metrics = \"7423\""
                    .to_owned(),
            ),
            ("drain = 7", "log = \"xml\"", "line 4: log xml: expected text or json".to_owned()),
            ("cubic", "warp", "line 5: profiles warp: no such profile".to_owned()),
            ("192.0.2.1", "gw", "line 6: trust_proxy gw: ".to_owned()),
            ("/a\"", "/c\"", format!("line 8: token_file {at}/c: ")),
            ("allow_read", "allow", "line 10: allow: unknown field `allow`".to_owned()),
            ("5GB", "much", "line 12: min_free much: ".to_owned()),
            ("/b\"", "/a\"", "line 14: token_file: line 8 gives the token".to_owned()),
            ("allow_delete", "allow_read = true\nallow_delete", "line 17: allow_delete".to_owned()),
            ("2Gbps", "1kbps", "line 18: rate 1kbps: expected at least 8kbps".to_owned()),
            ("2Gbps", "", "line 18: rate \"\": expected a number with a unit, like 1".to_owned()),
            (
                &format!("root = \"{at}\"\nallow_d"),
                "allow_d",
                "line 13: access: missing".to_owned(),
            ),
            (
                &format!("root = \"{at}\"\nallow_d"),
                &format!("root = \"{at}/none\"\nallow_d"),
                format!("line 15: root {at}/none: there is no such directory"),
            ),
        ] {
            assert!(text.contains(from), "{from}");
            let found = mistakes(&text.replacen(from, to, 1));
            assert!(found[0].starts_with(&words), "{found:?}, not {words}");
            // Without an access that is whole there are others.
            assert_eq!(found.len(), 1, "{found:?}");
        }
        let several = text.replace("5GB", "x").replace("/a\"", "/c\"").replace("= 9", "= \"x\"");
        let several = format!("{several}bogus = 1\n");
        let starts =
            ["line 3: transfers", "line 8: token_file", "line 12: min_free", "line 19: bogus"];
        let found = mistakes(&several);
        assert_eq!(found.len(), starts.len(), "{found:?}");
        assert!(found.iter().zip(starts).all(|(it, start)| it.starts_with(start)), "{found:?}");
        for (text, words) in [
            (text.replace("[[access]]", "[[access"), "line 7: unclosed array table"),
            (text.replace("[\"192", "[192"), "line 6: trust_proxy: "),
            ("access = 1".into(), "line 1: access: expected tables, each begun by [[access]]"),
            ("access = []".into(), "line 1: access: expected tables, each begun by [[access]]"),
        ] {
            let found = mistakes(&text);
            assert!(found.len() == 1 && found[0].starts_with(words), "{found:?}, not {words}");
        }
        let several = text.replace("cubic", "warp").replace("= 9", "= \"x\"").replace("5GB", "x");
        assert_eq!(mistakes(&several).len(), 3, "{:?}", mistakes(&several));
        assert!(mistakes("")[0].contains("nobody is let in"));
    }
}

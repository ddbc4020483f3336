use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use longhaul_relay::{GATEWAY_PORT, Hop, Host, Place, Target};
use longhaul_session::Token;
use longhaul_settings::{Mistake, Mistakes, Written, WrongValue, on_loopback, wrong_value};
use longhaul_units::{Bytes, Duration, Rate, parse_time};

use super::{Checked, ClassConfig, Config, DRAIN, MAX_SESSIONS, RouteConfig, SegmentConfig};
use crate::entry::Passwords;
use crate::gateway::GatewaySettings;
use crate::policy::Destinations;
use crate::routes::Route;
use crate::segments::SegmentClass;
use crate::shared::SESSION_MEMORY;
use crate::transport::tcp::Tcp;
use crate::transport::{SegmentSettings, Transport};

/// Values that other services have, too, are read as there.
#[derive(Clone, Copy)]
pub struct Reading {
    /// Reads the tokens of a file, at least one, or says why it cannot.
    pub tokens: fn(&Path) -> Result<Vec<Token>, WrongValue>,
    /// Reads a time.
    pub time: fn(&str) -> Result<std::time::Duration, WrongValue>,
}

impl Config {
    /// Judges everything, and reads the files that are named.
    ///
    /// # Errors
    /// All mistakes that were found, at least one.
    pub fn check(&self, reading: Reading) -> Result<Checked, Vec<Mistake>> {
        let mut check =
            Check { mistakes: Mistakes::begin(self.mistakes.clone()), notices: Vec::new() };
        let read = |check: &mut Check, file: &Option<Written<PathBuf>>| {
            let file = file.as_ref()?;
            check.mistakes.file(file, reading.tokens)
        };
        let own_tokens = read(&mut check, &self.token_file).unwrap_or_default();
        let neighbours = read(&mut check, &self.neighbour_token_file).unwrap_or_default();
        let via_token = match &self.via_token_file {
            None => own_tokens.first().cloned(),
            file => read(&mut check, file).and_then(|tokens| tokens.into_iter().next()),
        };
        let file = self.socks_password_file.as_ref();
        let passwords = file.and_then(|file| check.mistakes.file(file, passwords));
        let segment = check.settings(&self.segment, &SegmentSettings::default());
        let settings = GatewaySettings {
            listen: check.mistakes.each(&self.listen, |text| address(text, Some(GATEWAY_PORT))),
            socks: check.mistakes.each(&self.socks, |text| address(text, None)),
            forwards: check.mistakes.each(&self.forward, forward),
            name: self.name.as_ref().and_then(|name| check.mistakes.one(name, self::name)),
            keys: own_tokens.iter().chain(&neighbours).collect(),
            neighbours: neighbours.iter().map(|token| token.key().id()).collect(),
            via_key: via_token.as_ref().map(Token::key),
            via: check.mistakes.each(&self.via, parsed::<Hop>),
            destinations: Destinations::new(check.mistakes.each(&self.allow, parsed)),
            passwords,
            from: check.mistakes.each(&self.from, parsed),
            routes: self.routes.iter().map(|route| check.route(route)).collect(),
            classes: self.classes.iter().map(|class| check.class(class, &segment)).collect(),
            segment,
            max_sessions: check.places(&self.max_sessions).unwrap_or(MAX_SESSIONS as usize),
            max_sessions_per_client: check
                .places(&self.max_sessions_per_client)
                .unwrap_or(usize::MAX),
            memory: self
                .memory
                .as_ref()
                .and_then(|memory| check.mistakes.one(memory, self::memory)),
            spares: self.spares.as_ref().map_or(0, |spares| check.spares(spares)),
            metrics: self
                .metrics
                .as_ref()
                .and_then(|metrics| check.mistakes.one(metrics, on_loopback)),
            ..GatewaySettings::default()
        };
        let via = self.via.iter().chain(self.routes.iter().flat_map(|route| &route.via)).next();
        if let Some(via) = via
            && via_token.is_none()
            && self.via_token_file.is_none()
            && self.token_file.is_none()
        {
            check.mistakes.wrong(
                via,
                "the token of that gateway is needed: name a file with \
                 --via-token-file, in a file via_token_file",
            );
        }
        let drain = self.drain.as_ref().and_then(|it| check.mistakes.one(it, reading.time));
        check.judge(self, &settings);
        match check.mistakes.is_empty() {
            true => Ok(Checked { settings, drain: drain.unwrap_or(DRAIN), notices: check.notices }),
            false => Err(check.mistakes.into_found()),
        }
    }
}

/// The mistakes so far, and what cannot be had whole on this host.
pub(super) struct Check {
    pub(super) mistakes: Mistakes,
    notices: Vec<String>,
}

impl Check {
    fn spares(&mut self, spares: &Written<u32>) -> usize {
        self.mistakes.number(spares, SPARES).unwrap_or_default() as usize
    }

    fn places(&mut self, most: &Option<Written<u32>>) -> Option<usize> {
        Some(self.mistakes.number(most.as_ref()?, PLACES)? as usize)
    }

    /// Settings, as `others` where they say nothing.
    fn settings(&mut self, config: &SegmentConfig, others: &SegmentSettings) -> SegmentSettings {
        let mut settings = others.clone();
        if let Some(written) = &config.congestion {
            let wish = SegmentSettings {
                congestion_control: Some(written.value.clone()),
                ..SegmentSettings::default()
            };
            match Tcp.judge(&wish) {
                Ok(_) => settings.congestion_control = wish.congestion_control,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.mistakes
                        .wrong(written, "this kernel does not have that congestion control");
                }
                Err(error) => self.mistakes.wrong(written, error),
            }
        }
        if let Some(written) = &config.buffer
            && let Some(buffer) = self.mistakes.one(written, buffer)
        {
            settings.buffer = Some(buffer);
        }
        if let Some(written) = &config.rate
            && let Some(rate) = self.mistakes.one(written, rate)
        {
            settings.rate = Some(rate);
        }
        if let Some(written) = &config.rtt
            && let Some(rtt) = self.mistakes.one(written, rtt)
        {
            settings.rtt = Some(rtt);
            if settings.rate.is_none() && config.rate.is_none() {
                self.mistakes.wrong(written, "it sizes buffers for a rate: name that too");
            }
        }
        let wish = SegmentSettings { congestion_control: None, ..settings.clone() };
        if let Some(written) = config.buffer.as_ref().or(config.rate.as_ref())
            && let Ok(Some(restriction)) = Tcp.judge(&wish)
        {
            self.notices.push(format!("{} {}: {restriction}", written.at, written.value));
        }
        settings
    }

    fn class(&mut self, config: &ClassConfig, others: &SegmentSettings) -> SegmentClass {
        let known = |text: &str| match text == Tcp.name() {
            true => Ok(text.to_owned()),
            false => Err(wrong_value!("no such transport: expected {}", Tcp.name())),
        };
        let transport =
            config.transport.as_ref().and_then(|written| self.mistakes.one(written, known));
        SegmentClass {
            to: self.mistakes.each(&config.to, parsed),
            transport: transport.unwrap_or_default(),
            settings: self.settings(&config.settings, others),
        }
    }

    fn route(&mut self, config: &RouteConfig) -> Route {
        let proxy = config.proxy_protocol.as_ref().filter(|proxy| proxy.value);
        if let Some(proxy) = proxy.filter(|_| !config.via.is_empty()) {
            self.mistakes
                .wrong(proxy, "the last gateway does that, and this route has further ones (via)");
        }
        Route {
            to: self.mistakes.each(&config.to, parsed),
            via: self.mistakes.each(&config.via, parsed),
            proxy_protocol: proxy.is_some(),
        }
    }
}

fn passwords(file: &Path) -> Result<Passwords, WrongValue> {
    let text = fs::read_to_string(file).map_err(WrongValue::new)?;
    Passwords::parse(&text).map_err(WrongValue::new)
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, WrongValue> {
    text.parse().map_err(WrongValue::new)
}

fn name(text: &str) -> Result<String, WrongValue> {
    let expected = || WrongValue::new("expected a name without spaces, of at most 255 bytes");
    Host::parse(text).map(|_| text.to_owned()).ok_or_else(expected)
}

fn rate(text: &str) -> Result<Rate, WrongValue> {
    let rate: Rate = parsed(text)?;
    if rate.as_bps() < 8_000 { Err(WrongValue::new("expected at least 8kbps")) } else { Ok(rate) }
}

fn rtt(text: &str) -> Result<Duration, WrongValue> {
    let time = parse_time(text).ok().filter(|time| (RTT_MIN..=RTT_MAX).contains(time));
    time.ok_or_else(|| WrongValue::new("expected a time of 1us to 10s, like 50ms"))
}

fn memory(text: &str) -> Result<Bytes, WrongValue> {
    let bytes: Bytes = parsed(text)?;
    let enough = bytes >= Bytes::new(SESSION_MEMORY);
    enough
        .then_some(bytes)
        .ok_or_else(|| WrongValue::new("expected at least 64KiB, what one session takes"))
}

fn buffer(text: &str) -> Result<u32, WrongValue> {
    let bytes: Bytes = parsed(text)?;
    let fits = u32::try_from(bytes.get()).ok().filter(|bytes| (4096..=1 << 30).contains(bytes));
    fits.ok_or_else(|| WrongValue::new("expected 4KiB to 1GiB"))
}

/// Reads `ADDR:PORT`, or an address alone where there is a usual port.
pub(super) fn address(text: &str, port: Option<u16>) -> Result<SocketAddr, WrongValue> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = || bare.parse::<IpAddr>().ok().zip(port).map(SocketAddr::from);
    text.parse().ok().or_else(alone).ok_or_else(|| {
        let expected = "an address and port of this host, like 192.0.2.7:1080 or [::1]:1080";
        wrong_value!("expected {expected}")
    })
}

/// Reads `[ADDR:]PORT=HOST:PORT`.
pub(super) fn forward(text: &str) -> Result<(SocketAddr, Target), WrongValue> {
    let expected = || WrongValue::new("expected [ADDR:]PORT=HOST:PORT, like 8443=data.example:443");
    let (here, there) = text.split_once('=').ok_or_else(expected)?;
    let on_loopback = || {
        let port = here.parse().ok()?;
        Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
    };
    let listen = here.parse().ok().or_else(on_loopback).ok_or_else(expected)?;
    let place: Place = there.parse().map_err(|_| expected())?;
    Ok((listen, Target { place, aware: false }))
}

/// Of each next gateway, which counts them among those that have not proven anything.
pub(super) const SPARES: RangeInclusive<u32> = 0..=64;
/// Six descriptors each.
pub(super) const PLACES: RangeInclusive<u32> = 1..=100_000;
const RTT_MIN: Duration = Duration::from_micros(1);
const RTT_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_name_a_port_and_a_target() {
        for (text, listen) in [
            ("8443=data.example:443", "127.0.0.1:8443"),
            ("0.0.0.0:8443=data.example:443", "0.0.0.0:8443"),
            ("[::1]:8443=data.example:443", "[::1]:8443"),
        ] {
            let (address, target) = forward(text).unwrap();
            assert_eq!(address.to_string(), listen);
            assert_eq!(target.place.to_string(), "data.example:443");
        }
        for text in ["", "8443", "8443=", "8443=host", "x=host:1", "70000=host:1", "1=host:0"] {
            assert!(forward(text).unwrap_err().to_string().starts_with("expected"), "{text}");
        }
    }

    #[test]
    fn addresses_have_the_usual_port_where_there_is_one() {
        assert_eq!(address("::1", Some(7421)), Ok("[::1]:7421".parse().unwrap()));
        assert_eq!(address("[::1]", Some(7421)), Ok("[::1]:7421".parse().unwrap()));
        assert_eq!(address("192.0.2.1:5", None), Ok("192.0.2.1:5".parse().unwrap()));
        assert!(address("192.0.2.1", None).is_err());
        assert!(address("host:5", Some(1)).is_err());
    }

    const TEXT: &str = "\
listen = [\"192.0.2.1\"]
forward = [\"8443=data.example:443\"]
token_file = \"tokens\"
allow = [
    \"198.51.100.0/24\",
    \"203.0.113.9:7421\",
]
congestion = \"reno\"
max_sessions = 7
max_sessions_per_client = 2
memory = \"64MiB\"
metrics = \"7422\"

[[segment]]
to = [\"203.0.113.0/24\"]
transport = \"tcp\"
buffer = \"8MiB\"
rate = \"900Mbps\"
rtt = \"50ms\"

[[route]]
to = [\"198.51.100.0/24\", \"*.example\"]
via = [\"203.0.113.9\", \"b@203.0.113.10\"]
";

    fn check(text: &str) -> Result<Checked, Vec<String>> {
        let tokens = |path: &Path| match path.to_str() {
            Some("tokens") => Ok(vec![Token::from_random([7; 16])]),
            _ => Err(WrongValue::new("no such file")),
        };
        let time = |text: &str| {
            let seconds = text.strip_suffix('s').unwrap_or(text).parse().map_err(WrongValue::new);
            seconds.map(std::time::Duration::from_secs)
        };
        let config = Config::parse(text).map_err(|mistake| vec![mistake.to_string()])?;
        let checked = config.check(Reading { tokens, time });
        checked.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_says_all_that_a_gateway_does() {
        let Checked { settings, drain, .. } = check(TEXT).unwrap();
        assert_eq!(settings.listen, ["192.0.2.1:7421".parse().unwrap()]);
        assert_eq!((settings.forwards.len(), settings.max_sessions, drain), (1, 7, DRAIN));
        for written in ["7", "\"7\"", "\"7s\""] {
            let text = TEXT.replacen("max", &format!("drain = {written}\nmax"), 1);
            assert_eq!(check(&text).unwrap().drain.as_secs(), 7, "{written}");
        }
        assert!(settings.via_key.is_some() && settings.keys.len() == 1);
        let class = &settings.classes[0];
        assert_eq!(
            class.settings.congestion_control.as_deref(),
            Some("reno"),
            "as without a class"
        );
        assert_eq!(
            (class.settings.buffer, class.settings.rate),
            (Some(8 << 20), Some(Rate::from_mbps(900)))
        );
        assert_eq!((settings.segment.buffer, settings.segment.rate), (None, None));
        assert_eq!(class.settings.bandwidth_delay_product(), Some(11_250_000));
        assert_eq!(settings.routes[0].via[1].name, "b");
        assert_eq!(settings.max_sessions_per_client, 2);
        assert_eq!(settings.memory, Some(Bytes::from_mib(64)));
        assert_eq!(settings.metrics, Some("127.0.0.1:7422".parse().unwrap()));
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (from, to, mistake) in [
            ("\"192.0.2.1\"", "\"gw\"", "line 1: listen gw: expected an address"),
            ("8443=data", "8443-data", "line 2: forward 8443-data.example:443: expected"),
            ("\"tokens\"", "\"nowhere\"", "line 3: token_file nowhere: no such file"),
            ("203.0.113.9:7421", "everything", "line 6: allow everything: \"everything\" is not"),
            ("\"reno\"", "\"nosuch\"", "line 8: congestion nosuch: this kernel does not have"),
            ("s = 7", "s = 0", "line 9: max_sessions 0: expected a whole number from 1 to 100000"),
            (
                "s = 7",
                "s = 100001",
                "line 9: max_sessions 100001: expected a whole number from 1 to 100000",
            ),
            ("rate = \"900Mbps\"\n", "", "line 18: rtt 50ms: it sizes buffers for a rate"),
            ("max_sessions = 7", "drain = \"x\"", "line 9: drain x: "),
            (
                "s = 7",
                "s = -1",
                "line 9: max_sessions -1: expected a whole number from 1 to 100000",
            ),
            (
                "s = 7",
                "s = 7\nmax_session = 8",
                "line 10: max_session: unknown field `max_session`",
            ),
            ("s = 7", "s = ", "line 9: max_sessions: "),
            ("\"203.0.113.9:7421\"", "7", "line 6: allow 7: expected a text in quotes"),
            (
                "203.0.113.0/24",
                "203.0.113.0/33",
                "line 15: to 203.0.113.0/33: \"33\" is not a length",
            ),
            ("\"tcp\"", "\"warp\"", "line 16: transport warp: no such transport"),
            ("\"8MiB\"", "\"8GiB\"", "line 17: buffer 8GiB: expected 4KiB to 1GiB"),
            ("\"900Mbps\"", "\"fast\"", "line 18: rate fast: expected a number"),
            ("client = 2", "client = 0", "line 10: max_sessions_per_client 0: expected"),
            ("64MiB", "64", "line 11: memory 64: expected at least 64KiB"),
            ("7422", "gw:7422", "line 12: metrics gw:7422: expected [ADDR:]PORT"),
            ("50ms", "50", "line 19: rtt 50: expected a time"),
            ("*.example", "a b", "line 22: to a b: \"a b\" is not a destination"),
            (
                "[[route]]",
                "[[route]]\nproxy_protocol = true",
                "line 22: proxy_protocol true: the last",
            ),
            ("b@203.0.113.10", "b@", "line 23: via b@: expected a gateway"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let mistakes = check(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(mistakes[0].starts_with(mistake), "{mistakes:?}, not {mistake}");
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        }
        let mistakes = check(&TEXT.replace("8MiB", "x").replace("reno", "y")).unwrap_err();
        assert_eq!(mistakes.len(), 2, "all of them: {mistakes:?}");
        let mistakes = check(&TEXT.replace("8MiB", "x").replace("s = 7", "s = \"7\"")).unwrap_err();
        let starts = ["line 9: max_sessions \"7\"", "line 17: buffer x"];
        assert!(
            mistakes.iter().zip(starts).all(|(it, start)| it.starts_with(start)),
            "{mistakes:?}"
        );
        assert_eq!(mistakes.len(), 2, "of form and of meaning: {mistakes:?}");
        let mistakes = check(&TEXT.replace("to = [\"203.0.113.0/24\"]\n", "")).unwrap_err();
        assert_eq!(mistakes, ["line 14: segment: missing field `to`"]);
    }

    #[test]
    fn a_file_that_says_too_little_is_not_enough() {
        for (text, mistake) in [
            ("", "line 1: listen: nothing to do"),
            ("socks = [\"127.0.0.1:1080\"]", "line 1: socks: no destination is allowed"),
            (
                "\nlisten = [\"127.0.0.1\"]\nallow = [\"10.0.0.0/8\"]",
                "line 2: listen: no token may use this gateway",
            ),
            ("socks = [\"127.0.0.1:1\"]\nvia = [\"gw\"]", "line 2: via gw: the token"),
            (
                "allow = [\"10.0.0.0/8\"]\nsocks = [\"0.0.0.0:1\"]",
                "line 2: socks: 0.0.0.0:1 is open to everybody",
            ),
        ] {
            let mistakes = check(text).unwrap_err();
            assert!(mistakes[0].starts_with(mistake), "{mistakes:?}");
        }
    }

    #[test]
    fn a_setting_that_cannot_work_is_named_with_its_line_and_key() {
        const LOOP: &str = "a session would come back here, and be refused as a loop";
        for (from, to, mistake) in [
            // Its own address, and its own name at whatever address.
            (
                "via = [\"203.0.113.9\"",
                "via = [\"192.0.2.1\"",
                format!("line 23: via 192.0.2.1: {LOOP}"),
            ),
            ("[[route]]", "[[route]]\nvia = []", "line 22: via: names nothing".to_owned()),
            ("max_sessions = 7", "name = \"b\"", format!("line 23: via b@203.0.113.10: {LOOP}")),
            (
                "b@203.0.113.10",
                "203.0.113.9",
                "line 23: via 203.0.113.9: it stands on this route already".to_owned(),
            ),
            (
                "via = [\"203.0.113.9\"",
                "via = [\"203.0.113.8\"",
                "line 23: via 203.0.113.8: it may not be dialled, since allow does not name it"
                    .to_owned(),
            ),
            (
                "[[route]]",
                "[[segment]]\nto = [\"10.0.0.0/8\", \"203.0.113.7/24\"]\n\n[[route]]",
                "line 22: to 203.0.113.7/24: line 15 names it already".to_owned(),
            ),
            (
                "\"*.example\"]",
                "\"*.example\", \"*.EXAMPLE\"]",
                "line 22: to *.EXAMPLE: line 22 names it already".to_owned(),
            ),
            ("allow = [", "from = []\nallow = [", "line 4: from: names nothing".to_owned()),
            (
                "\"192.0.2.1\"",
                "\"192.0.2.1\", \"192.0.2.1:7421\"",
                "line 1: listen 192.0.2.1:7421: line 1 names it already".to_owned(),
            ),
            (
                "forward =",
                "socks = [\"127.0.0.1:8443\"]\nforward =",
                "line 3: forward 8443=data.example:443: line 2 names it already".to_owned(),
            ),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let mut text = TEXT.replacen(from, to, 1);
            if to.contains("via = []") {
                text.truncate(text.rfind("via = [\"").unwrap());
            }
            let mistakes = check(&text).unwrap_err();
            assert!(mistakes[0].starts_with(&mistake), "{mistakes:?}, not {mistake}");
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        }
        // On all addresses of this host.
        let text = "listen = [\"0.0.0.0\"]\ntoken_file = \"tokens\"\nallow = [\"127.0.0.0/8\"]\n\
                    [[route]]\nto = [\"*\"]\nvia = [\"127.0.0.1\"]\n";
        let mistakes = check(text).unwrap_err();
        assert_eq!(mistakes, [format!("line 6: via 127.0.0.1: {LOOP}")]);
    }
}

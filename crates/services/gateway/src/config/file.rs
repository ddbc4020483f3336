use std::cell::RefCell;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{At, ClassConfig, Config, Mistake, RouteConfig, SegmentConfig, Written};

impl Config {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is no TOML, or has keys that mean nothing.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let file: File = longhaul_settings::parse(text)
            .map_err(|mistake| Mistake { text: mistake.to_string(), is_of_file: false })?;
        Ok(file.written(text))
    }
}

/// Some values, with the place of all of them, if the key stands there.
type List = Option<Spanned<Vec<Spanned<String>>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct File {
    listen: List,
    socks: List,
    socks_password_file: Option<Spanned<PathBuf>>,
    forward: List,
    from: List,
    via: List,
    token_file: Option<Spanned<PathBuf>>,
    neighbour_token_file: Option<Spanned<PathBuf>>,
    via_token_file: Option<Spanned<PathBuf>>,
    name: Option<Spanned<String>>,
    allow: List,
    congestion: Option<Spanned<String>>,
    buffer: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    segment: Vec<FileSegment>,
    route: Vec<FileRoute>,
    rtt: Option<Spanned<String>>,
    max_sessions: Option<Spanned<u32>>,
    max_sessions_per_client: Option<Spanned<u32>>,
    memory: Option<Spanned<String>>,
    spares: Option<Spanned<u32>>,
    metrics: Option<Spanned<String>>,
    drain: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSegment {
    to: Spanned<Vec<Spanned<String>>>,
    transport: Option<Spanned<String>>,
    congestion: Option<Spanned<String>>,
    buffer: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
    rtt: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRoute {
    to: Spanned<Vec<Spanned<String>>>,
    via: List,
    proxy_protocol: Option<Spanned<bool>>,
}

impl File {
    fn written(self, text: &str) -> Config {
        let at = Lines { text, empty: RefCell::default() };
        let mut config = Config {
            listen: at.each("listen", self.listen),
            socks: at.each("socks", self.socks),
            socks_password_file: at.one("socks_password_file", self.socks_password_file),
            forward: at.each("forward", self.forward),
            from: at.each("from", self.from),
            via: at.each("via", self.via),
            token_file: at.one("token_file", self.token_file),
            neighbour_token_file: at.one("neighbour_token_file", self.neighbour_token_file),
            via_token_file: at.one("via_token_file", self.via_token_file),
            name: at.one("name", self.name),
            allow: at.each("allow", self.allow),
            segment: at.segment([
                ("congestion", self.congestion),
                ("buffer", self.buffer),
                ("rate", self.rate),
                ("rtt", self.rtt),
            ]),
            classes: self.segment.into_iter().map(|segment| at.class(segment)).collect(),
            routes: self.route.into_iter().map(|route| at.route(route)).collect(),
            max_sessions: at.one("max_sessions", self.max_sessions),
            max_sessions_per_client: at
                .one("max_sessions_per_client", self.max_sessions_per_client),
            memory: at.one("memory", self.memory),
            spares: at.one("spares", self.spares),
            metrics: at.one("metrics", self.metrics),
            drain: at.one("drain", self.drain),
            empty: Vec::new(),
            is_file: true,
        };
        config.empty = at.empty.into_inner();
        config
    }
}

/// Finds the lines of values.
struct Lines<'t> {
    text: &'t str,
    /// Lists that name nothing.
    empty: RefCell<Vec<At>>,
}

impl Lines<'_> {
    fn of<T>(&self, key: &'static str, value: Spanned<T>) -> Written<T> {
        let line = Some(line(self.text, value.span().start));
        Written { value: value.into_inner(), at: At { key, line } }
    }

    fn one<T>(&self, key: &'static str, value: Option<Spanned<T>>) -> Option<Written<T>> {
        value.map(|value| self.of(key, value))
    }

    fn each(&self, key: &'static str, values: List) -> Vec<Written> {
        let Some(values) = values.map(|values| self.of(key, values)) else { return Vec::new() };
        if values.value.is_empty() {
            self.empty.borrow_mut().push(values.at);
        }
        values.value.into_iter().map(|value| self.of(key, value)).collect()
    }

    fn segment(&self, values: [(&'static str, Option<Spanned<String>>); 4]) -> SegmentConfig {
        let [congestion, buffer, rate, rtt] = values.map(|(key, value)| self.one(key, value));
        SegmentConfig { congestion, buffer, rate, rtt }
    }

    fn class(&self, segment: FileSegment) -> ClassConfig {
        ClassConfig {
            to: self.each("to", Some(segment.to)),
            transport: self.one("transport", segment.transport),
            settings: self.segment([
                ("congestion", segment.congestion),
                ("buffer", segment.buffer),
                ("rate", segment.rate),
                ("rtt", segment.rtt),
            ]),
        }
    }

    fn route(&self, route: FileRoute) -> RouteConfig {
        RouteConfig {
            to: self.each("to", Some(route.to)),
            via: self.each("via", route.via),
            proxy_protocol: self.one("proxy_protocol", route.proxy_protocol),
        }
    }
}

/// The line of a byte of `text`, from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

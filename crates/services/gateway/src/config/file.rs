use longhaul_settings::{Mistake, Section};

use super::check::{PLACES, SPARES};
use super::{ClassConfig, Config, RouteConfig, SegmentConfig};

impl Config {
    /// Reads the text of a file. What is wrong with the form of its values is kept for [`Config::check`].
    ///
    /// # Errors
    /// It is no TOML.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let (config, mistakes) = Section::read(text, Self::read)?;
        Ok(Self { mistakes, ..config })
    }

    fn read(file: &mut Section<'_>) -> Self {
        Self {
            listen: file.each("listen"),
            socks: file.each("socks"),
            socks_password_file: file.path("socks_password_file"),
            forward: file.each("forward"),
            from: file.each("from"),
            via: file.each("via"),
            token_file: file.path("token_file"),
            neighbour_token_file: file.path("neighbour_token_file"),
            via_token_file: file.path("via_token_file"),
            name: file.one("name"),
            allow: file.each("allow"),
            segment: settings(file),
            classes: file.sections("segment", |segment, at| ClassConfig {
                to: segment.each_needed("to", &at),
                transport: segment.one("transport"),
                settings: settings(segment),
            }),
            routes: file.sections("route", |route, at| RouteConfig {
                to: route.each_needed("to", &at),
                via: route.each("via"),
                proxy_protocol: route.one("proxy_protocol"),
            }),
            max_sessions: file.number("max_sessions", PLACES),
            max_sessions_per_client: file.number("max_sessions_per_client", PLACES),
            memory: file.one("memory"),
            spares: file.number("spares", SPARES),
            metrics: file.address("metrics"),
            drain: file.time("drain"),
            is_file: true,
            mistakes: Vec::new(),
        }
    }
}

fn settings(section: &mut Section<'_>) -> SegmentConfig {
    SegmentConfig {
        congestion: section.one("congestion"),
        buffer: section.one("buffer"),
        rate: section.one("rate"),
        rtt: section.one("rtt"),
    }
}

//! The settings, read when the library is loaded: a program may clear its environment later.

use std::sync::OnceLock;

use longhaul_relay_client::{Gateways, Settings, read_token};

use crate::sys;

/// The settings, and the gateways once they are needed.
pub(crate) struct Loaded {
    pub settings: Settings,
    gateways: OnceLock<Option<Gateways>>,
}

/// The wishes of `longhaul gateway run`, if it started this program.
pub(crate) fn loaded() -> Option<&'static Loaded> {
    static LOADED: OnceLock<Option<Loaded>> = OnceLock::new();
    let load = || match Settings::read(|name| std::env::var_os(name)) {
        Ok(settings) => settings.map(|settings| Loaded { settings, gateways: OnceLock::new() }),
        Err(error) => {
            // Going on would mean connecting directly without being asked to.
            sys::write_words(&error.to_string());
            std::process::exit(EXIT_STATUS)
        }
    };
    LOADED.get_or_init(load).as_ref()
}

impl Loaded {
    /// The gateways and the token for them, which is read now; a failure has one message.
    pub fn gateways(&self) -> Option<&Gateways> {
        let read = || {
            let key = read_token(&self.settings.token_file);
            let key = key.map_err(|error| sys::write_words(&error.to_string())).ok()?;
            let gateways = Gateways::new(&self.settings.via, key);
            gateways.map_err(|error| sys::write_words(&error.to_string())).ok()
        };
        self.gateways.get_or_init(read).as_ref()
    }
}

/// As shells have it for a program that cannot be started.
const EXIT_STATUS: i32 = 126;

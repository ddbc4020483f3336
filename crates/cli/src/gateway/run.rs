//! `longhaul gateway run`: a program whose connections go through gateways.

pub(super) mod args;
mod program;

use std::env;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_relay_client::{Gateways, Settings};

use self::args::RunArgs;
use crate::failure::Failure;
use crate::token;

/// Becomes the program, so that signals and its exit status are its own; comes back only where that
/// is not possible.
pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let settings = settings(args)?;
    let library = library()?;
    let (name, words) = args.command.split_first().ok_or_else(|| Failure::usage("no program"))?;
    let path = program::find(name)?;
    program::check(&path)?;
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os(LD_PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(words).env(LD_PRELOAD, preload).envs(settings.variables());
    let error = command.exec();
    Err(Failure::failed(format!("cannot run {}: {error}", path.display())))
}

fn settings(args: &RunArgs) -> Result<Settings, Failure> {
    let (via, source) = match env::var(VIA) {
        Ok(text) if args.via.is_empty() && !text.is_empty() => (text, VIA),
        _ if args.via.is_empty() => {
            return Err(Failure::usage(format!("through which gateways? --via GW, or {VIA}")));
        }
        _ => (args.via.join(","), "--via"),
    };
    let file = token::file_or_default(args.via_token_file.as_deref())?;
    let key = token::read(&file)?.swap_remove(0).key();
    let gateways = Gateways::new(&via, key)
        .map_err(|error| Failure::usage(format!("{source} {via}: {error}")))?;
    let mut to = Vec::new();
    for text in &args.to {
        let rule = text.parse();
        to.push(rule.map_err(|error| Failure::usage(format!("--to {text}: {error}")))?);
    }
    let shown = file.display();
    // The program's children read it again, each when it connects first.
    let token_file = file.canonicalize().ok().filter(|file| file.is_file()).ok_or_else(|| {
        Failure::usage(format!("{shown} is no file that can be read again: name one"))
    })?;
    let place = gateways.first();
    let addresses: Vec<SocketAddr> = match place.address() {
        Some(address) => vec![address],
        None => (place.host.to_string(), place.port)
            .to_socket_addrs()
            .map_err(|error| Failure::failed(format!("cannot resolve {}: {error}", place.host)))?
            .collect(),
    };
    if addresses.is_empty() {
        return Err(Failure::failed(format!("{} has no address", place.host)));
    }
    Ok(Settings { via, addresses, token_file, to, direct: args.direct_if_unreachable })
}

/// The library: that of LONGHAUL_PRELOAD, else next to this program or in ../lib/longhaul.
fn library() -> Result<PathBuf, Failure> {
    let beside = |program: &Path| {
        let folder = program.parent()?;
        Some([folder.join(LIBRARY), folder.join("../lib/longhaul").join(LIBRARY)])
    };
    let named = env::var_os(PRELOAD).filter(|named| !named.is_empty()).map(PathBuf::from);
    let places: Vec<PathBuf> = match named {
        Some(named) => vec![named],
        None => {
            let program = env::current_exe().and_then(|program| program.canonicalize());
            let program = program.map_err(|error| {
                Failure::failed(format!("this program does not find itself: {error}"))
            })?;
            beside(&program).into_iter().flatten().collect()
        }
    };
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    let Some(found) = found else {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        return Err(Failure::failed(format!(
            "there is no {LIBRARY} at {}: `make install` brings it, and {PRELOAD} names another place",
            places.join(" or ")
        )));
    };
    if os_contains(&found, b": ") {
        return Err(Failure::failed(format!(
            "{}: the loader takes no library whose path has spaces or colons: name a copy elsewhere with {PRELOAD}",
            found.display()
        )));
    }
    Ok(found)
}

fn os_contains(path: &Path, letters: &[u8]) -> bool {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    bytes.iter().any(|byte| letters.contains(byte))
}

const LIBRARY: &str = "liblonghaul_preload.so";
const PRELOAD: &str = "LONGHAUL_PRELOAD";
const LD_PRELOAD: &str = "LD_PRELOAD";
const VIA: &str = "LONGHAUL_VIA";

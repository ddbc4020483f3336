//! `longhaul lab peers`.

use longhaul_peers::{Absent, Contender, Presence, STARTS_SERVER, all, find, install};
use serde_json::{Value, json};

use super::args::PeersArgs;
use crate::failure::Failure;
use crate::output::Output;

pub(super) fn run(args: &PeersArgs, output: &Output) -> Result<(), Failure> {
    let find = |name: &String| find(name).map_err(|error| Failure::usage(error.to_string()));
    let contenders = match &args.names[..] {
        [] => all(),
        names => names.iter().map(find).collect::<Result<_, _>>()?,
    };
    if args.install {
        provide(&contenders, !args.names.is_empty(), output)?;
    }
    let found: Vec<_> = contenders.iter().map(|peer| (peer, peer.presence())).collect();
    let json: Vec<Value> = found.iter().map(|(peer, presence)| entry(&***peer, presence)).collect();
    let width = contenders.iter().map(|peer| peer.name().len()).max().unwrap_or(0);
    let lines = found.iter().map(|(peer, presence)| {
        let state = match presence {
            Ok(presence) => presence.version.clone(),
            Err(absent) => format!("absent: {absent}"),
        };
        format!("{:<width$}  {}\n{:width$}  {state}", peer.name(), peer.about(), "")
    });
    output.result(&json!({ "peers": json }), lines.collect::<Vec<_>>().join("\n"))
}

fn entry(peer: &dyn Contender, presence: &Result<Presence, Absent>) -> Value {
    let found = presence.as_ref().ok();
    json!({
        "name": peer.name(),
        "about": peer.about(),
        "version": found.map(|presence| &presence.version),
        "program": found.and_then(|presence| presence.program.as_ref()),
        "absent": presence.as_ref().err().map(ToString::to_string),
        "packages": peer.packages(),
    })
}

/// Installs what is missing. What would start a server of this machine only for those `named`.
fn provide(contenders: &[Box<dyn Contender>], named: bool, output: &Output) -> Result<(), Failure> {
    let missing = contenders.iter().filter_map(|peer| peer.presence().err());
    let mut packages: Vec<&str> = missing.flat_map(|absent| absent.packages).collect();
    packages.sort_unstable();
    packages.dedup();
    let (left, mut packages): (Vec<&str>, Vec<&str>) =
        packages.into_iter().partition(|package| !named && STARTS_SERVER.contains(package));
    if !left.is_empty() {
        output.say(format!(
            "not installed, because it would start a server on this machine: {}; name the peer \
             to have it nevertheless",
            left.join(", ")
        ));
    }
    if packages.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed(format!(
            "installing takes root: apt-get install {}",
            packages.join(" ")
        )));
    }
    output.say(format!("installing {}", packages.join(" ")));
    // One by one when they do not go together, so that one that does not exist stops no other.
    if let Err(error) = install(&packages) {
        output.detail(error);
        packages.retain(|package| match install(&[package]) {
            Ok(()) => false,
            Err(error) => {
                output.say(error);
                true
            }
        });
        if !packages.is_empty() {
            let message = format!("could not be installed: {}", packages.join(" "));
            return Err(Failure::failed(message));
        }
    }
    Ok(())
}

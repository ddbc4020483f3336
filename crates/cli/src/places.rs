//! Places at servers that begin as a word of a command line does, for the scripts of `longhaul completions`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul::{ListOptions, Listed, ListedKind, SshPurpose, Stop, list};
use longhaul_sys::sync::lock;
use longhaul_sys::threads;

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::link;
use crate::location::{self, Location, Server};
use crate::output;
use crate::ssh;

/// Prints those that begin as `args.place`, one a line, directories with a slash. Where there is nothing to be had
/// soon it prints nothing, whatever the reason: the user is typing.
pub(crate) fn print(args: &ListArgs, stop: &Stop) -> Result<(), Failure> {
    let Some(places) = find(args, stop) else { return Ok(()) };
    places.iter().try_for_each(|place| output::print(place))
}

fn find(args: &ListArgs, stop: &Stop) -> Option<Vec<String>> {
    let word = args.place.to_str()?;
    let (directory, begin) = word.split_at(word.rfind('/')? + 1);
    let begin = location::decoded(begin.as_bytes()).ok()?;
    let place = location::parse(OsStr::from_bytes(directory.as_bytes())).ok()?.location;
    // Through ssh it would ask for secrets.
    let Location::Remote { server: server @ Server::At(_), path } = place else { return None };
    let late = stop.clone();
    let patience = move || {
        std::thread::sleep(PATIENCE);
        late.request();
    };
    threads::spawn("patience", patience).ok()?;
    let (asked, token_file) = ((SshPurpose::List, vec![path]), args.token_file.as_deref());
    let (mut connect, paths) = ssh::reach(server, asked, token_file, &args.ssh, stop).ok()?;
    connect.routes = link::routes(&args.route, &connect.token).ok()?;
    let found: Arc<Mutex<Vec<Listed>>> = Arc::default();
    let taking = found.clone();
    let sink = move |all: Vec<Listed>| {
        let mut found = lock(&taking);
        found.extend(all.into_iter().filter(|it| it.path.as_bytes().starts_with(&begin)));
        if found.len() > MOST { Err(io::Error::from(ErrorKind::FileTooLarge)) } else { Ok(()) }
    };
    list(&ListOptions::new(connect, paths.concat(), Arc::new(sink)), stop).ok()?;
    let place = |listed: &Listed| {
        let slash = if matches!(listed.kind, ListedKind::Directory) { "/" } else { "" };
        format!("{directory}{}{slash}", location::escaped(listed.path.as_bytes()))
    };
    let named = std::mem::take(&mut *lock(&found));
    let mut places: Vec<String> =
        named.iter().filter(|listed| !listed.path.is_empty()).map(place).collect();
    places.sort_unstable();
    Some(places)
}

/// Nobody waits longer for a completion.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nor looks through more.
const MOST: usize = 2_000;

//! Names at servers that complete the last word of a command line, for the scripts of `longhaul completions`.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use longhaul::{ConnectOptions, ListOptions, Listed, ListedKind, Stop, escaped, list};
use longhaul_sys::sync::lock;
use longhaul_sys::threads;
use serde_json::Map;

use crate::args::{Cli, PlacesArgs, RouteArgs};
use crate::failure::Failure;
use crate::link;
use crate::location::{self, Location, Server};
use crate::output::{self, Output};
use crate::signals::Held;
use crate::token;

/// Prints what may stand behind the last slash, one a line, directories with a slash. Where there is nothing to be
/// had soon it prints nothing, whatever the reason: the user is typing.
pub(crate) fn run(args: &PlacesArgs, output: &Output, held: Held) -> Result<(), Failure> {
    let stop = Stop::default();
    held.stop_in_order(&stop, output, Map::new)?;
    let Some(names) = find(&args.line, &stop) else { return Ok(()) };
    names.iter().try_for_each(|name| output::print(name))
}

fn find(line: &str, stop: &Stop) -> Option<Vec<String>> {
    let words = words(line)?;
    let word = words.last()?;
    let (directory, begin) = word.split_at(word.rfind('/')? + 1);
    let begin = location::decoded(begin.as_bytes()).ok()?;
    let place = location::parse(OsStr::from_bytes(directory.as_bytes())).ok()?.location;
    // Through ssh it would ask for secrets.
    let Location::Remote { server: Server::At(server), path } = place else { return None };
    let late = stop.clone();
    let patience = move || {
        std::thread::sleep(PATIENCE);
        late.request();
    };
    threads::spawn("patience", patience).ok()?;
    let connect = connect(server, &words)?;
    let found: Arc<Mutex<Vec<Listed>>> = Arc::default();
    let taking = found.clone();
    let sink = move |all: Vec<Listed>| {
        let mut found = lock(&taking);
        found.extend(all.into_iter().filter(|it| it.path.as_bytes().starts_with(&begin)));
        if found.len() > MOST { Err(io::Error::from(ErrorKind::FileTooLarge)) } else { Ok(()) }
    };
    list(&ListOptions::new(connect, path, Arc::new(sink)), stop).ok()?;
    let name = |listed: &Listed| {
        let slash = if matches!(listed.kind, ListedKind::Directory) { "/" } else { "" };
        format!("{}{slash}", escaped(listed.path.as_bytes()))
    };
    let listed = std::mem::take(&mut *lock(&found));
    let mut names: Vec<String> =
        listed.iter().filter(|listed| !listed.path.is_empty()).map(name).collect();
    names.sort_unstable();
    Some(names)
}

/// As a shell reads them; a quotation that is still open ends at the cursor.
fn words(line: &str) -> Option<Vec<String>> {
    ["", "'", "\""].iter().find_map(|end| shlex::split(&format!("{line}{end}")))
}

/// With the token and the gateways that the command line names so far.
fn connect(server: longhaul::Endpoint, words: &[String]) -> Option<ConnectOptions> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    let (_, given) = matches.subcommand()?;
    let mut route = match given.try_contains_id("via") {
        Ok(_) => RouteArgs::from_arg_matches(given).ok()?,
        Err(_) => RouteArgs::default(),
    };
    route.via_token_file = route.via_token_file.map(|file| from_home(&file));
    let token = token::of_client(token_file(given).as_deref()).ok()?;
    let mut connect = ConnectOptions::new(server, token);
    connect.routes = link::routes(&route, &connect.token).ok()?;
    Some(connect)
}

fn token_file(given: &ArgMatches) -> Option<PathBuf> {
    given.try_get_one::<PathBuf>("token_file").ok().flatten().map(|file| from_home(file))
}

/// As the shell will write `~/FILE`.
fn from_home(file: &Path) -> PathBuf {
    match (file.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(below), Some(home)) => Path::new(&home).join(below),
        _ => file.to_owned(),
    }
}

/// Nobody waits longer for a completion.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nor looks through more.
const MOST: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_at_the_cursor_quoted_or_not() {
        for (line, expected) in [
            ("longhaul ls lh://h/a", "lh://h/a"),
            (r"longhaul ls lh://h/a\ b", "lh://h/a b"),
            ("longhaul ls 'lh://h/a b", "lh://h/a b"),
            ("longhaul ls \"lh://h/it's", "lh://h/it's"),
            ("longhaul ls lh://h/'a b'/c", "lh://h/a b/c"),
        ] {
            assert_eq!(words(line).unwrap(), ["longhaul", "ls", expected], "{line}");
        }
    }
}

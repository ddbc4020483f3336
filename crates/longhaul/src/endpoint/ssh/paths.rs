//! Paths as people write them behind `HOST:`, at the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use longhaul_files::{at_directory, at_server};
use longhaul_wire::MAX_PATH;

/// Where paths begin at this host.
#[derive(Clone, Debug)]
pub(super) enum Base {
    /// Below this directory, and nowhere else.
    Root(PathBuf),
    /// Anywhere, for a user with its own rights.
    User {
        /// Where those without a slash in front begin.
        start: PathBuf,
        /// The place of `~`.
        home: PathBuf,
    },
}

impl Base {
    /// The directory that is served.
    pub fn root(&self) -> &Path {
        match self {
            Self::Root(root) => root,
            Self::User { .. } => Path::new("/"),
        }
    }

    /// The path below [`Self::root`] that `asked` means.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn place(&self, asked: &[u8]) -> Result<Vec<u8>, String> {
        let (home, rest) = match asked.strip_prefix(b"~") {
            None => (false, asked),
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => (true, rest),
            Some(_) => return Err(OTHER_HOME.into()),
        };
        let rest = Path::new(OsStr::from_bytes(rest));
        let below = match self {
            Self::Root(_) if rest.components().any(|it| it == Component::ParentDir) => {
                return Err("it leads upwards, and this server has but one directory".into());
            }
            Self::Root(_) => rest.to_owned(),
            Self::User { start, home: own } => {
                let within = rest.strip_prefix("/").ok().filter(|_| home);
                let whole = match (home, within) {
                    (true, within) => own.join(within.unwrap_or(rest)),
                    (false, _) => start.join(rest),
                };
                upwards(&whole)?
            }
        };
        let names = below.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.as_bytes()),
            _ => None,
        });
        let path = names.collect::<Vec<_>>().join(&b'/');
        if path.len() > MAX_PATH {
            return Err("it is too long".into());
        }
        Ok(path)
    }
}

/// The same without `..`, of which each leads to the directory that holds what is before it.
fn upwards(path: &Path) -> Result<PathBuf, String> {
    let components: Vec<Component<'_>> = path.components().collect();
    let last = components.iter().rposition(|component| *component == Component::ParentDir);
    let Some(last) = last else { return Ok(path.to_owned()) };
    let head: PathBuf = components[..=last].iter().collect();
    let head = head.canonicalize();
    let head = head.map_err(|error| at_server(at_directory(&error)).reason)?;
    Ok(components[last + 1..].iter().fold(head, |path, component| path.join(component)))
}

const OTHER_HOME: &str =
    "write the home of another user out; a file of that name is written with ./ before it";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_user_begin_at_home_or_at_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let start = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(start.join("real/deep")).unwrap();
        std::os::unix::fs::symlink("real/deep", start.join("link")).unwrap();
        let base = Base::User { start: start.clone(), home: "/home/me".into() };
        let own = |path: &str| start.join(path).to_str().unwrap()[1..].to_owned();
        for (asked, expected) in [
            ("run-17", own("run-17")),
            ("./~x", own("~x")),
            ("a//b/./c/", own("a/b/c")),
            ("", own("")),
            (".", own("")),
            ("real/../new", own("new")),
            // Where the link leads, as the kernel has it.
            ("link/../new", own("real/new")),
            ("/data/x", "data/x".into()),
            ("/", String::new()),
            ("~", "home/me".into()),
            ("~/x", "home/me/x".into()),
        ] {
            let expected = expected.trim_end_matches('/').as_bytes().to_vec();
            assert_eq!(base.place(asked.as_bytes()), Ok(expected), "{asked}");
        }
        for (asked, why) in [
            ("~you/x", "write the home of another user out"),
            ("none/../x", "no such directory at the server"),
        ] {
            let error = base.place(asked.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{asked}: {error}");
        }
        assert!(base.place(&[b'x'; MAX_PATH + 1]).unwrap_err().contains("too long"));
    }

    #[test]
    fn paths_of_a_key_with_a_root_stay_below_it() {
        let base = Base::Root("/data".into());
        for (asked, expected) in
            [("run-17", "run-17"), ("/run-17", "run-17"), ("~/a/./b", "a/b"), ("", ""), ("~", "")]
        {
            assert_eq!(base.place(asked.as_bytes()), Ok(expected.as_bytes().to_vec()), "{asked}");
        }
        for asked in ["..", "a/../b", "/../etc", "~/../x"] {
            assert!(base.place(asked.as_bytes()).is_err(), "{asked}");
        }
    }
}

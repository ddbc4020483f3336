//! Names of links, nodes and projects.

use longhaul_settings::{WrongValue, wrong_value};

/// Checks that a link has sound names and leads somewhere.
pub(crate) fn link_is_sound(name: &str, from: &str, to: &str) -> Result<(), WrongValue> {
    [name, from, to].into_iter().try_for_each(name_is_sound)?;
    match from == to {
        true => Err(wrong_value!("link {name}: it leads from {from} to {from}")),
        false => Ok(()),
    }
}

/// Checks that the names of a new link and its nodes can be given wherever one names them: as a
/// word of a command, in a list with commas, in a URL as `--circuit` takes it. A link that a store
/// has keeps its names.
pub(crate) fn link_can_be_named(name: &str, from: &str, to: &str) -> Result<(), WrongValue> {
    let good = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric()) && !name.contains('/')
    };
    match [name, from, to].into_iter().find(|name| !good(name)) {
        None => Ok(()),
        Some(bad) => Err(wrong_value!(
            "link {name}: {bad} could not be named in URLs and commands: names of links and nodes \
             begin with a letter or digit and have no /"
        )),
    }
}

/// Checks that a name can stand in a log and a table.
pub(super) fn name_is_sound(name: &str) -> Result<(), WrongValue> {
    let sound = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/>".contains(&b));
    if name.is_empty() || name.len() > 64 || !sound {
        return Err(wrong_value!(
            "{name:?} is no name: expected up to 64 letters, digits and - _ . : > (a project's has / \
             too)"
        ));
    }
    Ok(())
}

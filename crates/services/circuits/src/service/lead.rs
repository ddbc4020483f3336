//! Becoming the one that decides: rebuild the ledger, bring it in line with the configuration.

use std::path::PathBuf;
use std::time::Instant;

use longhaul_settings::WrongValue;

use super::Notice;
use super::clock_from;
use super::config::{Archive, Config, link_can_be_named};
use crate::archive;
use crate::clock::Clock;
use crate::drivers::Lease;
use crate::ledger::{
    Command, Corrupt, Decision, Event, Ledger, LinkSpec, Order, Record, Refusal, Rules,
};
use crate::store::{Store, StoreError};

/// State of the node that leads.
pub(super) struct Leading {
    pub(super) ledger: Ledger,
    pub(super) clock: Clock,
    pub(super) lease: Lease,
}

/// Why this node does not lead.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeadError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Log(#[from] Corrupt),
    #[error("{0}")]
    Config(#[from] ConfigMismatch),
}

/// The configuration does not fit the store. The operator changes it, or names another store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigMismatch {
    /// A link that the store does not have yet needs another name.
    #[error("{0}")]
    LinkName(#[from] WrongValue),
    /// The rules differ.
    #[error(
        "{place} was founded with other rules, which do not change: {rules:?}. Take them into the \
         configuration, or name another store"
    )]
    Rules {
        /// Where the store is.
        place: String,
        /// Its rules.
        rules: Box<Rules>,
    },
    /// A link differs.
    #[error(
        "link {} leads in {place} from {} to {} with {} channels, for {} millionths a TB: a link \
         does not change. Give the changed one another name",
        known.name, known.from, known.to, known.capacity, known.price_micros
    )]
    Link {
        /// Where the store is.
        place: String,
        /// The link as the store has it.
        known: Box<LinkSpec>,
    },
    /// The ledger does not take a project or a link.
    #[error("{0}")]
    Refused(Refusal),
}

/// Why the store goes on keeping all records.
#[derive(Debug, thiserror::Error)]
enum CompactError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Log(#[from] Corrupt),
    #[error("{}: {error}", folder.display())]
    Archive { folder: PathBuf, error: std::io::Error },
}

/// An order of the service itself.
pub(super) fn own(command: Command) -> Order {
    let (actor, project) = ("service".to_owned(), String::new());
    Order { actor, project, operator: true, key: None, command }
}

/// Takes the lead of a store and rebuilds its ledger.
pub(super) fn take(
    store: &mut dyn Store,
    config: &Config,
    notice: &Notice,
) -> Result<Leading, LeadError> {
    let epoch = store.lead()?;
    let mut ledger = store.state()?.map(|(_, state)| Ledger::from_snapshot(&state)).transpose()?;
    let compacted = ledger.as_ref().map_or(0, Ledger::seq);
    loop {
        let page = store.read(ledger.as_ref().map_or(0, Ledger::seq), PAGE)?;
        if page.is_empty() {
            break;
        }
        for record in page {
            match &mut ledger {
                Some(ledger) => drop(ledger.apply(&record)?),
                None => ledger = Some(Ledger::founded(&record)?),
            }
        }
    }
    let known = ledger.as_ref().map_or(&[][..], Ledger::links);
    for new in config.links.iter().filter(|link| known.iter().all(|one| one.name != link.name)) {
        link_can_be_named(&new.name, &new.from, &new.to).map_err(ConfigMismatch::LinkName)?;
    }
    let mut ledger = match ledger {
        Some(ledger) => ledger,
        None => found(store, config)?,
    };
    if *ledger.rules() != config.rules {
        let (place, rules) = (config.place(), Box::new(ledger.rules().clone()));
        return Err(ConfigMismatch::Rules { place, rules }.into());
    }
    if let Some(archive) = &config.archive
        && ledger.seq() - compacted >= archive.after
    {
        match compact(store, &ledger, compacted, archive) {
            Err(CompactError::Store(StoreError::Fenced)) => return Err(StoreError::Fenced.into()),
            // With its records the store is as good; the next leader tries again.
            Err(error) => notice(&format!("the log was not compacted: {error}")),
            Ok(()) => {}
        }
    }
    let clock = clock_from(ledger.now(), config.rules.tick_nanos);
    settle(&mut ledger, store, config, clock.nanos() / config.rules.tick_nanos)?;
    // Reading a long log may have taken longer than the lease.
    let (lease, asked) = (Lease::new(epoch), Instant::now());
    store.renew()?;
    lease.renew(asked, config.lease());
    Ok(Leading { ledger, clock, lease })
}

/// Has the ledger's state stand for the records after `from`, which go to the archive first.
fn compact(
    store: &mut dyn Store,
    ledger: &Ledger,
    from: u64,
    to: &Archive,
) -> Result<(), CompactError> {
    let failed = |error| CompactError::Archive { folder: to.folder.clone(), error };
    let mut file = archive::Archive::begin(&to.folder).map_err(failed)?;
    let mut after = from;
    while after < ledger.seq() {
        let page = store.read(after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        page.iter().try_for_each(|record| file.add(record)).map_err(failed)?;
    }
    file.finish().map_err(failed)?;
    store.compact(ledger.seq(), &ledger.snapshot()?)?;
    Ok(())
}

fn found(store: &mut dyn Store, config: &Config) -> Result<Ledger, LeadError> {
    let clock = clock_from(0, config.rules.tick_nanos);
    let record = Record {
        seq: 1,
        tick: clock.nanos() / config.rules.tick_nanos,
        order: own(Command::Found(config.rules.clone())),
        outcome: vec![Event::Set],
    };
    store.append(std::slice::from_ref(&record))?;
    Ok(Ledger::founded(&record)?)
}

/// Enters projects and links of the configuration that the ledger does not have.
fn settle(
    ledger: &mut Ledger,
    store: &mut dyn Store,
    config: &Config,
    tick: u64,
) -> Result<(), LeadError> {
    let mut commands = Vec::new();
    if *ledger.projects() != config.projects {
        commands.push(Command::SetProjects { projects: config.projects.clone() });
    }
    for wanted in &config.links {
        match ledger.links().iter().find(|link| link.name == wanted.name) {
            None => commands.push(Command::AddLink(wanted.clone())),
            Some(known) if known == wanted => {}
            Some(known) => {
                let (place, known) = (config.place(), Box::new(known.clone()));
                return Err(ConfigMismatch::Link { place, known }.into());
            }
        }
    }
    let mut records = Vec::new();
    for command in commands {
        match ledger.decide(tick, own(command)).0 {
            Decision::Logged(record) => records.push(*record),
            Decision::Repeated(_) => {}
            Decision::Refused(refusal) => return Err(ConfigMismatch::Refused(refusal).into()),
        }
    }
    if !records.is_empty() {
        store.append(&records)?;
    }
    Ok(())
}

/// Records that are read at once.
const PAGE: u32 = 10_000;

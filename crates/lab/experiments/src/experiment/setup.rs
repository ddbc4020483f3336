use std::path::PathBuf;
use std::time::Duration;

use longhaul_lab::disk::DiskSpec;
use longhaul_lab::load::Load;
use longhaul_lab::{LinkSpec, Topology, parse_time};
use longhaul_peers::Waypoint;
use longhaul_units::{Bytes, Rate};

use super::parameter::{BACK, NONE};
use super::{Beside, Cross, Experiment, Memory, Parameter, Run, Source};

/// Everything that a run is made on, with the values of its cell in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Nodes and links.
    pub topology: Topology,
    /// Sending node.
    pub from: String,
    /// Receiving node.
    pub to: String,
    /// The observed link, by its place in the topology.
    pub link: usize,
    /// Nodes between whose programs take the data and send it on.
    pub via: Vec<Waypoint>,
    /// Bytes to move.
    pub bytes: Bytes,
    /// After so long the transfer is cut.
    pub length: Option<Duration>,
    /// So many connections and exchanges, in place of moving data.
    pub round_trips: Option<u32>,
    /// From where to where.
    pub medium: Source,
    /// Bytes at a time.
    pub block: Option<Bytes>,
    /// Rate that contenders are given, unless one has a rate of its own.
    pub rate: Option<Rate>,
    /// Socket buffers that contenders are given.
    pub socket_buffer: Option<Bytes>,
    /// The time limit.
    pub patience: Duration,
    /// When the transfer begins.
    pub begin: Option<Duration>,
    /// Work beside the transfer.
    pub load: Option<Load>,
    /// A slow disk for the copies; its folder is found when it is wanted.
    pub disk: Option<DiskSpec>,
    /// The receiver runs before all other programs.
    pub host_priority: bool,
    /// The niceness of the receiver.
    pub nice: Option<i8>,
    /// TCP connections that are there all the time.
    pub cross: Option<Cross>,
    /// Of Longhaul's profile.
    pub parameters: Vec<String>,
    /// Path history of Longhaul's sender.
    pub memory: Memory,
    /// From the start of the first transfer to that of the measured one.
    pub after: Duration,
    /// Transfers beside the measured one.
    pub beside: Vec<Beside>,
    /// Distance of the samples of time series.
    pub series: Duration,
    /// Losses are joined with what the sender tells of them.
    pub losses: bool,
}

impl Setup {
    /// Of an experiment that was read, before any axis has changed it.
    pub fn new(experiment: &Experiment, quick: bool) -> Self {
        Self::try_new(experiment, quick).expect("links were looked up when it was read")
    }

    /// Of a run.
    ///
    /// # Errors
    /// Values of its cell that do not go together.
    pub fn of(experiment: &Experiment, quick: bool, run: &Run) -> Result<Self, String> {
        let cell = run.cell.iter().map(|(parameter, value)| (parameter, value));
        let mut setup = Self::in_cell(experiment, quick, cell)?;
        let contender = &experiment.contenders[run.contender];
        setup.via.clone_from(&contender.via);
        setup.rate = contender.rate.or(setup.rate);
        setup.socket_buffer = contender.socket_buffer.or(setup.socket_buffer);
        setup.bytes = contender.bytes.unwrap_or(setup.bytes);
        setup.memory = contender.history.unwrap_or(setup.memory);
        (setup.host_priority, setup.nice) = (contender.host_priority, contender.nice);
        setup.parameters.extend(contender.parameters.iter().cloned());
        setup.after = contender.after;
        setup.beside.clone_from(&contender.beside);
        setup.topology.validate().map_err(|error| error.to_string())?;
        Ok(setup)
    }

    /// Of a cell, for every contender in it.
    ///
    /// # Errors
    /// Values that do not go together.
    pub fn in_cell<'a>(
        experiment: &Experiment,
        quick: bool,
        cell: impl IntoIterator<Item = (&'a Parameter, &'a String)>,
    ) -> Result<Self, String> {
        let mut setup = Self::new(experiment, quick);
        for (parameter, value) in cell {
            let axis = experiment.axes.iter().find(|axis| axis.sets == *parameter);
            let links = axis.map(|axis| experiment.links_of(axis)).unwrap_or_default();
            setup.set(*parameter, value, &links)?;
        }
        Ok(setup)
    }

    pub(super) fn try_new(experiment: &Experiment, quick: bool) -> Option<Self> {
        let (topology, job) = (experiment.base(), &experiment.job);
        let name = |node: usize| topology.nodes[node].name.clone();
        let link = job.link.as_ref().map_or(Some(0), |name| topology.link(name))?;
        let shorter = if quick { experiment.quick.clone() } else { Default::default() };
        Some(Self {
            from: job.from.clone().unwrap_or_else(|| name(0)),
            to: job.to.clone().unwrap_or_else(|| name(topology.nodes.len() - 1)),
            link,
            via: Vec::new(),
            bytes: shorter.bytes.unwrap_or(job.bytes),
            length: shorter.length.or(job.length),
            round_trips: shorter.round_trips.or(job.round_trips),
            medium: job.medium,
            block: job.block,
            rate: None,
            socket_buffer: job.socket_buffer,
            patience: shorter.patience.unwrap_or(job.patience),
            begin: job.begin,
            load: None,
            disk: None,
            host_priority: false,
            nice: None,
            cross: experiment.cross.clone(),
            parameters: Vec::new(),
            memory: Memory::Off,
            after: Duration::ZERO,
            beside: Vec::new(),
            series: job.series.unwrap_or(TENTH),
            losses: job.losses,
            topology,
        })
    }

    /// Gives a parameter a value, for these links where it is of links: without any, of the observed
    /// one.
    ///
    /// # Errors
    /// Text of what is expected instead.
    pub(super) fn set(
        &mut self,
        parameter: Parameter,
        value: &str,
        links: &[usize],
    ) -> Result<(), String> {
        let chosen = Some(value).filter(|value| *value != NONE);
        match parameter {
            Parameter::Rtt if chosen.is_none() => {
                self.topology.links.iter_mut().for_each(|link| delay(link, Duration::ZERO, None));
            }
            Parameter::Rtt
            | Parameter::Loss
            | Parameter::BurstLoss
            | Parameter::Rate
            | Parameter::Queue => {
                let observed = [self.link];
                for link in if links.is_empty() { &observed } else { links } {
                    change(&mut self.topology.links[*link], parameter, value)?;
                }
            }
            Parameter::Mtu => {
                let mtu = value.parse().map_err(|_| "expected a number of bytes".to_owned())?;
                self.topology.links.iter_mut().for_each(|link| link.mtu = mtu);
            }
            Parameter::SendingRate => self.rate = Some(value.parse().map_err(words)?),
            Parameter::SocketBuffer => self.socket_buffer = Some(value.parse().map_err(words)?),
            Parameter::Medium => {
                self.medium = match value {
                    "memory" => Source::Memory,
                    "ramdisk" => Source::Ramdisk,
                    "disk" => Source::Disk,
                    _ => return Err("expected memory, ramdisk or disk".into()),
                }
            }
            Parameter::Load => {
                let load = chosen.map(str::parse).transpose();
                self.load = load.map_err(words)?;
            }
            Parameter::Egress => {
                let node = self.topology.node(&self.from).ok_or("there is no sending node")?;
                self.topology.nodes[node].egress = chosen.map(str::parse).transpose()?;
            }
            Parameter::Disk => {
                let disk = chosen.map(|disk| DiskSpec::parse(disk, PathBuf::new())).transpose();
                self.disk = disk.map_err(words)?;
            }
            Parameter::Cross => {
                let cross = self.cross.take().ok_or("there is no table `cross`")?;
                self.cross = chosen.map(|flows| cross.of(flows)).transpose()?;
            }
            Parameter::Param => {
                let parts = value.split_whitespace().filter(|part| *part != "none");
                self.parameters = parts.map(str::to_owned).collect();
                if self.parameters.iter().any(|part| !part.contains('=')) {
                    return Err("expected none, or NAME=VALUE, or several of these".into());
                }
            }
            Parameter::History => {
                self.memory = match value {
                    "cold" => Memory::Cold,
                    "warm" => Memory::Warm,
                    _ => return Err("expected cold or warm".into()),
                }
            }
            Parameter::Contender => return Err("contenders compete in every cell".into()),
        }
        Ok(())
    }
}

/// Gives a parameter of links a value.
fn change(link: &mut LinkSpec, parameter: Parameter, value: &str) -> Result<(), String> {
    match parameter {
        Parameter::Rtt => match value.strip_suffix(BACK) {
            Some(time) => delay(link, Duration::ZERO, Some(parse_time(time)?)),
            None => delay(link, parse_time(value)? / 2, None),
        },
        Parameter::Loss => link.forward.loss = Some(value.parse().map_err(words)?),
        Parameter::Rate => link.both.rate = Some(value.parse().map_err(words)?),
        Parameter::Queue => link.both.queue = Some(value.parse().map_err(words)?),
        // Bursts of losses are left.
        _ => {
            link.forward.burst_loss = match value {
                NONE => None,
                bursts => Some(bursts.parse()?),
            }
        }
    }
    Ok(())
}

/// The same time there and back, or another one back.
fn delay(link: &mut LinkSpec, both: Duration, back: Option<Duration>) {
    link.both.delay = Some(both);
    (link.forward.delay, link.backward.delay) = (None, back);
}

/// Default for time series.
const TENTH: Duration = Duration::from_millis(100);

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

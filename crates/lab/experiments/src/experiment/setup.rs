use std::time::Duration;

use longhaul_lab::load::Load;
use longhaul_lab::{Topology, parse_time};
use longhaul_units::{Bytes, Rate};

use super::{Experiment, Parameter, Run, Source};

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
    /// How much is moved.
    pub bytes: Bytes,
    /// From where to where.
    pub medium: Source,
    /// Bytes at a time.
    pub block: Option<Bytes>,
    /// What contenders are told, unless one has a rate of its own.
    pub rate: Option<Rate>,
    /// What contenders are told.
    pub socket_buffer: Option<Bytes>,
    /// The time limit.
    pub patience: Duration,
    /// When the transfer begins.
    pub begin: Option<Duration>,
    /// Work beside the receiver.
    pub load: Option<Load>,
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
        let mut setup = Self::new(experiment, quick);
        for (parameter, value) in &run.cell {
            setup.set(*parameter, value)?;
        }
        setup.rate = experiment.contenders[run.contender].rate.or(setup.rate);
        setup.topology.validate().map_err(|error| error.to_string())?;
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
            bytes: shorter.bytes.unwrap_or(job.bytes),
            medium: job.medium,
            block: job.block,
            rate: None,
            socket_buffer: job.socket_buffer,
            patience: shorter.patience.unwrap_or(job.patience),
            begin: job.begin,
            load: None,
            topology,
        })
    }

    /// Gives a parameter a value.
    ///
    /// # Errors
    /// What is expected instead.
    pub(super) fn set(&mut self, parameter: Parameter, value: &str) -> Result<(), String> {
        let link = &mut self.topology.links[self.link];
        match parameter {
            Parameter::Rtt => {
                link.both.delay = Some(parse_time(value)? / 2);
                (link.forward.delay, link.backward.delay) = (None, None);
            }
            Parameter::Loss => link.forward.loss = Some(value.parse().map_err(words)?),
            Parameter::Rate => link.both.rate = Some(value.parse().map_err(words)?),
            Parameter::Queue => link.both.queue = Some(value.parse().map_err(words)?),
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
                self.load = match value {
                    "none" => None,
                    load => Some(load.parse().map_err(words)?),
                }
            }
            Parameter::Contender => return Err("contenders compete in every cell".into()),
        }
        Ok(())
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

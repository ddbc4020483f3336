use super::checks::Fault;
use super::{Axis, Experiment, Look, Setup};

impl Experiment {
    /// Nodes between, and what is asked of the transfer that goes through them.
    pub(super) fn check_between(&self) -> Result<(), Fault> {
        let setup = Setup::new(self, false);
        for contender in &self.contenders {
            let mut before = vec![&setup.from, &setup.to];
            for waypoint in &contender.via {
                let fault = |message| Err(Fault::at(&contender.name, "via", message));
                if setup.topology.node(&waypoint.node).is_none() {
                    return fault(format!("the testbed has no node {:?}", waypoint.node));
                }
                if before.contains(&&waypoint.node) {
                    return fault(format!("it is at {:?} twice", waypoint.node));
                }
                before.push(&waypoint.node);
            }
        }
        if setup.round_trips == Some(0) {
            return Err(Fault::at_key("round_trips", "at least 1"));
        }
        if setup.bytes.get() == 0 && setup.round_trips.is_none() {
            return Err(Fault::at_key("bytes", "either these or round_trips"));
        }
        for quick in [false, true] {
            let setup = Setup::new(self, quick);
            if setup.length.is_some_and(|length| length >= setup.patience) {
                return Err(Fault::at_key("length", "the patience is over before that"));
            }
        }
        for finding in &self.findings {
            if let Look::Mathis { links } = &finding.measured {
                let unknown = links.iter().find(|name| setup.topology.link(name).is_none());
                let message = match (unknown, links.is_empty()) {
                    (Some(name), _) => format!("the testbed has no link {name:?}"),
                    (None, true) => "`mathis` needs links".to_owned(),
                    (None, false) => continue,
                };
                return Err(Fault::at_key("finding", message));
            }
        }
        Ok(())
    }

    /// The links of an axis.
    pub(super) fn check_links(&self, axis: &Axis) -> Result<(), Fault> {
        let topology = self.base();
        for link in &axis.links {
            if topology.link(link.get_ref()).is_none() {
                return Err(Fault::at(link, "links", "the testbed has no such link"));
            }
            if !axis.sets.is_of_links() {
                let message = format!("`{}` is not of links", axis.sets.name());
                return Err(Fault::at(link, "links", message));
            }
        }
        Ok(())
    }

    /// The links that an axis sets, by their places in the topology; none for the observed one.
    pub(super) fn links_of(&self, axis: &Axis) -> Vec<usize> {
        let topology = self.base();
        axis.links.iter().filter_map(|link| topology.link(link.get_ref())).collect()
    }
}

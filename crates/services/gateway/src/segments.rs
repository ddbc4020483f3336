//! Settings of segments, by the address at their other end.

use std::net::IpAddr;
use std::sync::Arc;

use crate::policy::Prefix;
use crate::transport::SegmentSettings;

/// Segments whose other ends lie in some ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentClass {
    /// The other ends: targets, next gateways, and clients; empty for those that no class names.
    pub to: Vec<Prefix>,
    /// The transport by which they are dialled; empty for the first one.
    pub transport: String,
    /// Their settings.
    pub settings: SegmentSettings,
}

/// All classes.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    classes: Vec<Arc<SegmentClass>>,
    others: Arc<SegmentClass>,
}

impl Segments {
    /// These classes, and `others` for what no class names.
    pub fn new(classes: Vec<SegmentClass>, others: SegmentSettings) -> Self {
        let others = SegmentClass { settings: others, ..SegmentClass::default() };
        Self { classes: classes.into_iter().map(Arc::new).collect(), others: Arc::new(others) }
    }

    /// The class of a segment to `address`: that with the narrowest range.
    pub fn of(&self, address: IpAddr) -> &Arc<SegmentClass> {
        let narrow = |class: &SegmentClass| {
            let ranges = class.to.iter().filter(|range| range.contains(address));
            ranges.map(Prefix::length).max()
        };
        let matching = self.classes.iter().filter_map(|class| Some((class, narrow(class)?)));
        matching.max_by_key(|(_, narrow)| *narrow).map_or(&self.others, |(class, _)| class)
    }

    /// The class of segments that no other one names.
    pub const fn others(&self) -> &Arc<SegmentClass> {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_range_names_the_class() {
        let class = |to: &str, transport: &str| SegmentClass {
            to: vec![to.parse().unwrap()],
            transport: transport.into(),
            settings: SegmentSettings::default(),
        };
        let classes = vec![class("10.0.0.0/8", "wide"), class("10.1.0.0/16", "narrow")];
        let segments = Segments::new(classes, SegmentSettings::default());
        for (address, transport) in
            [("10.2.0.1", "wide"), ("::ffff:10.1.0.1", "narrow"), ("192.0.2.1", "")]
        {
            assert_eq!(segments.of(address.parse().unwrap()).transport, transport, "{address}");
        }
    }
}

//! Findings of an experiment's source, and what stands beside them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::parameter::Parameter;
use crate::measure::Measure;

/// Something that the source found, and how to look at the same thing here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// In the source's terms.
    pub paper: String,
    /// Measurement that stands beside it, in words made from the data.
    pub measured: Look,
    /// Only cells with these values.
    #[serde(default)]
    pub only: BTreeMap<Parameter, String>,
}

/// A way of putting data into words.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "look", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Look {
    /// The first of the contenders in each cell, and the place of one of them beside the best of
    /// the others.
    Rank {
        /// Judged by this.
        by: Measure,
        /// The label of the one that is followed.
        of: String,
    },
    /// Nothing beyond a column of the table.
    Values {
        /// This one.
        of: Measure,
    },
    /// Nothing beyond the figures.
    Figures {},
    /// Effect of a change of one value to another.
    Change {
        /// In this.
        of: Measure,
        /// The one whose value changes.
        along: Parameter,
        /// From it.
        from: String,
        /// To it.
        to: String,
    },
    /// Shares of a bottleneck: the transfer's, those of all beside it, and what is left.
    Shares {},
    /// Reaction to each change of the observed link.
    Recovery {},
    /// Precision and recall of the causes that the sender tells.
    Causes {},
    /// A measure of one contender in parts of another's, in each case.
    Ratio {
        /// Of this.
        of: Measure,
        /// The contender's label.
        contender: String,
        /// In parts of this one's.
        to: String,
        /// Over this, along which the source has ratios.
        along: Parameter,
        /// The source's ratios, by values of that parameter.
        #[serde(default)]
        source: BTreeMap<String, f64>,
    },
    /// After how long a transfer that is faster by some part has made up for a longer connect.
    BreakEven {
        /// The contender that takes longer to connect.
        contender: String,
        /// Than this one.
        to: String,
        /// By so much it is faster then: 0.25 is a quarter.
        faster: f64,
    },
    /// Goodput beside what the formula of Mathis and others (Phoebus reference 15) lets as many
    /// connections of Reno's have on the worst of some links.
    Mathis {
        /// Their names.
        links: Vec<String>,
    },
    /// Use of bookings, and planned beside actual times, for each contender.
    Bookings {},
    /// Lengths of the scheduler's turns and of the intervals without loss.
    Slices {
        /// A sentence for each of its values.
        each: Parameter,
    },
    /// Mean and standard deviation of a measure in each case, as tables have them.
    Deviation {
        /// Of this.
        of: Measure,
    },
    /// A rate that is best in one case and kept in all others, beside the rate that is best in each.
    Tuned {
        /// Name of the contenders with given rates.
        sweep: String,
        /// Judged by this.
        by: Measure,
        /// The case in which the untuned rate is found, where it differs from the one looked at.
        untuned: BTreeMap<Parameter, String>,
        /// Where the sweep was made, if not in each case.
        #[serde(default)]
        swept: BTreeMap<Parameter, String>,
    },
    /// Bottleneck that the programs name.
    Bottleneck {},
    /// Which signals of a host moved before it dropped, and how often for nothing.
    Signals {},
}

impl Look {
    /// The measure that it is about.
    pub(super) fn measure(&self) -> Option<Measure> {
        match self {
            Self::Rank { by: of, .. }
            | Self::Values { of }
            | Self::Deviation { of }
            | Self::Change { of, .. }
            | Self::Ratio { of, .. } => Some(*of),
            Self::BreakEven { .. } => Some(Measure::Connect),
            Self::Mathis { .. } => Some(Measure::Goodput),
            _ => None,
        }
    }

    /// Parameters along which it goes.
    pub(super) fn dimensions(&self) -> Vec<Parameter> {
        match self {
            Self::Tuned { untuned, swept, .. } => {
                untuned.keys().chain(swept.keys()).copied().collect()
            }
            Self::Change { along, .. } | Self::Ratio { along, .. } => vec![*along],
            Self::Slices { each } => vec![*each],
            _ => Vec::new(),
        }
    }

    /// Values that it speaks of.
    pub(super) fn chosen(&self) -> Vec<(Parameter, &str)> {
        fn contender(label: &str) -> (Parameter, &str) {
            (Parameter::Contender, label)
        }
        match self {
            Self::Rank { of, .. } => vec![contender(of)],
            Self::Ratio { contender: own, to, along, source, .. } => {
                let source = source.keys().map(|value| (*along, value.as_str()));
                source.chain([own, to].map(|label| contender(label))).collect()
            }
            Self::BreakEven { contender: own, to, .. } => {
                [own, to].map(|label| contender(label)).into()
            }
            Self::Change { along, from, to, .. } => {
                [from, to].map(|value| (*along, value.as_str())).into()
            }
            Self::Tuned { untuned, swept, .. } => {
                let both = untuned.iter().chain(swept);
                both.map(|(axis, value)| (*axis, value.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }
}

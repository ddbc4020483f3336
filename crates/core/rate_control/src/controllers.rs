//! The family of controllers, one file or folder each. Their models, equations and sources are in
//! docs/rate-control.md.

mod auto;
mod bbr;
mod cubic;
mod first_train;
mod fixed;
mod flight;
mod fobs;
mod lambdastream;
mod opening;
mod paced;
mod paptc;
mod pcc;
mod power;
mod rapid;
mod recovery;
mod rounds;
mod sabul;
mod scavenger;
mod startup;
mod stepped;
mod trc;
mod tsunami;
mod udt;

pub use auto::{Auto, AutoConfig};
pub use bbr::{Bbr, BbrConfig};
pub use cubic::{Cubic, CubicConfig};
pub use fixed::{Fixed, FixedConfig, UnlimitedConfig};
pub use fobs::{FobsConfig, FobsLinearConfig, FobsStateConfig};
pub use lambdastream::LambdaStreamConfig;
pub use paptc::PaptcConfig;
pub use pcc::{Pcc, PccConfig};
pub use rapid::RapidConfig;
pub use sabul::SabulConfig;
pub use scavenger::{Scavenger, ScavengerConfig};
pub use trc::{TimeRange, Trc, TrcConfig, Vector, VectorError};
pub use tsunami::TsunamiConfig;
pub use udt::UdtConfig;

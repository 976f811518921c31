//! Probes see packets and decide nothing.
//!
//! The engine is generic over [`Probe`]; with [`Silent`] every hook compiles to nothing. One probe a
//! file: [`Measure`] (samples and truth by window), [`Ports`] (counters and queue lengths at fixed
//! instants), [`Carried`] (what single packets carry); [`Several`] joins those asked for.

mod carried;
mod hooks;
mod input;
mod measure;
mod ports;
mod readings;
mod sampled;
mod several;
mod truth;

pub use crate::settings::{Carry, HeaderScheme, Probes};
pub use carried::{Carried, Record};
pub use hooks::{Arrival, Hop, Probe, Sent, Silent, Slot};
pub use measure::Measure;
pub use ports::Ports;
pub use readings::{Counted, Queued};
pub use sampled::{Reading, Row, Rows};
pub(crate) use several::Part;
pub use several::{Probed, Several};
pub use truth::Truths;

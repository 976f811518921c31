//! Simulated time: the event queue and its parts.

pub(crate) mod epoch;
pub mod queue;
pub(crate) mod ring;

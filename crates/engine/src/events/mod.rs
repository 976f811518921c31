//! Simulated time: the event queue and what it is made of.

pub(crate) mod epoch;
pub mod queue;
pub(crate) mod ring;

//! Switches: forwarding, arbitration, virtual circuits.

pub(crate) mod arbiter;
mod congestion;
pub(crate) mod forwarding;
pub(crate) mod virtual_circuits;

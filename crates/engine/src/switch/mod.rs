//! Switches: forwarding, arbitration, virtual circuits, congestion control.

pub(crate) mod arbiter;
mod arbitration;
mod congestion;
mod forwarding;
pub(crate) mod route;
pub(crate) mod virtual_circuits;

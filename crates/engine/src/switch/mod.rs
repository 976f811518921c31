//! Switches: choice of output, forwarding, arbitration, virtual circuits, congestion control.

pub(crate) mod adaptive;
pub(crate) mod arbiter;
mod arbitration;
mod choice;
mod congestion;
mod forwarding;
pub(crate) mod route;
pub(crate) mod virtual_circuits;

//! Switches: choice of output, forwarding, arbitration, virtual circuits, congestion control,
//! and pauses.

mod adaptive;
pub(crate) mod adaptive_choices;
pub(crate) mod arbiter;
mod arbitration;
mod choice;
mod congestion;
mod forwarding;
mod pause;
pub(crate) mod route;
pub(crate) mod virtual_circuits;

//! The physics of the engine, against closed forms, and its properties.
//!
//! One program for all of them: the engine is generic in its probes, and each program of its own
//! compiles it anew.

mod common;

mod arbitration;
mod congestion;
mod congestion_parameters;
mod dcqcn;
mod limits;
mod pauses;
mod physics;
mod physics_choice;
mod physics_completion;
mod physics_costs;
mod physics_order;
mod physics_rates;
mod physics_saturation;
mod physics_shares;
mod probes;
mod properties;
mod properties_fabrics;
mod threads;

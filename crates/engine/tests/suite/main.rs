//! The physics of the engine, compared with closed forms, and its properties.
//!
//! All tests are one program: the engine is generic over its probes, and every test program
//! compiles it again.

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

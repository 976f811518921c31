//! `tailback._core`: converts arguments and results, raises exceptions, releases the GIL. No logic.

mod capture;
mod dumpi;
mod errors;
mod fluid;
mod network;
mod placement;
mod program;
mod readers;
mod run;
mod settings;
mod table;
mod telemetry;
mod topologies;
mod trace;

use pyo3::prelude::*;

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<network::Network>()?;
    m.add_function(wrap_pyfunction!(network::fat_tree, m)?)?;
    m.add_function(wrap_pyfunction!(program::receive_labels, m)?)?;
    m.add_class::<run::PacketOutcome>()?;
    m.add_function(wrap_pyfunction!(run::simulate, m)?)?;
    capture::register(m)?;
    dumpi::register(m)?;
    errors::register(m)?;
    fluid::register(m)?;
    placement::register(m)?;
    readers::register(m)?;
    telemetry::register(m)?;
    topologies::register(m)?;
    trace::register(m)
}

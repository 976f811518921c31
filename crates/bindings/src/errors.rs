//! Errors of the crates as Python exceptions, distinguished by type rather than by message.

use std::any::Any;
use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tailback_engine::EngineError;
use tailback_fabric::FabricError;
use tailback_fluid::FluidError;
use tailback_program::ProgramError;

create_exception!(
    tailback._core,
    UnconnectedError,
    PyValueError,
    "There is no path between two places; `ends` has their kind, switch or node, and numbers."
);
create_exception!(
    tailback._core,
    DeadlockError,
    PyValueError,
    "Buffers wait, or could wait, for each other in a cycle."
);
create_exception!(
    tailback._core,
    BadProgramError,
    PyValueError,
    "An operation that cannot be, sends without receives, or ranks that wait for ever."
);

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("UnconnectedError", py.get_type::<UnconnectedError>())?;
    m.add("DeadlockError", py.get_type::<DeadlockError>())?;
    m.add("BadProgramError", py.get_type::<BadProgramError>())
}

/// The exception for an error of any crate: of one of the classes above, else a `ValueError`.
pub(crate) fn raise(error: impl Display + Any) -> PyErr {
    let text = error.to_string();
    let error: &dyn Any = &error;
    if let Some(error) = error.downcast_ref::<EngineError>() {
        return match error {
            EngineError::Fabric(inner) => of_fabric(inner, text),
            EngineError::Program(inner) => of_program(inner, text),
            EngineError::Deadlock { .. } => DeadlockError::new_err(text),
            _ => PyValueError::new_err(text),
        };
    }
    if let Some(error) = error.downcast_ref::<FluidError>() {
        return match error {
            FluidError::Unconnected { from, to } => unconnected(text, "node", *from, *to),
            FluidError::Program(inner) => of_program(inner, text),
            _ => PyValueError::new_err(text),
        };
    }
    if let Some(error) = error.downcast_ref::<FabricError>() {
        return of_fabric(error, text);
    }
    if let Some(error) = error.downcast_ref::<ProgramError>() {
        return of_program(error, text);
    }
    PyValueError::new_err(text)
}

fn of_fabric(error: &FabricError, text: String) -> PyErr {
    match error {
        FabricError::Unconnected { from, to } => unconnected(text, "switch", *from, *to),
        FabricError::Deadlock { .. } => DeadlockError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

fn of_program(error: &ProgramError, text: String) -> PyErr {
    match error {
        ProgramError::Operation { .. }
        | ProgramError::Unmatched { .. }
        | ProgramError::Stuck { .. } => BadProgramError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

fn unconnected(text: String, kind: &str, from: u32, to: u32) -> PyErr {
    let made = UnconnectedError::new_err(text);
    Python::attach(|py| match made.value(py).setattr("ends", (kind, from, to)) {
        Ok(()) => made,
        Err(problem) => problem,
    })
}

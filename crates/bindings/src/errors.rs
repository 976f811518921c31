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
    "There is no path between two vertices; `ends` has their kind, switch or node, and numbers."
);
create_exception!(
    tailback._core,
    DeadlockError,
    PyValueError,
    "Buffers wait, or could wait, for each other in a cycle; `cycle` has link and lane of each, `message` \
     the text without them."
);
create_exception!(
    tailback._core,
    BadProgramError,
    PyValueError,
    "An invalid operation, sends without receives, or ranks that wait forever."
);
create_exception!(
    tailback._core,
    EngineInputError,
    PyValueError,
    "A value that the engine cannot run with: `message` and `remedy`; `place` in the scenario, or the \
     `link` concerned, where there is one."
);

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("UnconnectedError", py.get_type::<UnconnectedError>())?;
    m.add("DeadlockError", py.get_type::<DeadlockError>())?;
    m.add("EngineInputError", py.get_type::<EngineInputError>())?;
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
            EngineError::Deadlock { cycle, .. } => deadlock(text, error.message(), cycle),
            _ => engine_input(error, text),
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
        FabricError::Deadlock { cycle } => deadlock(text, "the routes can deadlock".into(), cycle),
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
    with_attributes(UnconnectedError::new_err(text), |raised| {
        raised.setattr("ends", (kind, from, to))
    })
}

fn deadlock(text: String, message: String, cycle: &[(u32, u8)]) -> PyErr {
    with_attributes(DeadlockError::new_err(text), |raised| {
        raised.setattr("message", message)?;
        raised.setattr("cycle", cycle.to_vec())
    })
}

/// The exception for a setting, a count, a time or a link that the engine refuses.
fn engine_input(error: &EngineError, text: String) -> PyErr {
    with_attributes(EngineInputError::new_err(text), |raised| {
        let (place, link) = match error {
            EngineError::Setting { section, key, .. } => (Some(format!("[{section}] {key}")), None),
            EngineError::Link { link, .. } => (None, Some(*link)),
            _ => (None, None),
        };
        raised.setattr("place", place)?;
        raised.setattr("link", link)?;
        raised.setattr("message", error.message())?;
        raised.setattr("remedy", error.remedy())
    })
}

/// The exception with the attributes that `set` gives it.
fn with_attributes(exception: PyErr, set: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) -> PyErr {
    Python::attach(|py| match set(exception.value(py)) {
        Ok(()) => exception,
        Err(problem) => problem,
    })
}

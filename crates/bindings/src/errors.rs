//! Errors of the crates as Python exceptions, distinguished by type rather than by message.

use std::any::Any;
use std::fmt::Display;

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tailback_engine::EngineError;
use tailback_fabric::{FabricError, MessagePart, cycle_message};
use tailback_fluid::FluidError;
use tailback_program::{ProgramError, time_text};

create_exception!(
    tailback._core,
    UnconnectedError,
    PyValueError,
    "There is no path between two switches or nodes; `ends` are their kind and their numbers."
);
create_exception!(
    tailback._core,
    BadFabricError,
    PyValueError,
    "A fabric that is inconsistent or cannot be routed; `parts` are its message: texts, and kind and \
     number of each node, switch and link in it."
);
create_exception!(
    tailback._core,
    DeadlockError,
    BadFabricError,
    "Buffers wait, or could wait, for each other in a cycle."
);
create_exception!(
    tailback._core,
    BadProgramError,
    PyValueError,
    "An invalid operation, sends and receives that do not match, or ranks that wait forever."
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
    m.add("BadFabricError", py.get_type::<BadFabricError>())?;
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
            EngineError::Deadlock { time_ps, cycle } => {
                let problem = format!("the network is deadlocked at {}", time_text(*time_ps));
                with_parts(DeadlockError::new_err(text), &cycle_message(&problem, cycle))
            }
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
        FabricError::Deadlock { .. } | FabricError::TooFewLanes { .. } => {
            with_parts(DeadlockError::new_err(text), &error.message())
        }
        // These concern sizes and parameters, not places in a fabric.
        FabricError::Length { .. }
        | FabricError::OutOfMemory { .. }
        | FabricError::Parameter { .. } => PyValueError::new_err(text),
        _ => with_parts(BadFabricError::new_err(text), &error.message()),
    }
}

/// The same exception with the attribute `parts`: texts, and `(kind, number)` of places.
fn with_parts(made: PyErr, message: &[MessagePart]) -> PyErr {
    Python::attach(|py| {
        let parts = PyList::empty(py);
        let added = message.iter().try_for_each(|part| match part {
            MessagePart::Text(text) => parts.append(text),
            MessagePart::Node(node) => parts.append(("node", node)),
            MessagePart::Switch(switch) => parts.append(("switch", switch)),
            MessagePart::Link(link) => parts.append(("link", link)),
        });
        match added.and_then(|()| made.value(py).setattr("parts", parts)) {
            Ok(()) => made,
            Err(problem) => problem,
        }
    })
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

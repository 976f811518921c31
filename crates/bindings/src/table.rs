//! Dictionaries of arrays.

use numpy::IntoPyArray;
use pyo3::prelude::*;
use tailback_telemetry::Column;

/// A column as an array of the same width.
pub(crate) fn array(py: Python<'_>, column: Column) -> Bound<'_, PyAny> {
    match column {
        Column::U8(numbers) => numbers.into_pyarray(py).into_any(),
        Column::U16(numbers) => numbers.into_pyarray(py).into_any(),
        Column::U32(numbers) => numbers.into_pyarray(py).into_any(),
        Column::U64(numbers) => numbers.into_pyarray(py).into_any(),
    }
}

/// Vectors of a structure as a dictionary of arrays, each under the name of its field.
macro_rules! columns {
    ($py:expr, $from:expr; $($field:ident),+) => {{
        let table = pyo3::types::PyDict::new($py);
        $(table.set_item(stringify!($field), numpy::IntoPyArray::into_pyarray($from.$field, $py))?;)+
        table
    }};
}

/// Columns of a structure as a dictionary of arrays, each under the name of its field and as narrow as
/// its numbers are.
macro_rules! numbers {
    ($py:expr, $from:expr; $($field:ident),+) => {{
        let table = pyo3::types::PyDict::new($py);
        $(
            table.set_item(stringify!($field), $crate::table::array($py, $from.$field))?;
        )+
        table
    }};
}

/// Fields of a slice of rows as a dictionary of arrays, each under the name of its field.
macro_rules! rows {
    ($py:expr, $rows:expr; $($field:ident),+) => {{
        let table = pyo3::types::PyDict::new($py);
        $(
            let column = numpy::PyArray1::from_iter($py, $rows.iter().map(|row| row.$field));
            table.set_item(stringify!($field), column)?;
        )+
        table
    }};
}

pub(crate) use {columns, numbers, rows};

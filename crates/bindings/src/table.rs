//! Dictionaries of arrays.

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
            match $from.$field {
                Column::U16(numbers) => table.set_item(stringify!($field), numbers.into_pyarray($py))?,
                Column::U32(numbers) => table.set_item(stringify!($field), numbers.into_pyarray($py))?,
                Column::U64(numbers) => table.set_item(stringify!($field), numbers.into_pyarray($py))?,
            }
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

//! Settings: reads a Python dataclass into the structure with the same fields.

use std::fmt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::Deserialize;
use serde::de::value::SeqDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Reads `settings`, a dataclass whose fields are numbers, texts, lists and dataclasses. A field that
/// is None counts as absent.
pub(crate) fn settings_of<'py, T: Deserialize<'py>>(settings: &Bound<'py, PyAny>) -> PyResult<T> {
    T::deserialize(PyValue(settings.clone()))
        .map_err(|problem| PyValueError::new_err(problem.to_string()))
}

/// Why a value is invalid, and its field: `adaptive.gap_ps`.
#[derive(Debug)]
struct Problem {
    field: String,
    what: String,
}

impl Problem {
    fn new(what: String) -> Self {
        Self { field: String::new(), what }
    }

    /// The same problem of a value within the field `name`.
    fn within(mut self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        self.field = format!("{name}{dot}{}", self.field);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

impl From<PyErr> for Problem {
    fn from(error: PyErr) -> Self {
        Self::new(error.to_string())
    }
}

/// A Python value.
struct PyValue<'py>(Bound<'py, PyAny>);

impl<'py> IntoDeserializer<'py, Problem> for PyValue<'py> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'py> Deserializer<'py> for PyValue<'py> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'py>>(self, visitor: V) -> Result<V::Value, Problem> {
        let Self(value) = self;
        if value.is_none() {
            return visitor.visit_unit();
        }
        if value.is_instance_of::<PyBool>() {
            return visitor.visit_bool(value.extract()?);
        }
        if value.is_instance_of::<PyInt>() {
            return visitor.visit_u64(value.extract()?);
        }
        if value.is_instance_of::<PyFloat>() {
            return visitor.visit_f64(value.extract()?);
        }
        if value.is_instance_of::<PyString>() {
            return visitor.visit_string(value.extract()?);
        }
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            let items =
                value.try_iter()?.map(|item| item.map(PyValue)).collect::<PyResult<Vec<_>>>()?;
            return visitor.visit_seq(SeqDeserializer::new(items.into_iter()));
        }
        visitor.visit_map(Fields::of(&value)?)
    }

    fn deserialize_option<V: Visitor<'py>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.0.is_none() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'py>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        visitor.visit_enum(self.0.extract::<String>()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        <W: Visitor<'py>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The fields of a dataclass that are not None, and those that are still to be read.
struct Fields<'py> {
    remaining: std::vec::IntoIter<(String, Bound<'py, PyAny>)>,
    field: Option<(String, Bound<'py, PyAny>)>,
}

impl<'py> Fields<'py> {
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let fields = object.getattr("__dataclass_fields__")?.cast_into::<PyDict>()?;
        let mut remaining = Vec::with_capacity(fields.len());
        for name in fields.keys() {
            let name: String = name.extract()?;
            let value = object.getattr(name.as_str())?;
            if !value.is_none() {
                remaining.push((name, value));
            }
        }
        Ok(Self { remaining: remaining.into_iter(), field: None })
    }
}

impl<'py> MapAccess<'py> for Fields<'py> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'py>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Problem> {
        let Some((name, value)) = self.remaining.next() else { return Ok(None) };
        let key = seed.deserialize(name.as_str().into_deserializer()).map(Some);
        self.field = Some((name, value));
        key
    }

    fn next_value_seed<V: DeserializeSeed<'py>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let field = self.field.take();
        let (name, value) =
            field.ok_or_else(|| Problem::new("a value without a field name".to_owned()))?;
        seed.deserialize(PyValue(value)).map_err(|problem| problem.within(&name))
    }
}

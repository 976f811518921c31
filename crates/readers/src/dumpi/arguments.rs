//! Arguments of one call, by name.

use std::ops::Range;

/// What is wrong with a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// An argument that is missing or has the wrong type.
    MissingArgument(&'static str),
    /// An invalid value, with an explanation.
    Invalid(String),
}

macro_rules! fields {
    ($($field:ident $name:literal),+ $(,)?) => {
        /// The arguments that are read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Field { $($field),+ }

        const FIELDS: &[(Field, &str)] = &[$((Field::$field, $name)),+];
    };
}

fields! {
    Count "count", Datatype "datatype", Dest "dest", Source "source", Tag "tag", Comm "comm",
    Request "request", Requests "requests", Status "status", Statuses "statuses", Flag "flag",
    Index "index", Indices "indices", Sendcount "sendcount", Sendtype "sendtype",
    Sendtag "sendtag", Recvcount "recvcount", Recvtype "recvtype", Recvtag "recvtag",
    Sendcounts "sendcounts", Sendtypes "sendtypes", Recvcounts "recvcounts",
    Recvtypes "recvtypes", Root "root", Commrank "commrank", Oldcomm "oldcomm",
    Newcomm "newcomm", Color "color", Key "key", Group "group", Newgroup "newgroup",
    Ranks "ranks", Dims "dims", RemainDims "remain_dims", Size "size",
}

impl Field {
    pub fn named(name: &[u8]) -> Option<Self> {
        FIELDS.iter().find(|(_, field_name)| field_name.as_bytes() == name).map(|&(field, _)| field)
    }

    fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }
}

/// Arguments of a call; the memory is reused for the next call.
pub(super) struct Arguments {
    present: u64,
    values: [Value; FIELDS.len()],
    numbers: Vec<i64>,
}

enum Value {
    None,
    One(i64),
    /// Range of `numbers`.
    Many(Range<usize>),
    /// Range of `numbers` with source and tag of each status.
    Statuses(Range<usize>),
}

impl Default for Arguments {
    fn default() -> Self {
        Self { present: 0, values: [const { Value::None }; FIELDS.len()], numbers: Vec::new() }
    }
}

impl Arguments {
    pub fn clear(&mut self) {
        self.present = 0;
        self.numbers.clear();
    }

    pub fn set(&mut self, field: Field, value: i64) {
        self.put(field, Value::One(value));
    }

    pub fn set_many(&mut self, field: Field, values: impl Iterator<Item = i64>) {
        let first = self.numbers.len();
        self.numbers.extend(values);
        self.put(field, Value::Many(first..self.numbers.len()));
    }

    pub fn set_statuses(&mut self, field: Field, values: impl Iterator<Item = (i64, i64)>) {
        let first = self.numbers.len();
        self.numbers.extend(values.flat_map(|(source, tag)| [source, tag]));
        self.put(field, Value::Statuses(first..self.numbers.len()));
    }

    #[inline]
    fn put(&mut self, field: Field, value: Value) {
        self.present |= 1 << field as u8;
        self.values[field as usize] = value;
    }

    #[inline]
    fn value(&self, field: Field) -> &Value {
        if self.has(field) { &self.values[field as usize] } else { &Value::None }
    }

    #[inline]
    pub fn has(&self, field: Field) -> bool {
        self.present >> field as u8 & 1 == 1
    }

    /// A number.
    #[inline]
    pub fn one(&self, field: Field) -> Result<i64, CallError> {
        match self.value(field) {
            &Value::One(value) => Ok(value),
            _ => Err(CallError::MissingArgument(field.name())),
        }
    }

    /// A number, if it is present.
    pub fn maybe(&self, field: Field) -> Option<i64> {
        self.one(field).ok()
    }

    /// A number, or the first of several.
    pub fn first(&self, field: Field) -> Result<i64, CallError> {
        match self.value(field) {
            Value::Many(at) if !at.is_empty() => Ok(self.numbers[at.start]),
            _ => self.one(field),
        }
    }

    /// Several numbers.
    pub fn many(&self, field: Field) -> Result<&[i64], CallError> {
        match self.value(field) {
            Value::Many(at) => Ok(&self.numbers[at.clone()]),
            _ => Err(CallError::MissingArgument(field.name())),
        }
    }

    /// Whether a flag is set.
    pub fn flag(&self) -> Result<bool, CallError> {
        match self.value(Field::Flag) {
            Value::None => Err(CallError::MissingArgument(Field::Flag.name())),
            Value::One(value) => Ok(*value != 0),
            Value::Many(at) | Value::Statuses(at) => Ok(!at.is_empty()),
        }
    }

    /// Source and tag of a status, if they are recorded.
    pub fn status(&self, field: Field, number: usize) -> Result<Option<(i64, i64)>, CallError> {
        match self.value(field) {
            Value::Statuses(at) if number < at.len() / 2 => {
                let first = at.start + 2 * number;
                Ok(Some((self.numbers[first], self.numbers[first + 1])))
            }
            Value::Many(at) if number < at.len() => Err(CallError::MissingArgument(field.name())),
            _ => Ok(None),
        }
    }
}

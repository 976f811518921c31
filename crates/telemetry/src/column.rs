//! A column of a table.

/// Unsigned integers, each in as few bytes as the largest needs: most numbers are small, and this
/// saves memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Column {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl Default for Column {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Column {
    /// An empty column with capacity for `numbers`.
    pub fn with_capacity(numbers: usize) -> Self {
        Self::U8(Vec::with_capacity(numbers))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(numbers) => numbers.len(),
            Self::U16(numbers) => numbers.len(),
            Self::U32(numbers) => numbers.len(),
            Self::U64(numbers) => numbers.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number at `place`.
    ///
    /// # Panics
    /// If `place` is out of range.
    pub fn at(&self, place: usize) -> u64 {
        match self {
            Self::U8(numbers) => numbers[place].into(),
            Self::U16(numbers) => numbers[place].into(),
            Self::U32(numbers) => numbers[place].into(),
            Self::U64(numbers) => numbers[place],
        }
    }

    /// All numbers.
    pub fn iter(&self) -> impl Iterator<Item = u64> + Clone {
        (0..self.len()).map(|place| self.at(place))
    }

    /// Appends numbers.
    pub fn extend(&mut self, numbers: impl Iterator<Item = u64> + Clone) {
        // The union of the bits of all numbers, which determines the width.
        let mut bits = 0;
        let before = self.len();
        let mut seen = |number| {
            bits |= number;
            number
        };
        match self {
            Self::U8(column) => column.extend(numbers.clone().map(|number| seen(number) as u8)),
            Self::U16(column) => column.extend(numbers.clone().map(|number| seen(number) as u16)),
            Self::U32(column) => column.extend(numbers.clone().map(|number| seen(number) as u32)),
            Self::U64(column) => column.extend(numbers.clone()),
        }
        match self {
            Self::U8(column) if bits > u8::MAX.into() => {
                *self = Self::U16(widened(&column[..before], column.capacity()));
                self.extend(numbers);
            }
            Self::U16(column) if bits > u16::MAX.into() => {
                *self = Self::U32(widened(&column[..before], column.capacity()));
                self.extend(numbers);
            }
            Self::U32(column) if bits > u32::MAX.into() => {
                *self = Self::U64(widened(&column[..before], column.capacity()));
                self.extend(numbers);
            }
            _ => {}
        }
    }

    /// Appends a column.
    pub fn append(&mut self, mut other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        match (self, &mut other) {
            (Self::U8(column), Self::U8(numbers)) => column.append(numbers),
            (Self::U16(column), Self::U16(numbers)) => column.append(numbers),
            (Self::U32(column), Self::U32(numbers)) => column.append(numbers),
            (Self::U64(column), Self::U64(numbers)) => column.append(numbers),
            (column, Self::U8(numbers)) => column.extend(numbers.iter().map(|&n| n.into())),
            (column, Self::U16(numbers)) => column.extend(numbers.iter().map(|&n| n.into())),
            (column, Self::U32(numbers)) => column.extend(numbers.iter().map(|&n| n.into())),
            (column, Self::U64(numbers)) => column.extend(numbers.iter().copied()),
        }
    }
}

fn widened<A: Copy, B: From<A>>(numbers: &[A], capacity: usize) -> Vec<B> {
    let mut wide = Vec::with_capacity(capacity);
    wide.extend(numbers.iter().map(|&number| B::from(number)));
    wide
}

/// A table of named columns of equal length.
#[macro_export]
macro_rules! table {
    ($(#[$about:meta])* $name:ident: $($column:ident),+ $(,)?) => {
        $(#[$about])*
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct $name {
            $(pub $column: $crate::Column,)+
        }

        impl $name {
            fn with_capacity(rows: usize) -> Self {
                Self { $($column: $crate::Column::with_capacity(rows),)+ }
            }

            /// Appends other tables.
            fn append(mut self, others: impl Iterator<Item = Self>) -> Self {
                for other in others {
                    $(self.$column.append(other.$column);)+
                }
                self
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_largest_number() {
        let limits = [
            0,
            u8::MAX.into(),
            1 << 8,
            u16::MAX.into(),
            1 << 16,
            u32::MAX.into(),
            1 << 32,
            u64::MAX,
        ];
        let width = |column: &Column| match column {
            Column::U8(_) => 8,
            Column::U16(_) => 16,
            Column::U32(_) => 32,
            Column::U64(_) => 64,
        };
        for (n, bits) in [(0, 8), (2, 8), (3, 16), (4, 16), (5, 32), (6, 32), (7, 64), (8, 64)] {
            let of = |numbers: &[u64]| {
                let mut column = Column::default();
                column.extend(numbers.iter().copied());
                column
            };
            let (mut first, second) = (of(&limits[..n / 2]), of(&limits[n / 2..n]));
            first.append(second);
            let mut column = of(&limits[..n / 2]);
            column.extend(limits[n / 2..n].iter().copied());
            assert_eq!((width(&column), column.len()), (bits, n));
            assert!(column.iter().eq(limits[..n].iter().copied()));
            assert_eq!(first, column);
        }
    }
}

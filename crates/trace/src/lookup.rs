//! Lookups by numbers that a trace chooses: fast where these are small, or few at a time.

use std::collections::HashMap;

/// Values by id; ids from 0 on need no hashing.
#[derive(Debug)]
pub(crate) struct ById<T> {
    small: Vec<Option<T>>,
    others: HashMap<u32, T>,
}

impl<T: Copy> ById<T> {
    /// Ids below this have a table.
    const SMALL: u32 = 1 << 16;

    pub fn new(values: &HashMap<u32, T>) -> Self {
        let mut out = Self { small: Vec::new(), others: HashMap::new() };
        for (&id, &value) in values {
            if id >= Self::SMALL {
                out.others.insert(id, value);
                continue;
            }
            let at = id as usize;
            if at >= out.small.len() {
                out.small.resize(at + 1, None);
            }
            out.small[at] = Some(value);
        }
        out
    }

    #[inline]
    pub fn get(&self, id: u32) -> Option<T> {
        match self.small.get(id as usize) {
            Some(&row) => row,
            None => self.others.get(&id).copied(),
        }
    }
}

/// What open requests or messages refer to, by id; few of them need no hashing.
#[derive(Debug)]
pub(crate) struct OpenIds<T> {
    few: Vec<(u64, T)>,
    others: HashMap<u64, T>,
}

impl<T> Default for OpenIds<T> {
    fn default() -> Self {
        Self { few: Vec::new(), others: HashMap::new() }
    }
}

impl<T: Copy> OpenIds<T> {
    const FEW: usize = 16;

    #[inline]
    fn place(&self, id: u64) -> Option<usize> {
        self.few.iter().rposition(|entry| entry.0 == id)
    }

    /// Opens an id and returns its previous value, if it was open.
    #[inline]
    pub fn insert(&mut self, id: u64, what: T) -> Option<T> {
        if let Some(at) = self.place(id) {
            Some(std::mem::replace(&mut self.few[at].1, what))
        } else if self.few.len() < Self::FEW && !self.others.contains_key(&id) {
            self.few.push((id, what));
            None
        } else {
            self.others.insert(id, what)
        }
    }

    pub fn get(&self, id: u64) -> Option<T> {
        self.place(id).map(|at| self.few[at].1).or_else(|| self.others.get(&id).copied())
    }

    /// Closes an id and returns what it referred to.
    #[inline]
    pub fn remove(&mut self, id: u64) -> Option<T> {
        match self.place(id) {
            Some(at) => Some(self.few.swap_remove(at).1),
            None if self.others.is_empty() => None,
            None => self.others.remove(&id),
        }
    }

    /// Whether no id is open.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty() && self.others.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{ById, OpenIds};
    use std::collections::HashMap;

    #[test]
    fn lookups_find_ids_of_any_size() {
        let values = HashMap::from([(0, 'a'), (9, 'b'), (u32::MAX, 'c'), (1 << 16, 'd')]);
        let table = ById::new(&values);
        for (&id, &value) in &values {
            assert_eq!(table.get(id), Some(value));
        }
        assert_eq!([5, 10, 70_000].map(|id| table.get(id)), [None; 3]);
    }

    #[test]
    fn lookups_return_the_latest_insertion() {
        let mut open = OpenIds::default();
        let mut expected = HashMap::new();
        // 61 ids in an order that opens and closes each several times.
        for step in 0..2000u64 {
            let id = 7 * step % 61;
            if step % 3 == 2 {
                assert_eq!(open.remove(id), expected.remove(&id), "step {step}");
            } else {
                let before = open.insert(id, step as u32);
                assert_eq!(before, expected.insert(id, step as u32), "step {step}");
            }
            assert_eq!(open.get(id), expected.get(&id).copied(), "step {step}");
        }
        assert!(!open.is_empty() && expected.len() > OpenIds::<u32>::FEW);
    }
}

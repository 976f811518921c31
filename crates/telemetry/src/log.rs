//! An append-only log that is written once and read once.

/// Items in chunks that are never copied. Appending writes only to new memory, and joining two logs
/// moves their chunks.
#[derive(Debug, Clone)]
pub struct Log<T> {
    open: Vec<T>,
    full: Vec<Vec<T>>,
    /// Items in full chunks.
    before: usize,
}

/// Bytes of a full-size chunk; the first ones are smaller, each twice as large as the one before.
const CHUNK_BYTES: usize = 1 << 14;

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { open: Vec::new(), full: Vec::new(), before: 0 }
    }
}

impl<T: Copy> Log<T> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.before + self.open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends an item.
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.open.len() == self.open.capacity() {
            self.start_chunk();
        }
        self.open.push(item);
    }

    /// Appends the first `kept` items without a branch on `kept`; returns whether a new chunk was
    /// begun.
    #[inline]
    pub(crate) fn push_first<const N: usize>(&mut self, kept: usize, items: [T; N]) -> bool {
        let needs_chunk = self.open.capacity() - self.open.len() < N;
        if needs_chunk {
            self.start_chunk();
        }
        self.open.extend_from_slice(&items);
        self.open.truncate(self.open.len() + kept - N);
        needs_chunk
    }

    #[cold]
    fn start_chunk(&mut self) {
        let most = CHUNK_BYTES / size_of::<T>().max(1);
        let capacity = self.len().clamp(8, most.max(8));
        self.close_chunk();
        self.open.reserve_exact(capacity);
    }

    fn close_chunk(&mut self) {
        let chunk = std::mem::take(&mut self.open);
        if !chunk.is_empty() {
            self.before += chunk.len();
            self.full.push(chunk);
        }
    }

    /// Appends all items of another log.
    pub fn append(&mut self, mut other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.close_chunk();
        self.before += other.before;
        self.full.append(&mut other.full);
        self.open = other.open;
    }

    /// Calls `each` for all items, chunk by chunk, and frees their memory.
    pub fn drain(&mut self, mut each: impl FnMut(&[T])) {
        self.close_chunk();
        self.before = 0;
        for chunk in std::mem::take(&mut self.full) {
            each(&chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order() {
        let (mut first, mut second) = (Log::default(), Log::default());
        (0..5000u64).for_each(|item| first.push(item));
        (5000..5003).for_each(|item| second.push(item));
        first.append(second);
        first.append(Log::default());
        (5003..9000).for_each(|item| first.push(item));
        assert_eq!((first.len(), first.is_empty()), (9000, false));
        let mut all = Vec::new();
        first.drain(|chunk| all.extend_from_slice(chunk));
        assert!(all.into_iter().eq(0..9000));
        assert!(first.is_empty());
    }

    #[test]
    fn only_the_first_items_are_kept() {
        let (mut log, mut all, mut expected) = (Log::default(), Vec::new(), Vec::new());
        for kept in (0..5000).map(|at| at % 3) {
            log.push_first(kept, [kept, kept + 1]);
            expected.extend((kept..kept + 2).take(kept));
        }
        assert_eq!(log.len(), expected.len());
        log.drain(|chunk| all.extend_from_slice(chunk));
        assert_eq!(all, expected);
    }
}

//! A buffered reader whose next bytes can be inspected before they are consumed.

use std::io::{self, Read};

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// A reader and its buffered bytes: at most one chunk and one record.
#[derive(Debug)]
pub(crate) struct Input<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), start: 0, end: 0, offset: 0 }
    }

    /// Offset in the file of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `n` bytes, or all that are left if there are fewer.
    ///
    /// # Errors
    /// The reader's.
    #[inline]
    pub(crate) fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.end - self.start < n {
            self.fill(n)?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + n)])
    }

    #[cold]
    fn fill(&mut self, n: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() < n + CHUNK {
            self.buffer.resize(n + CHUNK, 0);
        }
        while self.end < n {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Consumes `n` inspected bytes.
    #[inline]
    pub(crate) fn skip(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }
}

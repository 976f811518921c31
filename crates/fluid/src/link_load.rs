//! Load of links by time window.

/// Binary logarithm of the shortest window in picoseconds, as in the packet engine.
const FIRST_SHIFT: u32 = 16;

/// Bits by link and window. Windows double in length as the run goes on: there are at least `target` and
/// at most twice as many.
#[derive(Debug)]
pub(crate) struct WindowedLoad {
    target: u32,
    shift: u32,
    /// Row of each link, `u32::MAX` before its first use.
    row: Vec<u32>,
    /// Bits of each row and window.
    bits: Vec<f64>,
}

impl WindowedLoad {
    pub fn new(links: usize, target: u32) -> Self {
        let target = target.max(1);
        Self { target, shift: FIRST_SHIFT, row: vec![u32::MAX; links], bits: Vec::new() }
    }

    fn width(&self) -> usize {
        2 * self.target as usize
    }

    /// Adds `bits` that crossed `link` evenly from `from` to `to`.
    pub fn add(&mut self, link: u32, from: u64, to: u64, bits: f64) {
        let end = to.max(from + 1);
        while (end - 1) >> self.shift >= self.width() as u64 {
            self.double();
        }
        let row = &mut self.row[link as usize];
        if *row == u32::MAX {
            *row = (self.bits.len() / (2 * self.target as usize)) as u32;
            self.bits.resize(self.bits.len() + 2 * self.target as usize, 0.0);
        }
        let first = *row as usize * self.width();
        let each = bits / (end - from) as f64;
        let mut at = from;
        while at < end {
            let window = at >> self.shift;
            let until = end.min((window << self.shift).saturating_add(self.window_ps()));
            self.bits[first + window as usize] += each * (until - at) as f64;
            at = until;
        }
    }

    fn double(&mut self) {
        self.shift += 1;
        let width = self.width();
        for row in self.bits.chunks_mut(width) {
            for window in 0..width / 2 {
                row[window] = row[2 * window] + row[2 * window + 1];
            }
            row[width / 2..].fill(0.0);
        }
    }

    /// Length of a window.
    pub fn window_ps(&self) -> u64 {
        1 << self.shift
    }

    /// Bits of `link` by window; empty if it was never used.
    pub fn of(&self, link: u32) -> &[f64] {
        match self.row[link as usize] {
            u32::MAX => &[],
            row => &self.bits[row as usize * self.width()..(row as usize + 1) * self.width()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_up_to_the_last_time_end() {
        let mut link_load = WindowedLoad::new(1, 4);
        link_load.add(0, 7, u64::MAX, 8.0);
        assert!((link_load.of(0).iter().sum::<f64>() - 8.0).abs() < 1e-9);
    }

    #[test]
    fn windows_double_and_lose_nothing() {
        let mut link_load = WindowedLoad::new(3, 4);
        for step in 0..1000u64 {
            link_load.add(1, step * 50_000, (step + 1) * 50_000, 8.0);
        }
        let bits = link_load.of(1);
        assert!(link_load.of(0).is_empty());
        assert!((bits.iter().sum::<f64>() - 8000.0).abs() < 1e-6);
        let used = bits.iter().filter(|&&b| b > 0.0).count();
        assert!((4..=8).contains(&used), "{used} windows of {} ps", link_load.window_ps());
        // A steady flow fills whole windows alike.
        assert!((bits[0] - bits[1]).abs() < 1e-6 * bits[0]);
    }
}

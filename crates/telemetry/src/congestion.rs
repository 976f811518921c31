//! Congestion level of a port, for scheme worst-hop (Taffet 2019, §5.10).

/// Level from 0 to 255 in proportion to the queue; at least 1 unless the queue is empty.
#[inline]
pub fn level(queue: u64, full: u64) -> u8 {
    let scaled = u128::from(queue) * 255 / u128::from(full.max(1));
    scaled.min(255).max(u128::from(queue > 0)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels() {
        assert_eq!(
            [level(0, 100), level(1, 1000), level(50, 100), level(900, 100)],
            [0, 1, 127, 255]
        );
    }
}

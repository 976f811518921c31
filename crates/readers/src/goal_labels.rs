//! Labels of operations within a block of a GOAL schedule.

use crate::numbering::Map;

/// A label in a line. Most are a word and a number, like `l12`, and need no hashing.
pub(crate) struct BlockLabel<'a> {
    pub text: &'a [u8],
    /// The word in eight bytes, and the number; `None` for other labels.
    short: Option<(u64, usize)>,
}

impl<'a> BlockLabel<'a> {
    /// Most digits of the number.
    const DIGITS: usize = 9;

    /// Splits a label from the beginning of a text.
    #[inline(always)]
    pub fn split(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        if !text.first()?.is_ascii_alphabetic() {
            return None;
        }
        let (mut word, mut at) = (0u64, 0);
        while let Some(&byte) = text.get(at).filter(|byte| is_letter(**byte)) {
            word = word << 8 | u64::from(byte);
            at += 1;
        }
        let letters = at;
        let mut number = 0usize;
        while let Some(digit) = text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&d| d < 10)
        {
            number = number.wrapping_mul(10).wrapping_add(digit.into());
            at += 1;
        }
        let digits = at - letters;
        let suffix = text[at..].iter().position(|&byte| !is_letter(byte) && !byte.is_ascii_digit());
        let end = suffix.map_or(text.len(), |more| at + more);
        let zeros = digits > 1 && text[letters] == b'0';
        let short = end == at && letters <= 8 && (1..=Self::DIGITS).contains(&digits) && !zeros;
        let (text, tail) = text.split_at(end);
        Some((Self { text, short: short.then_some((word, number)) }, tail))
    }

    /// A text that is a label.
    pub fn of(text: &'a [u8]) -> Self {
        Self::split(text).map_or(Self { text, short: None }, |(label, _)| label)
    }
}

#[inline(always)]
fn is_letter(byte: u8) -> bool {
    LETTERS[byte as usize]
}

const LETTERS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphabetic() || byte == b'_' as usize || byte >= 0x80;
        byte += 1;
    }
    table
};

/// Operations of a block by label.
#[derive(Default)]
pub(crate) struct BlockLabels {
    words: Vec<(u64, Vec<u32>)>,
    others: Map<Box<[u8]>, u32>,
}

impl BlockLabels {
    const NONE: u32 = u32::MAX;
    const MAX_WORDS: usize = 8;

    #[inline]
    pub fn get(&self, label: &BlockLabel<'_>) -> Option<u32> {
        let short_label = label.short.and_then(|(word, number)| {
            let (_, table) = self.words.iter().find(|entry| entry.0 == word)?;
            table.get(number).copied().filter(|&at| at != Self::NONE)
        });
        if short_label.is_some() || self.others.is_empty() {
            short_label
        } else {
            self.others.get(label.text).copied()
        }
    }

    /// Adds a label; returns whether it is new.
    #[inline]
    pub fn insert(&mut self, label: &BlockLabel<'_>, operation: u32) -> bool {
        if self.get(label).is_some() {
            return false;
        }
        if let Some((word, number)) = label.short {
            let at = self.words.iter().position(|entry| entry.0 == word).or_else(|| {
                (self.words.len() < Self::MAX_WORDS).then(|| {
                    self.words.push((word, Vec::new()));
                    self.words.len() - 1
                })
            });
            // A table with large gaps would waste memory.
            if let Some(table) = at.map(|at| &mut self.words[at].1)
                && number < 2 * table.len() + 64
            {
                if number >= table.len() {
                    table.resize(number + 1, Self::NONE);
                }
                table[number] = operation;
                return true;
            }
        }
        self.others.insert(label.text.into(), operation);
        true
    }

    pub fn clear(&mut self) {
        for (_, table) in &mut self.words {
            table.clear();
        }
        if self.words.len() == Self::MAX_WORDS {
            self.words.clear();
        }
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockLabel, BlockLabels};

    #[test]
    fn similar_labels_are_distinct() {
        let texts = [
            "l1",
            "l01",
            "l10",
            "k1",
            "l_1",
            "l1x",
            "l1x1",
            "abcdefghi1",
            "bcdefghi1",
            "l",
            "l9999999999",
            "l1410065407",
        ];
        let mut labels = BlockLabels::default();
        for (at, text) in texts.iter().enumerate() {
            assert!(labels.insert(&BlockLabel::of(text.as_bytes()), at as u32), "{text}");
        }
        for (at, text) in texts.iter().enumerate() {
            assert_eq!(labels.get(&BlockLabel::of(text.as_bytes())), Some(at as u32), "{text}");
            assert!(!labels.insert(&BlockLabel::of(text.as_bytes()), 99));
        }
        let (label, tail) = BlockLabel::split(b"ab12: calc 1").expect("a label");
        assert_eq!((label.text, tail), (&b"ab12"[..], &b": calc 1"[..]));
    }
}

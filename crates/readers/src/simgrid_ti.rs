//! SimGrid's time-independent traces: one line per call, `rank call arguments…`.

mod call_lines;
mod calls;
mod columns;

use crate::text::{lines, trimmed};
use call_lines::LineReader;

pub use calls::{CollectiveKind, EventRows, LineError, ReplayCalls, TiOptions};

/// Reads the lines of all files in order.
pub fn read(files: &[&[u8]], options: TiOptions<'_>) -> Result<ReplayCalls, LineError> {
    let mut reader = LineReader::new(options);
    let mut row = 0;
    for data in files {
        reader.out.first.push(row);
        for line in lines(data) {
            let line = trimmed(line);
            if !line.is_empty() && line[0] != b'#' {
                reader.line(row, line)?;
            }
            row += 1;
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::{LineError, TiOptions, read};

    const OPTIONS: TiOptions<'_> =
        TiOptions { type_bytes: &[8, 4], ps_per_flop: 1000, longest_ps: 1 << 60 };

    #[test]
    fn a_wait_completes_the_oldest_matching_request() {
        let text =
            b"0 init\n0 isend 1 7 10\n0 send 1 7 9\n0 isend 1 7 20\n0 wait 0 1 7\n0 waitall\n\
                     0 isend 1 7 5 1\n0 wait 0 1 7\n0 finalize\n1 init\n1 Recv 0 7 4 1\n1 finalize";
        let posts = read(&[text], OPTIONS).expect("a valid trace").posts;
        assert_eq!(posts.wait_position, [9, 5, -1, 15, 21]);
        assert_eq!(posts.size, [10, 9, 20, 20, 16]);
    }

    #[test]
    fn errors_have_a_row() {
        let fault = |text: &[u8]| read(&[text], OPTIONS).err();
        assert_eq!(fault(b"0 init\n\n0 fly\n"), Some(LineError::UnknownCall(2, b"fly".to_vec())));
        let far = b"4000000000 init\n0 init\n1 init\n";
        assert_eq!(fault(far), Some(LineError::MissingRank(2, 4_000_000_000)));
        assert_eq!(
            fault(b"0 init\n0 recv 0 1\n0 finalize"),
            Some(LineError::MissingArgument(1, "size"))
        );
        assert_eq!(fault(b"0 init\n"), Some(LineError::Unfinished(0, 0)));
    }
}

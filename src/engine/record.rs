//! How many rows of a batch fit into one TLS record.
//!
//! What exceeds a record goes to the server as a second one, and sqlx 0.9.0 does not set `TCP_NODELAY`: the kernel keeps that back until
//! the server has acknowledged the first, which Linux does after 40 ms
//! (<https://github.com/launchbadge/sqlx/issues/4335>, mended there and not released). So a connection with TLS carries smaller packets.

use std::time::Duration;

/// The most bytes of a record (RFC 8446, section 5.1), without the head of a packet (4) and its command (1).
const RECORD: usize = (1 << 14) - 5;
/// About what a packet has beside its rows, at the least and at the most.
const REST: (usize, usize) = (1_500, 3_500);
/// How long the kernel keeps the second record back.
const PAUSE: Duration = Duration::from_millis(40);
/// As long as nothing is known of how long the rows are.
const FIRST: usize = 256;

/// How long the rows of a batch are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    /// Bytes of a row: as many as in the packet, of the last ones, that had the longest. Acquires are longer than releases, and come in turns with them.
    row: usize,
    /// How long the last packet of one record took.
    took: Duration,
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            row: FIRST,
            took: Duration::ZERO,
        }
    }
}

impl Fit {
    /// How many rows fit into a record.
    fn rows(self) -> usize {
        ((RECORD - REST.1) / self.row).max(1)
    }

    /// The most rows of the next packet where so many wait. If packets of one record took longer for them than the pause, one packet
    /// has them all.
    pub(super) fn most(self, waiting: usize) -> usize {
        let packets = u32::try_from(waiting / self.rows()).unwrap_or(u32::MAX);
        if self.took.saturating_mul(packets) > PAUSE {
            usize::MAX
        } else {
            self.rows()
        }
    }

    /// A packet of so many bytes took so long.
    pub(super) fn answered(&mut self, bytes: usize, took: Duration) {
        self.took = if bytes <= RECORD {
            took
        } else {
            // How long it would be now is not known. A disk that was slow for a moment is forgotten.
            self.took - self.took / 8
        };
    }

    /// A packet of so many rows had so many bytes.
    pub(super) fn sent(&mut self, rows: usize, bytes: usize) {
        let row = bytes.saturating_sub(REST.0) / rows.max(1);
        if rows < self.rows() / 4 && bytes <= RECORD {
            // What it has beside its rows is too much of it.
            return;
        }
        self.row = row.max(self.row - self.row / 64).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_go_at_once_where_that_is_faster() {
        let mut fit = Fit::default();
        let few = fit.rows();
        fit.answered(10_000, PAUSE / 8);
        assert_eq!(fit.most(few * 4), few);
        assert!(fit.most(few * 20) > few * 20);
        fit.answered(10_000, PAUSE / 80);
        assert_eq!(fit.most(few * 20), few);
    }

    #[test]
    fn a_disk_that_was_slow_for_a_moment_is_forgotten() {
        let mut fit = Fit::default();
        let few = fit.rows();
        fit.answered(10_000, PAUSE);
        let long = (0..100).filter(|_| {
            let is_long = fit.most(few * 3) > few;
            fit.answered(if is_long { 50_000 } else { 10_000 }, PAUSE / 20);
            is_long
        });
        let long = long.count();
        assert!((1..20).contains(&long), "{long}");
    }

    /// The longest packets, each with as many rows as fit, whose rows are `row` bytes long.
    fn packets(fit: &mut Fit, rows: impl Iterator<Item = usize>) -> Vec<usize> {
        rows.map(|row| {
            let bytes = 2_500 + fit.rows() * row;
            fit.sent(fit.rows(), bytes);
            bytes
        })
        .collect()
    }

    #[test]
    fn packets_fill_a_record_and_do_not_exceed_it() {
        for row in [100, 250, 3_000] {
            let sent = packets(&mut Fit::default(), (0..500).map(|_| row));
            let (begin, settled) = sent.split_at(1);
            assert!(
                settled.iter().all(|bytes| *bytes <= RECORD),
                "{row}: {begin:?}"
            );
            assert!(settled[498] + 2 * row > RECORD / 2, "{row}: {settled:?}");
        }
    }

    #[test]
    fn packets_of_short_rows_between_those_of_long_ones_say_nothing() {
        let rows = (0..500).map(|number| [300, 120][number % 2]);
        let sent = packets(&mut Fit::default(), rows);
        assert!(sent[1..].iter().all(|bytes| *bytes <= RECORD), "{sent:?}");
    }

    #[test]
    fn small_packets_say_nothing_and_one_row_is_sent_whatever_its_length() {
        let mut fit = Fit::default();
        let before = fit.rows();
        fit.sent(1, 2_900);
        assert_eq!(fit.rows(), before);
        fit.sent(1, 1 << 20);
        assert_eq!(fit.rows(), 1);
    }
}

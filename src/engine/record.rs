//! How many rows of a batch fit into one TLS record.
//!
//! What exceeds a record goes to the server as a second one, and sqlx 0.9.0 does not set `TCP_NODELAY`: the kernel keeps that back until
//! the server has acknowledged the first, which Linux does after 40 ms
//! (<https://github.com/launchbadge/sqlx/issues/4335>, mended there and not released). So a connection with TLS carries smaller packets.

/// The most bytes of a record (RFC 8446, section 5.1), without the head of a packet (4) and its command (1).
const RECORD: usize = (1 << 14) - 5;
/// As long as nothing is known of how long the rows are.
const FIRST: usize = 32;

/// How many rows fit, as far as the packets before tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit(usize);

impl Default for Fit {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Fit {
    pub(super) fn rows(self) -> usize {
        self.0
    }

    /// A packet of so many rows had so many bytes. One of fewer rows than there is room for says nothing, unless it was too long.
    pub(super) fn sent(&mut self, rows: usize, bytes: usize) {
        if bytes > RECORD || rows >= self.0 {
            // A tenth remains for rows that are longer.
            self.0 = (rows * (RECORD / 10 * 9) / bytes.max(1)).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest packets, each with as many rows as fit, whose rows are `row` bytes long.
    fn packets(fit: &mut Fit, row: usize) -> Vec<usize> {
        let mut sent = Vec::new();
        for _ in 0..20 {
            let bytes = 2_000 + fit.rows() * row;
            fit.sent(fit.rows(), bytes);
            sent.push(bytes);
        }
        sent
    }

    #[test]
    fn packets_fill_a_record_and_do_not_exceed_it() {
        for row in [40, 250, 3_000] {
            let last = packets(&mut Fit::default(), row)[19];
            assert!(
                last <= RECORD && last + 2 * row > RECORD / 2,
                "{row}: {last}"
            );
        }
    }

    #[test]
    fn small_packets_say_nothing_and_longer_rows_are_met_once() {
        let mut fit = Fit::default();
        packets(&mut fit, 250);
        let before = fit.rows();
        fit.sent(1, 2_200);
        assert_eq!(fit.rows(), before);
        let after = packets(&mut fit, 1_000);
        assert!(after[1..].iter().all(|bytes| *bytes <= RECORD), "{after:?}");
        // One row that is longer than a record is sent all the same.
        fit.sent(1, 1 << 20);
        assert_eq!(fit.rows(), 1);
    }
}

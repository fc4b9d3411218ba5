//! Several leases in one transaction of the caller's: one packet for all of them.

use sqlx::mysql::MySqlConnection;

use super::sending::execute_all;
use crate::clock::Moment;
use crate::error::Error;
use crate::lock::LeaseView;
use crate::name::Name;
use crate::sql::home::Home;
use crate::sql::transaction::Change;

/// A packet has as many statements as fit into this many bytes, or one: the least that a server takes is 64 KB.
const BYTES: usize = 32 * 1024;

/// Verifies all of them, in their order: see [`LeaseView::verify_in`].
pub(crate) async fn verify_all_in(
    views: &[LeaseView],
    connection: &mut MySqlConnection,
) -> Result<(), Error> {
    let asked = Moment::now();
    change_all(views, connection, LeaseView::verification).await?;
    for view in views {
        view.found_held(asked);
    }
    Ok(())
}

/// Releases all of them when the transaction commits.
pub(crate) async fn release_all_in(
    views: &[LeaseView],
    connection: &mut MySqlConnection,
) -> Result<(), Error> {
    change_all(views, connection, LeaseView::release).await?;
    let now = Moment::now();
    for view in views {
        view.release_is_open(now);
    }
    Ok(())
}

async fn change_all(
    views: &[LeaseView],
    connection: &mut MySqlConnection,
    change: impl Fn(&LeaseView, &Home) -> Result<Change, Error>,
) -> Result<(), Error> {
    let Some(first) = views.first() else {
        return Ok(());
    };
    let home = first.home().await?;
    let changes: Result<Vec<Change>, Error> =
        views.iter().map(|view| change(view, &home)).collect();
    let changes = changes?;
    let (mut views, mut rest) = (views, changes.as_slice());
    while !rest.is_empty() {
        let (changes, others) = rest.split_at(fitting(rest.iter().map(Change::bytes)));
        let (these, behind) = views.split_at(changes.len());
        (views, rest) = (behind, others);
        let names: Vec<&Name> = these.iter().map(LeaseView::full_name).collect();
        let verdicts = execute_all(&mut *connection, &home, changes, &names).await?;
        for (view, verdict) in these.iter().zip(verdicts) {
            view.expect_ours(verdict).await?;
        }
    }
    Ok(())
}

/// How many of these lengths a packet has, from the first on.
fn fitting(lengths: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fits = |length: &usize| {
        bytes += length;
        bytes <= BYTES
    };
    lengths.take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_as_many_as_fit_and_one_at_least() {
        assert_eq!(fitting([BYTES / 2; 5].into_iter()), 2);
        assert_eq!(fitting([BYTES + 1, 1].into_iter()), 1);
        assert_eq!(fitting([1, 1, 1].into_iter()), 3);
    }
}

//! Whether a draw gave out what was in stock, and nothing else.

use crate::office::Books;
use crate::{PARTICIPANTS, PRIZES, Result, Tally};

/// Fails unless what the workers say and what stands in the database agree to the last prize.
pub(crate) fn check(tally: &Tally, books: &Books) -> Result<()> {
    let drawn = i64::from(tally.drawn);
    if drawn != PRIZES {
        return Err(format!(
            "{drawn} of {PRIZES} prizes were drawn: {:+}",
            drawn - PRIZES
        )
        .into());
    }
    let expected = Books {
        left: 0,
        winners: PRIZES,
        prizes: PRIZES,
    };
    if *books != expected {
        return Err(format!("the books say {books:?}, not {expected:?}").into());
    }
    if tally.answered() != 2 * PARTICIPANTS || tally.locks != 2 * PARTICIPANTS {
        return Err(format!("clicks were not answered: {tally:?}").into());
    }
    Ok(())
}

//! Filling a table fast.

use std::fmt::Write;
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use crate::contestants::Result;
use crate::contestants::article::connections::Connections;

/// Rows of one statement: about 300 KB, well below every server's `max_allowed_packet`.
const ROWS: u64 = 5_000;

/// Inserts rows with the names `grow-0` to `grow-(names - 1)`; `row` is the rest of each row, as SQL.
pub async fn insert(
    connections: &Arc<Connections>,
    target: &'static str,
    names: u64,
    row: &'static str,
) -> Result<()> {
    let mut checkout = connections.checkout().await?;
    let mut first = 0;
    while first < names {
        let end = names.min(first + ROWS);
        let mut sql = format!("INSERT INTO {target} VALUES ");
        for name in first..end {
            let comma = if name == first { "" } else { "," };
            write!(sql, "{comma}('grow-{name}',{row})")?;
        }
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(checkout.connection())
            .await?;
        first = end;
    }
    checkout.done();
    Ok(())
}

//! `distance`: the server is some milliseconds away.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;

use crate::arena::Arena;
use crate::contestants::Result;
use crate::contestants::roster::Entry;
use crate::heat::Heat;
use crate::names::Names;
use crate::relay::Relay;
use crate::slice::Slice;
use crate::stage::Stage;

/// Round trips that a slow contestant's warm-up takes, and that its window must have room for, at least.
const ROUND_TRIPS: u32 = 40;

pub(super) async fn slice(
    stage: &mut Stage,
    entry: &Entry,
    delay: Duration,
    tasks: usize,
) -> Result<Slice> {
    let options: MySqlConnectOptions = stage.arena.url.parse()?;
    let relay = Relay::start(options.get_host(), options.get_port(), delay)?;
    let arena = Arena {
        url: redirect(&stage.arena.url, relay.port())?,
        ..Arena::clone(&stage.arena)
    };
    let racer = entry.open(&Arc::new(arena), tasks).await?;
    let room = 2 * delay * ROUND_TRIPS;
    let heat = Heat::new(
        super::PAIR,
        Names::Own,
        tasks,
        stage.pace.warm_up.max(room),
        stage.pace.window.max(room),
    );
    stage.measure(entry, racer, heat).await
}

/// The same address, on this machine's port `port`.
fn redirect(url: &str, port: u16) -> Result<String> {
    let (scheme, rest) = url.split_once("://").ok_or("DATABASE_URL has no scheme")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let user = authority
        .rsplit_once('@')
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    Ok(format!("{scheme}://{user}127.0.0.1:{port}{path}"))
}

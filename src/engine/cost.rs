//! What queueing and merging cost; see [`crate::cost`].

use tokio::sync::oneshot;

use super::manner::PacketWait;
use super::request::{Member, ReplyTo, Request};
use super::stage::LaneKind;
use super::waiting::{Limits, Waiting};
use crate::clock::Moment;
use crate::cost::{allocations, at_most};
use crate::name::Name;
use crate::sql::row::RowKey;

const LIMITS: Limits = Limits {
    rows: 1_024,
    bytes: 1 << 20,
    wait: PacketWait::Nothing,
};

#[test]
fn a_thousand_additions_to_one_counter_are_one_group() {
    let key = RowKey::counter(Name::new("clicks").expect("a name"));
    let (senders, _receivers): (Vec<_>, Vec<_>) = (0..1_000).map(|_| oneshot::channel()).unzip();
    let mut waiting = Waiting::new(LaneKind::NeverWaits);
    let (allocations, batch) = allocations(|| {
        for sender in senders {
            let request = Request::Add {
                delta: 1,
                window: 0,
            };
            let reply = ReplyTo::Caller(sender);
            let member = Member::new(request, Moment::from_micros(i64::MAX), Some(reply));
            waiting.push(key.clone(), member);
        }
        waiting.take(LIMITS)
    });
    assert_eq!(batch.len(), 1);
    assert_eq!(batch[0].members.len(), 1_000);
    at_most("allocations of merging 1,000 additions", allocations, 30);
}

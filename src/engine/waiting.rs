//! What waits for a lane, as plain data: requests by row, so that a batch has at most one operation per row.

use std::collections::{HashMap, HashSet, VecDeque};

use super::group::Group;
use super::manner::PacketWait;
use super::request::Member;
use super::stage::LaneKind;
use crate::clock::Moment;
use crate::sql::operation::{Once, Operation};
use crate::sql::row::RowKey;
use crate::stripe::StripeSet;

/// How large a batch may become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    /// Estimated bytes of the packet.
    pub(crate) bytes: usize,
    /// For what the packet waits.
    pub(crate) wait: PacketWait,
}

/// The requests of one row, in the order in which they came; but renewals and releases before others.
#[derive(Default)]
struct Mailbox {
    waiting: VecDeque<Member>,
    /// The row stands in a ready list.
    ready: bool,
    /// It stands in the list of the urgent ones.
    urgent: bool,
}

/// The rows of a batch's groups. No two groups may change one row, but additions that run once may share their counter.
#[derive(Default)]
struct Claims(HashMap<RowKey, Option<Once>>);

impl Claims {
    /// Whether an operation on `key` may join the batch.
    fn admit(&self, key: &RowKey, once: Option<&Once>) -> bool {
        let shared = |once: &Once| match self.0.get(&once.counter) {
            None => true,
            Some(Some(other)) => other.merges_with(once),
            Some(None) => false,
        };
        !self.0.contains_key(key) && once.is_none_or(shared)
    }

    fn claim(&mut self, group: &Group) {
        self.0.insert(group.key.clone(), None);
        if let Operation::Once(once) = &group.operation {
            self.0.insert(once.counter.clone(), Some(once.clone()));
        }
    }
}

/// What lanes are at that serve one queue: no two of them are at the same.
#[derive(Debug, Default)]
struct Running {
    rows: HashSet<RowKey>,
    stripes: StripeSet,
    /// Of these the stripes of the one that waits for all of its own. What comes meanwhile goes with the next one, but for renewals and
    /// releases: two of them side by side would each carry less, and keep other clients from more.
    all: StripeSet,
}

/// Requests by row, who is at which, and in what order they run.
pub(crate) struct Waiting {
    /// What its lanes wait for.
    kind: LaneKind,
    rows: HashMap<RowKey, Mailbox>,
    /// Rows with a renewal or a release: they go first, so that no number of other requests delays them.
    urgent: VecDeque<RowKey>,
    ready: VecDeque<RowKey>,
    /// Groups that ran once and must run again; they go before all.
    again: VecDeque<Group>,
    running: Running,
    /// Rows with something to do that another lane is at.
    parked: Vec<RowKey>,
    /// How many requests have come.
    arrived: u64,
    /// It takes no more, but for what gives something back.
    closed: bool,
    /// How many lanes serve it.
    lanes: usize,
    /// Its lanes have ended: nothing that is put here is answered any more.
    abandoned: bool,
}

/// The stripes of what is about these rows.
fn stripes<'k>(keys: impl IntoIterator<Item = &'k RowKey>) -> StripeSet {
    keys.into_iter().map(RowKey::stripe).collect()
}

impl LaneKind {
    /// Whether a packet that waits for what `first` needs can carry an operation on `key` too.
    ///
    /// A packet that waits for a row waits for one, and holds no other that somebody may want. One that waits for stripes takes of
    /// what comes behind them what is free then; but nobody waits with it for a stripe that was waited for in vain.
    fn goes_with(self, first: &Group, key: &RowKey, once: Option<&Once>) -> bool {
        let waited = first.stripes();
        let keys = std::iter::once(key).chain(once.map(|once| &once.counter));
        let others = stripes(keys).without(waited);
        let alike = match (first.operation.once(), once) {
            (Some(first), Some(once)) => first.merges_with(once),
            (None, None) => others.is_empty(),
            _ => false,
        };
        self == Self::WaitsForStripe && others.is_behind(waited) && (alike || !first.course.locked)
    }
}

impl Waiting {
    pub(crate) fn new(kind: LaneKind) -> Self {
        Self {
            kind,
            rows: HashMap::new(),
            urgent: VecDeque::new(),
            ready: VecDeque::new(),
            again: VecDeque::new(),
            running: Running::default(),
            parked: Vec::new(),
            arrived: 0,
            closed: false,
            lanes: 0,
            abandoned: false,
        }
    }

    /// Whether it takes this request: once it is closed, only what gives something back; once it is abandoned, nothing.
    pub(super) fn takes(&self, member: &Member) -> bool {
        !self.abandoned && (!self.closed || member.request.is_release())
    }

    pub(crate) fn push(&mut self, key: RowKey, member: Member) {
        let urgent = member.request.is_urgent();
        self.arrived += 1;
        let mailbox = self.rows.entry(key.clone()).or_default();
        if urgent {
            let others = mailbox.waiting.iter();
            let first = others.take_while(|other| other.request.is_urgent()).count();
            mailbox.waiting.insert(first, member);
            if !mailbox.urgent {
                // It may stand in the other list as well.
                (mailbox.ready, mailbox.urgent) = (true, true);
                self.urgent.push_back(key);
            }
        } else {
            mailbox.waiting.push_back(member);
            if !mailbox.ready {
                mailbox.ready = true;
                self.ready.push_back(key);
            }
        }
    }

    /// The next batch: one group per row.
    pub(crate) fn take(&mut self, limits: Limits) -> Vec<Group> {
        let mut batch: Vec<Group> = Vec::new();
        let mut bytes = 0;
        let fits = |batch: &Vec<Group>, bytes: usize| {
            batch.is_empty() || (batch.len() < limits.rows && bytes < limits.bytes)
        };
        let mut claims = Claims::default();
        let mut put_off = VecDeque::new();
        while fits(&batch, bytes) {
            let Some(group) = self.again.pop_front() else {
                break;
            };
            if claims.admit(&group.key, group.operation.once()) {
                claims.claim(&group);
                bytes += group.weight();
                batch.push(group);
            } else {
                put_off.push_back(group);
            }
        }
        // `later`: rows with more to do, which go behind all others. `next`: rows for which this packet cannot wait, which go before all others.
        let (mut later, mut next): (Vec<RowKey>, Vec<RowKey>) = (Vec::new(), Vec::new());
        // Rows that were taken. The urgent and the ready list may both have a row.
        let mut taken_here: HashSet<RowKey> = HashSet::new();
        while fits(&batch, bytes) && next.len() < limits.rows {
            let Some(key) = self.urgent.pop_front().or_else(|| self.ready.pop_front()) else {
                break;
            };
            let Some(mailbox) = self.rows.get_mut(&key) else {
                continue;
            };
            if taken_here.contains(&key) {
                continue;
            }
            let first = mailbox.waiting.front();
            let once = first.and_then(|member| member.request.once());
            let mut keys = std::iter::once(&key).chain(once.map(|once| &once.counter));
            if !claims.admit(&key, once) {
                later.push(key);
                continue;
            }
            let taken = match self.kind {
                LaneKind::NeverWaits => false,
                LaneKind::WaitsForRow => keys.any(|key| self.running.rows.contains(key)),
                LaneKind::WaitsForStripe => {
                    let urgent = first.is_some_and(|first| first.request.is_urgent());
                    (!urgent && !self.running.all.is_empty())
                        || self.running.stripes.meets(stripes(keys))
                }
            };
            if taken {
                self.parked.push(key);
                continue;
            }
            if limits.wait == PacketWait::First
                && let Some(first) = batch.first()
                && !self.kind.goes_with(first, &key, once)
            {
                next.push(key);
                continue;
            }
            (mailbox.ready, mailbox.urgent) = (false, false);
            let Some(group) = Group::take(key.clone(), &mut mailbox.waiting) else {
                self.rows.remove(&key);
                continue;
            };
            if mailbox.waiting.is_empty() {
                self.rows.remove(&key);
            } else {
                mailbox.ready = true;
                taken_here.insert(key.clone());
                later.push(key);
            }
            claims.claim(&group);
            bytes += group.weight();
            batch.push(group);
        }
        for key in next.into_iter().rev() {
            self.ready.push_front(key);
        }
        self.ready.extend(later);
        put_off.append(&mut self.again);
        self.again = put_off;
        match self.kind {
            LaneKind::NeverWaits => {}
            LaneKind::WaitsForRow => self.running.rows.extend(claims.0.into_keys()),
            LaneKind::WaitsForStripe => {
                let more = stripes(claims.0.keys());
                self.running.stripes = self.running.stripes.with(more);
                if limits.wait == PacketWait::All && self.running.all.is_empty() {
                    self.running.all = self.running.all.with(more);
                }
            }
        }
        batch
    }

    /// A lane is done with these rows.
    pub(crate) fn leave_rows(&mut self, rows: &[RowKey]) {
        for row in rows {
            self.running.rows.remove(row);
        }
        let left = stripes(rows);
        self.running.stripes = self.running.stripes.without(left);
        self.running.all = self.running.all.without(left);
        // They came before the others.
        for key in self.parked.drain(..).rev() {
            self.ready.push_front(key);
        }
    }

    /// Whether several packets would have to wait for what waits here.
    pub(super) fn is_apart(&self) -> bool {
        let mut rows = self.ready.iter().filter(|key| self.rows.contains_key(key));
        let Some(first) = rows.next() else {
            return false;
        };
        match self.kind {
            LaneKind::NeverWaits => false,
            LaneKind::WaitsForRow => rows.next().is_some(),
            LaneKind::WaitsForStripe => rows.any(|key| key.stripe() != first.stripe()),
        }
    }

    /// Takes a group apart that has changed nothing: its requests run together with the others for their row, and before
    /// them if they came first.
    pub(crate) fn join(&mut self, group: Group, first: bool) {
        let mailbox = self.rows.entry(group.key.clone()).or_default();
        let mut members = VecDeque::from(group.members);
        for member in &mut members {
            member.course = group.course;
        }
        if first {
            members.append(&mut mailbox.waiting);
            mailbox.waiting = members;
        } else {
            mailbox.waiting.append(&mut members);
        }
        if !mailbox.ready {
            mailbox.ready = true;
            self.ready.push_back(group.key);
        }
    }

    /// Puts a group back; it runs before what came later.
    pub(crate) fn put_back(&mut self, group: Group) {
        self.again.push_back(group);
    }

    /// Takes out what nobody wants any more.
    pub(super) fn take_expired(&mut self, now: Moment) -> Vec<(RowKey, Member)> {
        let mut expired = Vec::new();
        let again = std::mem::take(&mut self.again);
        for mut group in again {
            for member in group.take_expired(now) {
                expired.push((group.key.clone(), member));
            }
            if !group.members.is_empty() {
                self.again.push_back(group);
            }
        }
        for (key, mailbox) in &mut self.rows {
            if mailbox.waiting.iter().any(|member| member.expires <= now) {
                let (old, fresh) = mailbox
                    .waiting
                    .drain(..)
                    .partition(|member| member.expires <= now);
                mailbox.waiting = fresh;
                let old: VecDeque<Member> = old;
                expired.extend(old.into_iter().map(|member| (key.clone(), member)));
            }
        }
        expired
    }

    /// Takes no more requests; those that wait still run.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// A lane serves it.
    pub(super) fn enter(&mut self) {
        self.lanes += 1;
    }

    /// A lane has ended; whether it was the last one.
    pub(super) fn leave(&mut self) -> bool {
        self.lanes -= 1;
        self.lanes == 0
    }

    /// Its lanes have ended: what nobody will run any more.
    pub(super) fn abandon(&mut self) -> (Vec<Member>, VecDeque<Group>) {
        (self.closed, self.abandoned) = (true, true);
        self.urgent.clear();
        self.ready.clear();
        self.parked.clear();
        let mailboxes = std::mem::take(&mut self.rows).into_values();
        let members = mailboxes.flat_map(|mailbox| mailbox.waiting).collect();
        (members, std::mem::take(&mut self.again))
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// How many requests have come.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How many rows have something to do.
    pub(super) fn rows(&self) -> usize {
        self.again.len() + self.urgent.len() + self.ready.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty() && self.urgent.is_empty() && self.ready.is_empty()
    }
}

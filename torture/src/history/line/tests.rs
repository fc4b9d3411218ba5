//! Lines are read back as they were written.

use super::*;

#[test]
fn lines_are_read_back_as_they_were() {
    let events = [
        Event::Granted { token: 1, ttl: 2 },
        Event::HeldUntil {
            token: u64::MAX,
            trusted_until: 0,
        },
        Event::Released {
            token: 1,
            outcome: Outcome::Lost,
        },
        Event::NotGranted {
            outcome: Outcome::Refused,
        },
        Event::Section {
            token: 1,
            read: 2,
            wrote: 3,
        },
        Event::FencedWrite {
            token: 1,
            accepted: true,
        },
        Event::Added {
            delta: -3,
            low: Some(0),
            high: None,
            value: Some(i64::MIN),
            outcome: Outcome::Done,
        },
        Event::Transfer {
            token: 1,
            amount: -5,
            committing: 7,
            outcome: Outcome::Unknown,
        },
        Event::Attempt {
            token: 1,
            booked: true,
            done: false,
            outcome: Outcome::Lost,
        },
        Event::Permit {
            permits: 3,
            count: 2,
            slot: 2,
            token: 7,
            ttl: 5,
        },
        Event::Together {
            token: 7,
            ttl: 5,
            outcome: Outcome::Done,
        },
        Event::Leads {
            token: 7,
            value: u64::MAX,
            once: true,
        },
        Event::Seen { token: 7, value: 9 },
        Event::WorkedOn {
            token: 7,
            steps: 20,
        },
        Event::Overran { limit: 8_000 },
        Event::Shared {
            token: 7,
            ttl: 5,
            from: 6,
        },
        Event::NotShared {
            outcome: Outcome::Refused,
        },
        Event::Looked {
            token: 7,
            found: 1,
            again: 2,
        },
        Event::Vouched {
            token: 7,
            found: 1,
            again: 2,
            committing: 9,
            outcome: Outcome::Done,
        },
    ];
    let operations = [
        Operation::Acquire,
        Operation::Section {
            token: 1,
            read: 2,
            wrote: 3,
        },
        Operation::FencedWrite { token: 1 },
        Operation::Add {
            delta: 1,
            low: None,
            high: Some(-1),
        },
        Operation::Transfer {
            token: 1,
            amount: 5,
        },
        Operation::Attempt { booked: true },
        Operation::Together,
        Operation::Share,
    ];
    let name = Arc::<str>::from("mutex:7");
    let ended = events.map(|event| {
        Line::Ended(Record {
            worker: 9,
            task: 8,
            name: Arc::clone(&name),
            invoked: 10,
            returned: 11,
            event,
        })
    });
    let invoked = operations.map(|operation| {
        Line::Invoked(Invocation {
            worker: 9,
            task: 8,
            name: Arc::clone(&name),
            invoked: 10,
            operation,
        })
    });
    let mut names = Names::default();
    for line in ended
        .into_iter()
        .chain(invoked)
        .chain([Line::Apart, Line::Complete])
    {
        let text = line.to_string();
        assert_eq!(Line::parse(&text, 9, &mut names).ok(), Some(line));
    }
}

#[test]
fn a_line_cut_short_is_none() {
    for text in ["", "G", "G 1 m:1 2 3 4", "g 1", "Z 1 m:1 2 3 4", ". ."] {
        assert!(
            Line::parse(text, 1, &mut Names::default()).is_err(),
            "{text}"
        );
    }
}

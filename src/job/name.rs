//! What a slot of a job is called in the table: `job@slot`.

use crate::error::Error;
use crate::name::Name;

/// Between a job's name and its slot's. No job's name has it, so no two slots share a row.
const BETWEEN: char = '@';

/// What the slots of a job begin with; and the first name behind all of them.
pub(super) fn bounds(job: &str) -> Result<(String, String), Error> {
    // Checks the job's name, and leaves room for a slot.
    row_name(job, "0")?;
    // The characters are in the order of their numbers: 'A' follows '@'.
    Ok((format!("{job}{BETWEEN}"), format!("{job}A")))
}

/// The name of a slot's row.
pub(super) fn row_name(job: &str, slot: &str) -> Result<Name, Error> {
    let invalid = |name: &str, reason| Error::InvalidName {
        name: name.chars().take(crate::name::MAX_CHARS + 1).collect(),
        reason,
    };
    if job.is_empty() {
        return Err(invalid(
            job,
            "it is empty; give the job at least one character",
        ));
    }
    if job.contains(BETWEEN) {
        return Err(invalid(
            job,
            "a job's name has no '@', which stands between it and its slot; leave it out",
        ));
    }
    if slot.is_empty() {
        return Err(invalid(
            slot,
            "it is empty; give the slot at least one character",
        ));
    }
    // The server puts some of them before the name of the job itself, so that no list would show the slot.
    if slot
        .trim_start_matches(' ')
        .starts_with(|first: char| first < ' ')
    {
        return Err(invalid(
            slot,
            "it begins with a control character; leave that out",
        ));
    }
    Name::new(&format!("{job}{BETWEEN}{slot}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_two_slots_share_a_row(a in "[a@ ]{0,4}", b in "[a@ ]{0,4}", c in "[a@ ]{0,4}", d in "[a@ ]{0,4}") {
            if let (Ok(one), Ok(other)) = (row_name(&a, &b), row_name(&c, &d)) {
                prop_assert_eq!(one == other, (a, b) == (c, d));
            }
        }

        #[test]
        fn a_slot_lies_within_its_jobs_bounds(job in "\\PC{1,8}", slot in "\\PC{1,8}", other in "\\PC{1,8}") {
            if let (Ok(name), Ok((first, end))) = (row_name(&job, &slot), bounds(&other)) {
                let within = (first.as_str()..end.as_str()).contains(&name.as_str());
                prop_assert_eq!(within, job == other);
            }
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused() {
        for (job, slot) in [
            ("", "1"),
            ("a@b", "1"),
            ("a", ""),
            ("a", "1 "),
            ("a", "\t1"),
            ("a", " \t1"),
        ] {
            assert!(row_name(job, slot).is_err(), "{job:?} {slot:?}");
        }
        assert!(row_name(&"a".repeat(200), &"1".repeat(54)).is_ok());
        assert!(row_name(&"a".repeat(200), &"1".repeat(55)).is_err());
        let date = row_name("invoices", "2026-11-22").expect("a name");
        assert_eq!(date.as_str(), "invoices@2026-11-22");
    }
}

//! The pages of the repository's `docs/`.
//!
//! There they link to files, here to each other: of two definitions of a link Markdown takes the first one, which here
//! is that of `links.md`. Likewise a picture is a file there, and here its bytes, from the file of its name: rustdoc
//! takes no files along.

#[doc = include_str!("links.md")]
#[doc = include_str!("top.md")]
#[doc = include_str!("../../docs/cli.md")]
pub mod cli {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/clusters.md")]
pub mod clusters {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/design.md")]
pub mod design {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/design-waiting.md")]
pub mod design_waiting {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/failures.md")]
pub mod failures {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/holds.md")]
pub mod holds {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/migrating.md")]
pub mod migrating {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/patterns.md")]
pub mod patterns {}

#[doc = include_str!("links.md")]
#[doc = include_str!("whole-race.md")]
#[doc = include_str!("../../docs/performance.md")]
pub mod performance {}

/// What was measured and found, with commands, servers and commits.
pub mod records {
    #[doc = include_str!("links.md")]
    #[doc = include_str!("../../docs/records/defects.md")]
    pub mod defects {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("../../docs/records/performance.md")]
    pub mod performance {}

    #[doc = include_str!("links.md")]
    #[doc = include_str!("../../docs/records/reliability.md")]
    pub mod reliability {}
}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/reliability.md")]
pub mod reliability {}

#[doc = include_str!("links.md")]
#[doc = include_str!("../../docs/testing.md")]
pub mod testing {}

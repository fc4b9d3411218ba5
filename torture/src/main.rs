//! The torture rig's program.

fn main() {}

//! The rig built once more, with the library's deliberate breakages in it.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable in which the library finds the name of its breakage.
pub const VARIABLE: &str = "TAG_LOCK_MUTANT";
const FLAGS: &str = "--cfg tag_lock_mutants";

/// Whether this is that build.
#[must_use]
pub fn is_this() -> bool {
    cfg!(tag_lock_mutants)
}

/// Builds it, and becomes it, with the same arguments; returns only on failure. `mutant` is handed on, to the workers
/// too.
#[must_use]
pub fn become_it(mutant: Option<&str>) -> io::Error {
    let program = match build() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    if let Some(mutant) = mutant {
        command.env(VARIABLE, mutant);
    }
    command.exec()
}

fn build() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Beside the ordinary build: the flags would build that anew.
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), PathBuf::from)
        .join("mutants");
    let (profile, folder) = if cfg!(debug_assertions) {
        ("dev", "debug")
    } else {
        ("release", "release")
    };
    eprintln!("torture: building the library with its mutants");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&root)
        .args([
            "build",
            "--quiet",
            "--package",
            "tag-lock-torture",
            "--bin",
            "torture",
        ])
        .args(["--profile", profile, "--target-dir"])
        .arg(&target)
        .env("RUSTFLAGS", FLAGS)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(
            "the library with its mutants does not build",
        ));
    }
    Ok(target.join(folder).join("torture"))
}

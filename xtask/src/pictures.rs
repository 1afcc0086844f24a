//! `cargo xtask pictures`: draws the pictures in the README anew, from the run that is kept beside them in
//! `docs/pictures`. Whether they are current is a test of the crate `top`, which is also what draws them.

use std::io::Write;
use std::process::Command;

use anyhow::Result;

use crate::project::Project;

/// Draws them.
///
/// # Errors
/// When they cannot be drawn.
pub(crate) fn run(project: &Project, out: &mut dyn Write) -> Result<()> {
    let mut draw = Command::new("cargo");
    draw.args(["test", "--quiet", "-p", "top", "--test", "pictures"])
        .env("DRAW_PICTURES", "1");
    project.run("pictures", &mut draw)?.ok("drawing")?;
    writeln!(out, "drawn: docs/pictures")?;
    Ok(())
}

//! `mock-portal openapi`: both APIs, described.

use std::io::Write as _;

use anyhow::Context as _;
use mock_portal::openapi;

use super::Failure;
use super::cli::{ApiName, Openapi};

/// Prints a document, for people: it is read, compared and committed.
pub(super) fn run(options: &Openapi) -> Result<(), Failure> {
    let document = match options.api {
        ApiName::Agent => {
            let dialect = options.dialect.as_deref().map(super::dialect).transpose()?;
            openapi::agent(&dialect.unwrap_or_default())
        }
        ApiName::Lab => openapi::lab(),
    };
    let mut text = serde_json::to_vec_pretty(&document).context("the document is no JSON")?;
    text.push(b'\n');
    let written = std::io::stdout().lock().write_all(&text);
    Ok(written.context("standard output cannot be written")?)
}

//! `mock-portal openapi`: both APIs, described.

use anyhow::Context as _;
use mock_portal::openapi;

use super::cli::{ApiName, Openapi};
use super::{Failure, answer_all};

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
    Ok(answer_all(&text)?)
}

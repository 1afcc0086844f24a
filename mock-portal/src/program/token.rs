//! `mock-portal token`: a call of a running portal's control API.

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::cli::Token;
use super::{Failure, answer};

/// Orders tokens and prints each as one JSON line: what `loadgen run --tokens` reads.
pub(super) fn run(options: Token) -> Result<(), Failure> {
    let mut order = Map::new();
    let mut put =
        |name: &str, value: Option<Value>| value.map(|value| order.insert(name.to_owned(), value));
    put("cluster_id", Some(json!(options.cluster)));
    put("node_name", Some(json!(options.node)));
    put("server_id", options.server_id.map(Value::from));
    put(
        "boot_image_sha256",
        options.boot_image.map(|hash| json!(hash)),
    );
    put("expires_in_seconds", options.expires_in.map(Value::from));
    put("count", options.count.map(Value::from));
    put("first", options.first.map(Value::from));
    put(
        "servers_per_cluster",
        options.servers_per_cluster.map(Value::from),
    );

    let url = format!("{}/tokens", options.lab_url.trim_end_matches('/'));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")?;
    let tokens = runtime.block_on(async {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls())
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(std::time::Duration::from_secs(30))
            .build()
            .context("no HTTP client")?;
        let mut request = client.post(&url).json(&order);
        if let Some(token) = &options.lab_token {
            request = request.bearer_auth(token.expose());
        }
        let response = request.send().await.with_context(|| {
            format!("no answer from {url}; is `mock-portal serve` running, and is --lab-url its lab_url?")
        })?;
        let status = response.status();
        let body: Value = response.json().await.with_context(|| format!("{url} is no control API: it sent no JSON"))?;
        if !status.is_success() {
            let said = |member: &str| body[member].as_str().unwrap_or("no reason given").to_owned();
            anyhow::bail!("the portal refused: {}; {}", said("detail"), said("hint"));
        }
        match body["tokens"].as_array() {
            Some(tokens) => Ok(tokens.clone()),
            None => anyhow::bail!("{url} is no control API: its answer has no `tokens`"),
        }
    })?;
    for token in &tokens {
        answer(token)?;
    }
    Ok(())
}

/// The control API is spoken to without TLS; a client needs a configuration all the same.
fn tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(mock_portal::tls::provider())
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

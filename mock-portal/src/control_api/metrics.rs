//! `GET /metrics` and `GET /healthz`: for scrapers and for whoever starts the portal, beside the control API.
//!
//! Names, kinds, labels and help texts are the catalogue's (crate `record`); here is only where each value comes from.
//! Nothing is kept for it: a scrape reads what counts anyway. Labels are closed sets (an endpoint, an outcome, a state, a
//! kind), so the number of series does not grow with the fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use portal_core::control::{AgentState, Census};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use protocol::endpoint::Endpoint;
use record::Outcome;
use record::catalogue::{Metric, Type};
use record::fleet::Kind;
use record::label::Label as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::ControlApi;
use crate::latency::Buckets;

/// The path of the metrics, from the root of the control API's address.
pub const METRICS_PATH: &str = "/metrics";
/// The path that tells whether the portal is well.
pub const HEALTH_PATH: &str = "/healthz";

/// All metrics as a response.
pub(super) fn metrics(api: &ControlApi) -> Response {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(families(api))));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry).expect("a String takes every text");
    ([(CONTENT_TYPE, prometheus_text::CONTENT_TYPE)], text).into_response()
}

/// Whether the portal is well: it answers, and what it promises is kept.
pub(super) fn health(api: &ControlApi) -> Response {
    let json = [(CONTENT_TYPE, "application/json")];
    let failure = api.store.as_ref().and_then(|store| store.failure());
    let (status, health) = match &failure {
        None => (
            StatusCode::OK,
            Health {
                status: "ok",
                why: None,
            },
        ),
        Some(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Health {
                status: "failed",
                why: Some(why),
            },
        ),
    };
    (status, json, super::line(&health)).into_response()
}

/// What `GET /healthz` says.
#[derive(Serialize, JsonSchema)]
struct Health<'a> {
    /// `ok`, or `failed`.
    status: &'static str,
    /// What failed: the data file cannot be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// The JSON Schema of the health.
pub(crate) fn health_schema(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Health<'static>>()
}

/// A metric with its series.
#[derive(Debug)]
struct Family {
    metric: Metric,
    /// The labels' values in the order of [`Metric::dimensions`], and the value.
    series: Vec<(Vec<&'static str>, Value)>,
}

#[derive(Debug)]
enum Value {
    Number(u64),
    Distribution(Buckets),
}

/// What stands for an endpoint where a request had no route.
const NO_ENDPOINT: &str = "none";

fn families(api: &ControlApi) -> Vec<Family> {
    let control = api.control();
    let (census, answers) = (control.census(), control.counters().answers);
    let of = |endpoint: Option<Endpoint>| endpoint.map_or(NO_ENDPOINT, Endpoint::label);
    let number = |metric, value| Family {
        metric,
        series: vec![(vec![], Value::Number(value))],
    };

    let aborted = api.http.aborted();
    // The check-in protocol is not spoken here.
    let served = Endpoint::ALL.iter().filter(|e| **e != Endpoint::CheckIn);
    let endpoints = std::iter::once(None).chain(served.copied().map(Some));
    let requests = endpoints.map(|endpoint| {
        let answered = answers.iter().filter(|line| line.endpoint == endpoint);
        let aborted = endpoint.map_or_else(
            || api.http.aborted_elsewhere(),
            |endpoint| aborted[endpoint],
        );
        let count = answered.map(|line| line.count).sum::<u64>() + aborted;
        (vec![of(endpoint)], Value::Number(count))
    });
    let answered = answers.iter().map(|line| {
        let outcome = line.code.map_or(Outcome::Ok, Outcome::Problem);
        let labels = vec![of(line.endpoint), outcome.label()];
        (labels, Value::Number(line.count))
    });
    let latencies = api.latencies.buckets().into_iter();
    let latencies =
        latencies.map(|(endpoint, buckets)| (vec![endpoint.label()], Value::Distribution(buckets)));
    let agents = AgentState::ALL.iter().map(|state| {
        let count = census.agents.get(state).copied().unwrap_or(0);
        (vec![state.as_str()], Value::Number(count))
    });

    vec![
        Family {
            metric: Metric::PortalRequests,
            series: requests.collect(),
        },
        Family {
            metric: Metric::PortalAnswers,
            series: answered.collect(),
        },
        Family {
            metric: Metric::PortalAnswer,
            series: latencies.collect(),
        },
        number(
            Metric::PortalConnections,
            api.connections.open.load(Relaxed),
        ),
        number(Metric::PortalClusters, census.clusters),
        Family {
            metric: Metric::PortalAgents,
            series: agents.collect(),
        },
        number(Metric::PortalTokens, census.tokens),
        number(Metric::PortalReplayMemory, census.replay),
        number(Metric::PortalReplayCapacity, census.replay_capacity),
        number(Metric::PortalSeals, census.seals),
        Family {
            metric: Metric::PortalOperations,
            series: operations(&census),
        },
        number(Metric::PortalEventsRepeated, census.events_repeated),
    ]
}

/// Kinds that the protocol does not know share one series a state.
fn operations(census: &Census) -> Vec<(Vec<&'static str>, Value)> {
    let mut counted = BTreeMap::<_, u64>::new();
    for ((kind, state), count) in &census.operations {
        let labels = [Kind::from(kind).label(), state.as_str()];
        *counted.entry(labels).or_default() += count;
    }
    let series = counted.into_iter();
    series
        .map(|(labels, count)| (labels.to_vec(), Value::Number(count)))
        .collect()
}

#[derive(Debug)]
struct Scrape(Vec<Family>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, series } in &self.0 {
            if series.is_empty() {
                continue; // a name without a series is no metric for some readers
            }
            let (kind, name) = match metric.kind() {
                // The encoder ends a counter's name itself.
                Type::Counter => (
                    MetricType::Counter,
                    metric.name().trim_end_matches("_total"),
                ),
                Type::Gauge => (MetricType::Gauge, metric.name()),
                Type::Histogram => (MetricType::Histogram, metric.name()),
            };
            let mut family = encoder.encode_descriptor(name, metric.help(), None, kind)?;
            for (labels, value) in series {
                let names = metric
                    .dimensions()
                    .iter()
                    .map(|dimension| dimension.label());
                let labels: Vec<_> = names.zip(labels.iter().copied()).collect();
                if labels.is_empty() {
                    value.encode(kind, &mut family)?;
                } else {
                    value.encode(kind, &mut family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let no_exemplar: Option<&Exemplar<NoLabelSet, u64>> = None;
        match (self, kind) {
            (Self::Number(number), MetricType::Counter) => {
                encoder.encode_counter(number, no_exemplar)
            }
            (Self::Number(number), _) => encoder.encode_gauge(number),
            (Self::Distribution(buckets), _) => encoder.encode_histogram::<NoLabelSet>(
                buckets.sum_seconds,
                buckets.count,
                &buckets.within,
                None,
            ),
        }
    }
}

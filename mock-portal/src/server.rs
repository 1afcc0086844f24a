//! A portal that runs: both addresses, their URLs, its end, and its restart.
//!
//! `loadgen` embeds one, the program `mock-portal serve` is one. What is configured here is where it listens and how it
//! speaks; what it decides by is [`portal_core::Settings`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use portal_core::control::ReleaseKeyView;
use portal_core::{Changes, Control, Portal, Settings};
use record::{Outcome, PortalCounters};
use rustls::ServerConfig;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::agent_api::{AgentApi, HttpCounters, Profile, Wiring};
use crate::clock::Clock;
use crate::control_api::{self, ControlApi, LabToken};
use crate::journal::{Capacity, Journal};
use crate::latency::Latencies;
use crate::serve::{self, BindError, Connections, Face, Phase};
use crate::store::{self, Data, DataError, NotKept, Store};
use crate::tls::{Certificate, TlsError};
use crate::wire::{Patience, Progress};

/// How a server is to run.
#[derive(Debug)]
pub struct Config {
    /// Where agents connect; port 0 picks a free one.
    pub agents: SocketAddr,
    /// TLS for agents, or none.
    pub certificate: Option<Certificate>,
    /// How much of HTTP passes on the agents' side.
    pub profile: Profile,
    /// Where the control API listens; port 0 picks a free one.
    pub lab: SocketAddr,
    /// The token of the control API; owed where its address is not loopback.
    pub lab_token: Option<LabToken>,
    /// What the portal decides by.
    pub settings: Settings,
    /// How much the journal keeps.
    pub journal: Capacity,
    /// How long connections may be silent.
    pub patience: Patience,
    /// Where what the portal knows is kept; without, it is forgotten when the portal ends.
    pub data: Option<Data>,
}

impl Config {
    /// Loopback, free ports, no TLS, strict.
    pub fn new(settings: Settings) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            agents: free,
            certificate: None,
            profile: Profile::default(),
            lab: free,
            lab_token: None,
            settings,
            journal: Capacity::default(),
            patience: Patience::default(),
            data: None,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The certificate cannot be used.
    #[error("TLS for agents: {0}")]
    Tls(#[from] TlsError),
    /// A control API that everybody could call.
    #[error(
        "the control API would be open to everybody on {0}: it can revoke a fleet; set a lab token, or a loopback address"
    )]
    OpenLab(SocketAddr),
    /// The data file cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a fresh portal and returns when both addresses accept connections. To be called inside a tokio runtime
    /// with IO and time; its tasks run there.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running then.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        if !config.lab.ip().is_loopback() && config.lab_token.is_none() {
            return Err(StartError::OpenLab(config.lab));
        }
        let tls = config
            .certificate
            .as_ref()
            .map(Certificate::server_config)
            .transpose()?;
        let (agents, lab) = (serve::listen(config.agents)?, serve::listen(config.lab)?);
        let (agents_at, lab_at) = (address(&agents, config.agents), address(&lab, config.lab));

        let dialect = config.settings.dialect.clone();
        let (portal, store) = remembering(config.settings, config.data.as_ref())?;
        let clock = Clock::start().go_on_from(portal.latest_monotonic_ms());
        let journal = Arc::new(Journal::new(config.journal));
        let latencies = Arc::new(Latencies::default());
        let http = Arc::new(HttpCounters::default());
        let connections = Arc::new(Connections::default());
        let api = Arc::new(AgentApi::new(Wiring {
            portal: Arc::clone(&portal),
            dialect: dialect.clone(),
            profile: config.profile,
            clock,
            journal: Arc::clone(&journal),
            latencies: Arc::clone(&latencies),
            counters: Arc::clone(&http),
            store: store.clone(),
        }));
        let control = Arc::new(ControlApi {
            portal: Arc::clone(&portal),
            clock,
            token: config.lab_token,
            journal,
            latencies,
            http: Arc::clone(&http),
            connections: Arc::clone(&connections),
            store: store.clone(),
        });

        let scheme = if tls.is_some() { "https" } else { "http" };
        let manager_url = format!("{scheme}://{}", reachable(agents_at));
        let agents_face = AgentsFace {
            api,
            tls,
            patience: config.patience,
            connections,
        };
        Ok(Running {
            agents_url: format!("{manager_url}{}", dialect.base_path()),
            manager_url,
            lab_url: format!("http://{}{}", reachable(lab_at), control_api::BASE_PATH),
            ca_pem: config
                .certificate
                .as_ref()
                .and_then(Certificate::ca_pem)
                .map(str::to_owned),
            release_keys: portal.control(clock.now()).release_keys(),
            agents: agents_face.start(agents),
            lab: start_lab(lab, control, config.patience),
            agents_at,
            agents_face,
            portal,
            clock,
            http,
            store,
        })
    }
}

/// A portal, and where it keeps what it knows.
fn remembering(
    mut settings: Settings,
    data: Option<&Data>,
) -> Result<(Arc<Portal>, Option<Arc<Store>>), DataError> {
    let opened = data
        .map(|data| store::open(data, &mut settings))
        .transpose()?;
    let portal = Arc::new(Portal::new(settings));
    let store = opened.map(|opened| opened.start(&portal)).transpose()?;
    Ok((portal, store.map(Arc::new)))
}

/// A portal that runs. Dropping it kills it.
pub struct Running {
    /// What agents are configured with: `https://127.0.0.1:8470/agent/v1`.
    pub agents_url: String,
    /// The same address for the check-in protocol.
    pub manager_url: String,
    /// The control API.
    pub lab_url: String,
    /// The authority of the agents' certificate, in PEM, where it was made here.
    pub ca_pem: Option<String>,
    /// The public halves of the keys that sign releases.
    pub release_keys: Vec<ReleaseKeyView>,
    /// The portal itself, for calls without HTTP.
    pub portal: Arc<Portal>,
    clock: Clock,
    http: Arc<HttpCounters>,
    store: Option<Arc<Store>>,
    agents_at: SocketAddr,
    agents_face: AgentsFace,
    agents: Serving,
    lab: Serving,
}

/// The ready line of the program: a promise to scripts.
#[derive(Debug, Serialize)]
pub struct Ready<'a> {
    /// See [`Running::agents_url`].
    pub agents_url: &'a str,
    /// See [`Running::manager_url`].
    pub manager_url: &'a str,
    /// See [`Running::lab_url`].
    pub lab_url: &'a str,
    /// See [`Running::release_keys`].
    pub release_keys: &'a [ReleaseKeyView],
    /// A file with [`Running::ca_pem`], while the server runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_pem_file: Option<&'a std::path::Path>,
}

impl Running {
    /// The verbs of the control API, now. With a data file what they change must be handed to [`Running::keep`], or every
    /// later answer waits for it.
    pub fn control(&self) -> Control<'_> {
        self.portal.control(self.clock.now())
    }

    /// Keeps what a verb changed, if anything is kept.
    ///
    /// # Errors
    /// When the data file cannot be written.
    pub async fn keep(&self, changes: &Changes) -> Result<(), NotKept> {
        match &self.store {
            Some(store) => store.keep(&self.portal, changes).await,
            None => Ok(()),
        }
    }

    /// Returns when the data file cannot be written any more, and why: nothing that is asked is answered then, and the
    /// portal is to be ended.
    pub async fn failed(&self) -> String {
        match &self.store {
            Some(store) => store.failed().await,
            None => std::future::pending().await,
        }
    }

    /// What came in and what went out, from the start or the last reset, in the words of a run's account. Requests
    /// without a route belong to no endpoint and are not in it.
    pub fn counters(&self) -> PortalCounters {
        let mut counters = PortalCounters {
            received: self.http.aborted(),
            ..PortalCounters::default()
        };
        for line in self.control().counters().answers {
            let Some(endpoint) = line.endpoint else {
                continue;
            };
            counters.received[endpoint] += line.count;
            counters.answered[endpoint][line.code.map_or(Outcome::Ok, Outcome::Problem)] +=
                line.count;
        }
        counters
    }

    /// What the ready line says.
    pub fn ready<'a>(&'a self, ca_pem_file: Option<&'a std::path::Path>) -> Ready<'a> {
        Ready {
            agents_url: &self.agents_url,
            manager_url: &self.manager_url,
            lab_url: &self.lab_url,
            release_keys: &self.release_keys,
            ca_pem_file,
        }
    }

    /// Crashes the portal and starts it again on the same address: connections break in the middle of whatever they were
    /// at. Without its data agents, tokens, documents and operations are gone. Certificate, release keys, the clock's
    /// setting, the control API and all counters stay.
    ///
    /// # Errors
    /// When somebody else has taken the address in between. The control API goes on; calling this again tries again.
    pub async fn restart(&mut self, with_data: bool) -> Result<(), BindError> {
        self.agents.end(Phase::Killed).await;
        // What is left of the portal's memory dies with it, not before: a request that was answered was counted.
        if !with_data {
            let changes = self.control().restart_without_data();
            // A file that cannot be written ends the portal anyway, see `failed`.
            let _ = self.keep(&changes).await;
        }
        let listener = serve::listen(self.agents_at)?;
        self.agents = self.agents_face.start(listener);
        tracing::info!(address = %self.agents_at, with_data, "restarted");
        Ok(())
    }

    /// Ends both addresses: no new connection, requests that are being answered are finished (for at most 5 s).
    pub async fn shutdown(mut self) {
        tokio::join!(self.agents.end(Phase::Ending), self.lab.end(Phase::Ending));
        if let Some(store) = &self.store {
            store.close().await;
        }
    }
}

/// A listening address and the task that serves it.
struct Serving {
    phase: watch::Sender<Phase>,
    task: JoinHandle<()>,
}

impl Serving {
    async fn end(&mut self, phase: Phase) {
        self.phase.send_replace(phase);
        if !self.task.is_finished()
            && let Err(error) = (&mut self.task).await
        {
            tracing::error!(%error, "serving an address ended in a panic");
        }
    }
}

/// The agents' address, ready to be served.
struct AgentsFace {
    api: Arc<AgentApi>,
    tls: Option<Arc<ServerConfig>>,
    patience: Patience,
    connections: Arc<Connections>,
}

impl AgentsFace {
    fn start(&self, listener: TcpListener) -> Serving {
        let (phase, watched) = watch::channel(Phase::Serving);
        let face = Face {
            tls: self.tls.clone(),
            patience: self.patience,
            connections: Arc::clone(&self.connections),
        };
        let api = Arc::clone(&self.api);
        let service = move |progress: Arc<Progress>| {
            let api = Arc::clone(&api);
            service_fn(move |request: Request<Incoming>| {
                let content_length_line = progress.request_begins();
                let (api, progress) = (Arc::clone(&api), Arc::clone(&progress));
                async move {
                    let answer = api.answer(request, content_length_line).await;
                    progress.request_ended();
                    answer
                }
            })
        };
        Serving {
            phase,
            task: tokio::spawn(serve::serve(listener, face, watched, service)),
        }
    }
}

fn start_lab(listener: TcpListener, control: Arc<ControlApi>, patience: Patience) -> Serving {
    let (phase, watched) = watch::channel(Phase::Serving);
    let face = Face {
        tls: None,
        patience,
        connections: Arc::default(),
    };
    let router = control_api::router(control);
    let service = move |progress: Arc<Progress>| {
        let router = router.clone();
        service_fn(move |request: Request<Incoming>| {
            progress.request_begins();
            let (router, progress) = (router.clone(), Arc::clone(&progress));
            async move {
                let answer: Result<Response<axum::body::Body>, std::convert::Infallible> =
                    router.oneshot(request).await;
                progress.request_ended();
                answer
            }
        })
    };
    Serving {
        phase,
        task: tokio::spawn(serve::serve(listener, face, watched, service)),
    }
}

/// The address that a listener got.
fn address(listener: &TcpListener, asked: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(asked)
}

/// An address that this machine can connect to: "every address" is none.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

//! What can be written on the command line; every option is also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mock_portal::agent_api::Profile;
use mock_portal::control_api::LabToken;
use protocol::hash::Sha256Hex;
use protocol::id::{ClusterId, NodeName};

/// A control plane to test agents against: strict to the byte, and it says why.
#[derive(Debug, Parser)]
#[command(name = "mock-portal", version, after_help = EXAMPLES)]
pub(super) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What to log to stderr: a level, or target=level,…
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        default_value = "info",
        env = "MOCK_PORTAL_LOG"
    )]
    pub log: String,
    /// How to log.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "MOCK_PORTAL_LOG_FORMAT"
    )]
    pub log_format: LogFormat,
}

const EXAMPLES: &str = "\
Examples:
  mock-portal serve                                   agents on 127.0.0.1:8470, control API on :8471
  mock-portal serve --listen 127.0.0.1:0 --tls self-signed
  mock-portal token --cluster c1 --node n1 --count 3  three tokens to enroll with
  mock-portal keys make test-keys                     a release key and TLS files
  mock-portal openapi agent > agent.json              what agents may ask, in OpenAPI 3.1

Exit codes:
  0  done
  1  failed
  2  wrong usage";

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the portal until SIGTERM or Ctrl-C. When it is ready it prints one JSON line on stdout.
    Serve(Serve),
    /// Make or show keys for tests.
    #[command(subcommand)]
    Keys(Keys),
    /// Order enrollment tokens from a running portal; prints them as JSON lines.
    Token(Token),
    /// Print the description of an API in OpenAPI 3.1.
    Openapi(Openapi),
    /// Print what a shell needs to complete commands and options.
    Completions(Completions),
    /// Print the manual page, or write one for each command into a folder.
    Man(ManPages),
}

/// Options of `completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(super) struct Completions {
    /// Which shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  mock-portal completions bash > ~/.local/share/bash-completion/completions/mock-portal
  mock-portal completions zsh > ~/.zfunc/_mock-portal
  mock-portal completions fish > ~/.config/fish/completions/mock-portal.fish";

/// Options of `man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManPages {
    /// Where the pages go, one for each command; without, the main one goes to stdout.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

const MAN_EXAMPLES: &str = "\
Examples:
  mock-portal man | man -l -
  mock-portal man ~/.local/share/man/man1";

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(super) struct Serve {
    /// Where agents connect; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470", value_parser = address,
          env = "MOCK_PORTAL_LISTEN")]
    pub listen: SocketAddr,
    /// Where the control API listens; an address that is not loopback needs --lab-token.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8471", value_parser = address,
          env = "MOCK_PORTAL_LAB")]
    pub lab: SocketAddr,
    /// Ask every control call for `Authorization: Bearer TOKEN`. Better given by its variable: other users see arguments.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MOCK_PORTAL_LAB_TOKEN",
        hide_env_values = true
    )]
    pub lab_token: Option<LabToken>,
    /// TLS for agents: PEM files of a certificate chain and its key, or `self-signed` for one made for this run.
    #[arg(long, value_name = "CERT,KEY|self-signed", env = "MOCK_PORTAL_TLS")]
    pub tls: Option<Tls>,
    /// How much the portal lets pass beside the protocol's own rules.
    #[arg(long, value_enum, default_value_t, env = "MOCK_PORTAL_PROFILE")]
    pub profile: ProfileName,
    /// Keep what the portal knows in this file, and begin with what is in it. It holds secrets in clear (mode 0600).
    ///
    /// Clusters, agents and their keys, documents, operations, releases, the clock, seen signatures and the release key
    /// outlive the portal, even a kill; journal and counters do not. One portal at a time owns the file. With --tls
    /// self-signed the certificate is another one after a restart: name one with --tls CERT,KEY.
    #[arg(long, value_name = "FILE", env = "MOCK_PORTAL_DATA")]
    pub data: Option<PathBuf>,
    /// With --data: KiB of changes after which the whole memory is written down in their place. Less starts sooner and
    /// writes more.
    #[arg(long, value_name = "KIB", default_value_t = 32 * 1024, requires = "data", env = "MOCK_PORTAL_DATA_CHECKPOINT")]
    pub data_checkpoint: u64,
    /// Make IDs, tokens and the release key the same in every run (with --data, in every first start). For tests only:
    /// whoever knows the seed knows them.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        env = "MOCK_PORTAL_SEED"
    )]
    pub seed: Option<u64>,
    /// Names that this portal chooses otherwise (headers, base path, members of a problem): a TOML file.
    #[arg(long, value_name = "FILE", env = "MOCK_PORTAL_DIALECT")]
    pub dialect: Option<PathBuf>,
    /// The private key that signs releases, as `keys make` writes it; otherwise the data file's, or one made for this run.
    #[arg(long, value_name = "FILE", env = "MOCK_PORTAL_RELEASE_KEY")]
    pub release_key: Option<PathBuf>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  mock-portal serve --tls self-signed
  mock-portal serve --listen 127.0.0.1:0 --lab 127.0.0.1:0 --seed 7 > ready.json &
  MOCK_PORTAL_LAB_TOKEN=correct-horse mock-portal serve --lab 0.0.0.0:8471
  mock-portal serve --data portal.data       goes on where it was, whatever ended it

With lab set to the ready line's lab_url:
  curl -s $lab                               all control calls, with their bodies
  curl -s $lab/tokens --json '{\"cluster_id\": \"c1\", \"node_name\": \"n1\"}'
  curl -s \"$lab/journal?code=refused&limit=5\"   what was refused, and why
  curl -s -X POST $lab/reset                 forget all but keys and addresses";

/// [`Profile`] as a word of the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ProfileName {
    /// Refuse HTTP that some portal or proxy may refuse: HTTP/1.0, a whole URL as target, a body on GET, two lengths …
    #[default]
    Strict,
    /// Take whatever HTTP/1.1 allows; the protocol's own rules hold as they are.
    Friendly,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Strict => Self::Strict,
            ProfileName::Friendly => Self::Friendly,
        }
    }
}

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tls {
    /// Made for this run.
    SelfSigned,
    /// From files.
    Files {
        /// The chain, PEM, the server's own certificate first.
        chain: PathBuf,
        /// Its private key, PEM.
        key: PathBuf,
    },
}

impl FromStr for Tls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(',') {
            None if text == "self-signed" => Ok(Self::SelfSigned),
            Some((chain, key)) if !chain.is_empty() && !key.is_empty() => Ok(Self::Files {
                chain: chain.into(),
                key: key.into(),
            }),
            _ => Err(
                "expected CERT,KEY (two PEM files, separated by a comma) or self-signed".to_owned(),
            ),
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    text.parse()
        .map_err(|_| "expected an IP address and a port, as 127.0.0.1:8470 or [::1]:0".to_owned())
}

/// Commands of `keys`.
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Write a release key and TLS files into a folder; files that are there already are left alone and refused.
    ///
    /// release.key (secret: for `serve --release-key`), release.json (its public half, for agents), ca.pem (for
    /// agents), tls-cert.pem and tls-key.pem (for `serve --tls`).
    Make {
        /// The folder; made when it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Show the ID and the public half of a release key.
    Show {
        /// The file, as `keys make` writes it.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Options of `openapi`.
#[derive(Debug, Args)]
#[command(after_help = OPENAPI_EXAMPLES)]
pub(super) struct Openapi {
    /// Which API: the agents' side, or the control API.
    #[arg(value_enum, value_name = "API", env = "MOCK_PORTAL_OPENAPI")]
    pub api: ApiName,
    /// The names that the portal chooses otherwise, as `serve --dialect` takes them; for `agent` only.
    #[arg(long, value_name = "FILE", env = "MOCK_PORTAL_DIALECT")]
    pub dialect: Option<PathBuf>,
}

const OPENAPI_EXAMPLES: &str = "\
Examples:
  mock-portal openapi agent > agent.json
  mock-portal openapi lab | jq '.paths | keys'
  curl -s \"$lab/openapi.json?api=agent\"     the same from a running portal";

/// [`mock_portal::openapi::Api`] as a word of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ApiName {
    /// What agents ask of the portal.
    Agent,
    /// The control API.
    Lab,
}

/// Options of `token`.
#[derive(Debug, Args)]
pub(super) struct Token {
    /// The control API of a running portal: the ready line's lab_url.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8471/_lab/v1",
        env = "MOCK_PORTAL_LAB_URL"
    )]
    pub lab_url: String,
    /// The token that the control API asks for.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "MOCK_PORTAL_LAB_TOKEN",
        hide_env_values = true
    )]
    pub lab_token: Option<LabToken>,
    /// The cluster; with --servers-per-cluster the clusters are ID-1, ID-2 …
    #[arg(long, value_name = "ID", env = "MOCK_PORTAL_CLUSTER")]
    pub cluster: ClusterId,
    /// The node; with --count the nodes are NAME-1, NAME-2 …
    #[arg(long, value_name = "NAME", env = "MOCK_PORTAL_NODE")]
    pub node: NodeName,
    /// Bind the token to this server; otherwise to the one that uses it first.
    #[arg(long, value_name = "N", env = "MOCK_PORTAL_SERVER_ID")]
    pub server_id: Option<u64>,
    /// Bind the token to this boot image; otherwise any is accepted.
    #[arg(long, value_name = "SHA256", env = "MOCK_PORTAL_BOOT_IMAGE")]
    pub boot_image: Option<Sha256Hex>,
    /// Seconds until the token expires.
    #[arg(long, value_name = "SECONDS", env = "MOCK_PORTAL_EXPIRES_IN")]
    pub expires_in: Option<u64>,
    /// How many tokens.
    #[arg(long, value_name = "N", env = "MOCK_PORTAL_COUNT")]
    pub count: Option<u32>,
    /// The number of the first of them, where others were made before.
    #[arg(long, value_name = "N", requires = "count", env = "MOCK_PORTAL_FIRST")]
    pub first: Option<u32>,
    /// How many of them go to one cluster.
    #[arg(long, value_name = "N", env = "MOCK_PORTAL_SERVERS_PER_CLUSTER")]
    pub servers_per_cluster: Option<u32>,
}

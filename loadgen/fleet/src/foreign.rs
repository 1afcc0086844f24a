//! What a run brings along for a portal that it did not start: tokens and release keys.
//!
//! Tokens come from a file, from a command's output or from an HTTP endpoint, always as the same JSON lines. An error never
//! quotes a line: it may hold a token.

use std::error::Error;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_drive::tls::{Trust, client_config};
use protocol::sign::{SigningPublicKey, VerifyingKey};
use protocol::verified::ReleaseKeys;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::Deserialize;

use portal_core::control::TokenLine;

/// How long an HTTP endpoint may take to answer with tokens.
const HTTP_SECONDS_MAX: u64 = 10;
/// What tokens may take for a fleet of any size, since there may be more of them than agents.
const TOKENS_BYTES: usize = 64 << 20;
/// What the token of one agent takes at most: a line has fewer bytes.
const TOKEN_BYTES_MAX: usize = 512;
/// Two keys and whatever is said about them.
const KEYS_BYTES_MAX: usize = 64 << 10;

/// Where tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// `FILE`.
    File(PathBuf),
    /// `cmd:…`: what this command writes to its standard output.
    Command(String),
    /// `http:…` or `https:…`: what this URL answers.
    Url(String),
}

/// Tokens, keys or identities that cannot be had; says where, why and what is expected.
#[derive(Debug, thiserror::Error)]
#[error("{source_of}: {why}")]
pub struct Unusable {
    source_of: String,
    why: String,
}

impl Unusable {
    pub(crate) fn new(source_of: impl Display, why: impl Display) -> Self {
        Self {
            source_of: source_of.to_string(),
            why: why.to_string(),
        }
    }
}

impl FromStr for TokenSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(command) = text.strip_prefix("cmd:") {
            return match command.trim() {
                "" => Err("the command after `cmd:` is missing".to_owned()),
                command => Ok(Self::Command(command.to_owned())),
            };
        }
        Ok(
            match text.starts_with("http:") || text.starts_with("https:") {
                true => Self::Url(text.to_owned()),
                false => Self::File(PathBuf::from(text)),
            },
        )
    }
}

impl TokenSource {
    /// Reads all tokens, for so many agents; a command is in `running` meanwhile. To be called outside of a runtime's
    /// threads: it waits.
    ///
    /// # Errors
    /// When they cannot be read, or a line is no token.
    pub fn read(&self, agents: u64, running: &TokenCommand) -> Result<Vec<TokenLine>, Unusable> {
        let agents = usize::try_from(agents).unwrap_or(usize::MAX);
        let bytes_max = agents
            .saturating_mul(TOKEN_BYTES_MAX)
            .saturating_add(TOKENS_BYTES);
        let (source_of, text) = match self {
            Self::File(path) => (path.display().to_string(), read_file(path, bytes_max)?),
            Self::Command(command) => (
                format!("cmd:{command}"),
                running.output_of(command, bytes_max)?,
            ),
            Self::Url(url) => (shown(url), body_of(url, bytes_max)?),
        };
        parse_tokens(&text).map_err(|why| Unusable { source_of, why })
    }
}

/// Tokens as JSON lines, or as the one object that `POST /tokens` of the mock portal answers with.
fn parse_tokens(text: &str) -> Result<Vec<TokenLine>, String> {
    #[derive(Deserialize)]
    struct Made {
        tokens: Vec<TokenLine>,
    }
    if let Ok(made) = serde_json::from_str::<Made>(text) {
        return Ok(made.tokens);
    }
    let mut tokens = Vec::new();
    for (at, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let token = serde_json::from_str(line).map_err(|error| {
            // Only the kind of the mistake and its place: serde's text may quote the line.
            let what = match error.classify() {
                serde_json::error::Category::Data => "a member is missing or of another type",
                _ => "no JSON",
            };
            format!(
                "line {}, column {}: {what}; expected {{\"token\", \"cluster_id\", \"node_name\", \"server_id\", \
                 \"boot_image_sha256\"}} on each line, the last two may be null",
                at + 1,
                error.column()
            )
        })?;
        tokens.push(token);
    }
    match tokens.is_empty() {
        true => Err("it holds no token".to_owned()),
        false => Ok(tokens),
    }
}

/// Reads to the end, which may never come: an error once there are more than `bytes_max`.
pub(crate) fn read_at_most(source: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > bytes_max {
        true => Err(io::Error::other(too_large(bytes_max))),
        false => Ok(bytes),
    }
}

fn too_large(bytes_max: usize) -> String {
    format!("it is larger than {} KiB", bytes_max / 1024)
}

fn read_file(path: &Path, bytes_max: usize) -> Result<String, Unusable> {
    let unusable = |why: String| Unusable::new(path.display(), why);
    let bytes = File::open(path)
        .and_then(|file| read_at_most(file, bytes_max))
        .map_err(|error| unusable(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unusable("it is no UTF-8".to_owned()))
}

/// The command that makes tokens, while it runs: nobody waits for it any more once the run is ended.
///
/// It has a process group of its own, so that whatever it has started ends with it.
#[derive(Debug, Clone, Default)]
pub struct TokenCommand(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
enum Running {
    #[default]
    Nothing,
    /// The group of this process, which nobody has reaped yet.
    Group(Pid),
    /// Nothing is to run any more.
    Ended,
}

impl TokenCommand {
    /// Ends it with all that it has started, if it runs; from now on none begins.
    pub fn end(&self) {
        if let Running::Group(leader) = std::mem::replace(&mut *self.lock(), Running::Ended) {
            end_group(leader);
        }
    }

    fn output_of(&self, command: &str, bytes_max: usize) -> Result<String, Unusable> {
        let unusable = |why: String| Unusable::new(format!("cmd:{command}"), why);
        let failed = |error: io::Error| unusable(error.to_string());
        let (mut child, leader) = self.start(command).map_err(failed)?;
        let stdout = child.stdout.take().expect("it was asked for");
        let output = read_at_most(stdout, bytes_max);
        if output.is_err() {
            // It would write for ever.
            end_group(leader);
        }
        let status = self.wait(&mut child, leader).map_err(failed)?;
        let output = output.map_err(failed)?;
        if !status.success() {
            return Err(unusable(format!("it ended with {status}")));
        }
        String::from_utf8(output).map_err(|_| unusable("its output is no UTF-8".to_owned()))
    }

    fn start(&self, command: &str) -> io::Result<(Child, Pid)> {
        // Held until the group is known: a run that is ended meanwhile would miss it.
        let mut running = self.lock();
        if let Running::Ended = *running {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        let leader = Pid::from_child(&child);
        *running = Running::Group(leader);
        Ok((child, leader))
    }

    /// Waits for its end. The number may be another process's once it is reaped, so it is forgotten before.
    fn wait(&self, child: &mut Child, leader: Pid) -> io::Result<ExitStatus> {
        let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::io::retry_on_intr(|| waitid(WaitId::Pid(leader), unreaped))?;
        let mut running = self.lock();
        if let Running::Group(_) = *running {
            *running = Running::Nothing;
        }
        child.wait()
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gone already is as good.
fn end_group(leader: Pid) {
    let _ = kill_process_group(leader, Signal::KILL);
}

/// A URL without what may be a secret: user and password, and the query.
fn shown(url: &str) -> String {
    let (place, query) = match url.split_once('?') {
        Some((place, _)) => (place, "?…"),
        None => (url, ""),
    };
    match place.split_once("//") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let host = authority.rsplit('@').next().unwrap_or_default();
            let user = if host == authority { "" } else { "…@" };
            format!("{scheme}//{user}{host}{path}{query}")
        }
        None => format!("{place}{query}"),
    }
}

/// What went wrong, down to the cause that helps: the outer ones say no more than that something did.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
    let causes: Vec<String> = causes.map(|cause| cause.to_string()).collect();
    causes.join(": ")
}

fn body_of(url: &str, bytes_max: usize) -> Result<String, Unusable> {
    let unusable = |why: String| Unusable {
        source_of: shown(url),
        why,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unusable(error.to_string()))?;
    let tls = client_config(&Trust::Platform).map_err(|error| unusable(error.to_string()))?;
    let asked = async {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(HTTP_SECONDS_MAX))
            .build()?;
        let mut answer = client.get(url).send().await?;
        let mut body = Vec::new();
        while body.len() <= bytes_max
            && let Some(chunk) = answer.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok((answer.status(), body))
    };
    let (status, body) = runtime
        .block_on(asked)
        .map_err(|error| unusable(causes(error)))?;
    match status.as_u16() {
        200 if body.len() > bytes_max => Err(unusable(too_large(bytes_max))),
        200 => String::from_utf8(body).map_err(|_| unusable("its answer is no UTF-8".to_owned())),
        other => Err(unusable(format!("it answered {other}, expected 200"))),
    }
}

/// Reads a file of release keys: one or two public keys in base64, one a line, where lines that begin with `#` say what
/// they are; or what the mock portal says about its own, its ready line and the `release.json` of `keys make`.
///
/// # Errors
/// When the file cannot be read, or holds something else.
pub fn read_release_keys(path: &Path) -> Result<Vec<SigningPublicKey>, Unusable> {
    let unusable = |why: String| Unusable {
        source_of: path.display().to_string(),
        why,
    };
    #[derive(Deserialize)]
    struct Said {
        release_keys: Vec<Key>,
    }
    #[derive(Deserialize)]
    struct Key {
        public: String,
    }
    let mut text = read_file(path, KEYS_BYTES_MAX)?;
    if let Ok(said) = serde_json::from_str::<Said>(&text) {
        let keys = said.release_keys.into_iter().map(|key| key.public);
        text = keys.collect::<Vec<_>>().join("\n");
    }
    let lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut keys = Vec::new();
    for (number, line) in lines {
        let expected = "expected the 32 bytes of an Ed25519 public key in base64";
        let public: SigningPublicKey = line
            .parse()
            .map_err(|_| unusable(format!("line {number} is no key: {expected}")))?;
        let key = VerifyingKey::parse(&public)
            .map_err(|why| unusable(format!("line {number} is no key: {why}; {expected}")))?;
        keys.push(key);
    }
    if keys.is_empty() {
        return Err(unusable(
            "it holds no key: expected one or two public keys in base64".to_owned(),
        ));
    }
    let public = keys.iter().map(VerifyingKey::public).collect();
    // An agent has so many and no more.
    ReleaseKeys::new(keys).map_err(|why| unusable(why.to_string()))?;
    Ok(public)
}

#[cfg(test)]
mod tests {
    use protocol::sign::SigningKey;

    use super::*;

    const LINE: &str = r#"{"token":"pbxe_secret","cluster_id":"c","node_name":"n","server_id":7,"boot_image_sha256":null}"#;

    #[test]
    fn a_source_is_told_by_how_it_begins() {
        for (text, source) in [
            ("tokens.jsonl", TokenSource::File("tokens.jsonl".into())),
            (
                "cmd: make tokens",
                TokenSource::Command("make tokens".to_owned()),
            ),
            (
                "http://127.0.0.1/t",
                TokenSource::Url("http://127.0.0.1/t".to_owned()),
            ),
            (
                "https://example.com/t",
                TokenSource::Url("https://example.com/t".to_owned()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(source));
        }
        assert!("cmd: ".parse::<TokenSource>().is_err());
    }

    #[test]
    fn tokens_are_lines_or_the_answer_of_the_control_api() {
        let other = LINE.replace("null", &format!("\"{}\"", "a".repeat(64)));
        for (text, count) in [
            (format!("{LINE}\n\n{other}\n"), 2),
            (format!("{{\"tokens\": [{LINE}, {other}]}}"), 2),
            (LINE.to_owned(), 1),
        ] {
            let tokens = parse_tokens(&text).unwrap();
            assert_eq!(tokens.len(), count);
            assert_eq!(
                (tokens[0].server_id.unwrap().0, tokens[0].boot_image_sha256),
                (7, None)
            );
        }
    }

    #[test]
    fn a_line_that_is_none_is_named_and_not_quoted() {
        for (text, says) in [
            ("", "no token"),
            ("pbxe_secret", "line 1"),
            (&format!("{LINE}\n{{\"token\":\"pbxe_secret\"}}"), "line 2"),
            (&LINE.replace("\"c\"", "7"), "line 1"),
        ] {
            let why = parse_tokens(text).unwrap_err();
            assert!(
                why.contains(says) && !why.contains("secret"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn a_commands_output_and_its_failure_are_seen() {
        let printed = TokenSource::Command(format!("echo '{LINE}'"))
            .read(1, &TokenCommand::default())
            .unwrap();
        assert_eq!(printed.len(), 1);
        let failed = TokenSource::Command("exit 3".to_owned())
            .read(1, &TokenCommand::default())
            .unwrap_err();
        assert!(failed.to_string().contains('3'), "{failed}");
        let missing = TokenSource::File("no/such/file".into())
            .read(1, &TokenCommand::default())
            .unwrap_err();
        assert!(missing.to_string().contains("no/such/file"), "{missing}");
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let output_of = |command| TokenCommand::default().output_of(command, 4096);
        for command in ["yes", "cat /dev/zero", "yes; exit 3"] {
            let why = output_of(command).unwrap_err().to_string();
            assert_eq!(why, format!("cmd:{command}: it is larger than 4 KiB"));
        }
        assert_eq!(output_of("printf %4096d 7").unwrap().len(), 4096);
        let why = read_file(Path::new("/dev/zero"), 4096).unwrap_err();
        assert_eq!(why.to_string(), "/dev/zero: it is larger than 4 KiB");
    }

    #[test]
    fn a_url_is_told_without_what_may_be_secret() {
        for (url, told) in [
            ("https://t.example/tokens", "https://t.example/tokens"),
            (
                "https://me:pw@t.example/a@b?key=pw",
                "https://…@t.example/a@b?…",
            ),
            ("http:pw@t.example?pw", "http:pw@t.example?…"),
            ("https://a@pw@t.example", "https://…@t.example"),
        ] {
            assert_eq!(shown(url), told);
        }
    }

    #[test]
    fn release_keys_are_one_or_two_public_keys() {
        let key = |seed| SigningKey::from_seed([seed; 32]).public().to_string();
        let check = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("keys");
            std::fs::write(&file, text).unwrap();
            read_release_keys(&file)
                .map(|keys| keys.len())
                .map_err(|e| e.to_string())
        };
        assert_eq!(check(&format!("# ours\n{}\n", key(1))), Ok(1));
        assert_eq!(check(&format!("{}\n{}\n", key(1), key(2))), Ok(2));
        let said = format!(
            r#"{{"agents_url": "…", "release_keys": [{{"id": "…", "public": "{}"}}]}}"#,
            key(1)
        );
        assert_eq!(check(&said), Ok(1));
        for (text, says) in [
            ("# none\n".to_owned(), "no key"),
            ("AAAA\n".to_owned(), "line 1"),
            (format!("{}\n{}\n{}\n", key(1), key(2), key(3)), "3"),
            (
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n".to_owned(),
                "line 1",
            ),
        ] {
            let why = check(&text).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}

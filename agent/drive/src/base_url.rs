//! The portal's base URL: which ones are accepted, and what a request makes of it.
//!
//! Plain `http` goes to loopback only (WIRE-3). A prefix inside the base is part of the request's target and never of
//! the signed path (SIGN-2): a proxy may strip it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use protocol::dialect::Dialect;

/// A base URL that an agent may call, for example `https://agents.example.com` or `https://example.com/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    secure: bool,
    host: Host,
    port: u16,
    authority: String,
    prefix: String,
}

/// What stands between `://` and the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name to resolve; lower case.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// A base URL that is refused; says which part and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("portal address {url:?} is refused: {why}")]
pub struct UrlRefused {
    /// The address as given, cut where it may hold a password.
    pub url: String,
    /// What is wrong with it.
    pub why: String,
}

impl BaseUrl {
    /// Reads a base URL. A trailing `/` and a trailing base path of the dialect (`/agent/v1`) are accepted and cut
    /// (FILE-15).
    ///
    /// # Errors
    /// No URL, another scheme than `https` (`http` to loopback, WIRE-3), a user name, a query, a fragment, port 0.
    pub fn parse(url: &str, dialect: &Dialect) -> Result<Self, UrlRefused> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| refused(url, "it must begin with https://"))?;
        if rest
            .split(['/', '?', '#'])
            .next()
            .is_some_and(|authority| authority.contains('@'))
        {
            let cut = format!("{scheme}://…@…");
            return Err(refused(
                &cut,
                "a user name or password has no place in it: requests are signed",
            ));
        }
        if let Some(sign) = rest.chars().find(|c| matches!(c, '?' | '#')) {
            return Err(refused(
                url,
                format!("it must end with its path, without `{sign}`"),
            ));
        }
        let uri = Uri::from_str(url).map_err(|error| refused(url, error.to_string()))?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(refused(url, "it must begin with https://")),
        };
        let host = Host::parse(uri.host().unwrap_or_default())
            .ok_or_else(|| refused(url, "it names no host"))?;
        if !secure && !host.may_be_loopback() {
            return Err(refused(
                url,
                "plain http is for loopback addresses only; write https://",
            ));
        }
        let authority = uri.authority().map_or("", |a| a.as_str()).to_owned();
        let written = authority.get(uri.host().unwrap_or_default().len()..);
        let port = match written.unwrap_or_default().strip_prefix(':') {
            None if secure => 443,
            None => 80,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return Err(refused(url, format!("{digits:?} is no port"))),
            },
        };
        let path = uri.path().trim_end_matches('/');
        let prefix = path
            .strip_suffix(dialect.base_path())
            .unwrap_or(path)
            .trim_end_matches('/');
        Ok(Self {
            secure,
            host,
            port,
            authority,
            prefix: prefix.to_owned(),
        })
    }

    /// Whether it is `https`.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, 443 or 80 where none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether every address that it may lead to is this machine's own, as far as its text tells.
    pub fn is_loopback(&self) -> bool {
        self.host.may_be_loopback()
    }

    /// Host and port as written: the `Host` header.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The target of a request: the prefix and `path`, which is what is signed.
    pub(crate) fn target(&self, path: &str) -> Result<PathAndQuery, http::uri::InvalidUri> {
        let mut target = String::with_capacity(self.prefix.len() + path.len());
        target.push_str(&self.prefix);
        target.push_str(path);
        PathAndQuery::from_maybe_shared(target)
    }

    /// Whether a connection to `address` is allowed: plain `http` never leaves the machine, whatever a name resolves to
    /// (WIRE-3).
    pub(crate) fn allows(&self, address: &SocketAddr) -> bool {
        self.secure || address.ip().is_loopback()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let bare = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .unwrap_or(text);
        match bare.parse::<IpAddr>() {
            Ok(address) => Some(Host::Address(address)),
            Err(_) if text.is_empty() => None,
            Err(_) => Some(Host::Name(text.to_ascii_lowercase())),
        }
    }

    /// An address of loopback, or the one name for it; what the name resolves to is checked again when it has been.
    fn may_be_loopback(&self) -> bool {
        match self {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }
}

fn refused(url: &str, why: impl Into<String>) -> UrlRefused {
    UrlRefused {
        url: url.chars().take(200).collect(),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<BaseUrl, UrlRefused> {
        BaseUrl::parse(url, &Dialect::default())
    }

    // rule WIRE-3, rule SIGN-2
    #[test]
    fn a_base_is_read_into_where_to_connect_and_what_to_ask_for() {
        for (url, shown, port, target) in [
            (
                "https://agents.example.com",
                "https://agents.example.com",
                443,
                "/agent/v1/sync",
            ),
            (
                "https://Agents.example.com/",
                "https://Agents.example.com",
                443,
                "/agent/v1/sync",
            ),
            (
                "https://agents.example.com/agent/v1",
                "https://agents.example.com",
                443,
                "/agent/v1/sync",
            ),
            (
                "https://example.com:8443/prefix/agent/v1/",
                "https://example.com:8443/prefix",
                8443,
                "/prefix/agent/v1/sync",
            ),
            (
                "https://[2001:db8::1]:8443/p",
                "https://[2001:db8::1]:8443/p",
                8443,
                "/p/agent/v1/sync",
            ),
            (
                "http://127.0.0.1:8470/agent/v1",
                "http://127.0.0.1:8470",
                8470,
                "/agent/v1/sync",
            ),
            ("http://[::1]:1", "http://[::1]:1", 1, "/agent/v1/sync"),
            ("http://localhost", "http://localhost", 80, "/agent/v1/sync"),
        ] {
            let base = parse(url).unwrap();
            assert_eq!(
                (base.to_string().as_str(), base.port()),
                (shown, port),
                "{url}"
            );
            assert_eq!(base.target("/agent/v1/sync").unwrap(), target, "{url}");
        }
    }

    // rule WIRE-3
    #[test]
    fn what_must_not_be_called_is_refused_with_the_reason() {
        for (url, says) in [
            ("", "https://"),
            ("agents.example.com", "https://"),
            ("ftp://agents.example.com", "https://"),
            ("http://agents.example.com", "loopback"),
            ("http://10.0.0.1:8470", "loopback"),
            ("http://localhost.example.com", "loopback"),
            ("http://[2001:db8::1]", "loopback"),
            ("http://127.0.0.1@example.com", "user name"),
            ("https://user:secret@example.com", "user name"),
            ("https://example.com/?x=1", "`?`"),
            ("https://example.com/#x", "`#`"),
            ("https://example.com:0", "no port"),
            ("https://example.com:", "no port"),
            ("https://example.com:99999", "no port"),
            ("https:///agent/v1", ""),
            ("https://exa mple.com", ""),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    // rule WIRE-3
    #[test]
    fn a_name_for_loopback_that_resolves_elsewhere_is_not_called_in_clear() {
        let plain = parse("http://localhost:8470").unwrap();
        let secure = parse("https://localhost:8470").unwrap();
        for (address, allowed) in [
            ("127.0.0.1:8470", true),
            ("[::1]:8470", true),
            ("10.0.0.1:8470", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(plain.allows(&address), allowed, "{address}");
            assert!(secure.allows(&address));
        }
    }
}

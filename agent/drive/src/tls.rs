//! TLS of the client: the one place of this crate that chooses its cryptography, and whom it trusts.
//!
//! An agent proves itself by its signatures, never by a client certificate. A session is resumed by the connection
//! that made it and by no other: two agents of one process are two strangers to the portal, as they would be on two
//! nodes (case L34).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore, SupportedCipherSuite};
use rustls_platform_verifier::BuilderVerifierExt;

/// Whose certificates the portal may show.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// What the machine trusts.
    #[default]
    Platform,
    /// These authorities and nobody else: a portal's private one.
    Only(Vec<CertificateDer<'static>>),
}

/// A TLS configuration that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsRefused {
    /// The text holds no certificate.
    #[error("no certificate in it: expected PEM with BEGIN CERTIFICATE")]
    NoCertificate,
    /// A block of the text is not what it says.
    #[error("its PEM cannot be read: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// A certificate cannot be an authority, or the platform's cannot be read.
    #[error("no authority to trust: {0}")]
    Roots(rustls::Error),
}

impl Trust {
    /// Reads the authorities of a PEM text.
    ///
    /// # Errors
    /// [`TlsRefused::NoCertificate`], [`TlsRefused::Pem`].
    pub fn only_pem(text: &[u8]) -> Result<Self, TlsRefused> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        match read {
            Ok(authorities) if authorities.is_empty() => Err(TlsRefused::NoCertificate),
            Ok(authorities) => Ok(Trust::Only(authorities)),
            Err(error) => Err(TlsRefused::Pem(error)),
        }
    }
}

/// The cryptography of every TLS connection of an agent: ring, with AES-128 and SHA-256 asked for first. What SHA-256 takes
/// of a handshake has instructions of its own in most processors; SHA-384, which rustls asks for first, has none.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let others = |suite: &SupportedCipherSuite| suite.suite() != FIRST_SUITE;
    provider.cipher_suites.sort_by_key(others);
    Arc::new(provider)
}

const FIRST_SUITE: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;

/// A client's configuration: rustls's safe versions, HTTP/1.1 only, no session yet. Control calls and downloads can be
/// made with it as well.
///
/// # Errors
/// [`TlsRefused::Roots`].
pub fn client_config(trust: &Trust) -> Result<ClientConfig, TlsRefused> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsRefused::Roots)?;
    let builder = match trust {
        Trust::Platform => builder
            .with_platform_verifier()
            .map_err(TlsRefused::Roots)?,
        Trust::Only(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority.clone()).map_err(TlsRefused::Roots)?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The same configuration with a place for the sessions of one connection.
pub(crate) fn with_own_session(shared: &ClientConfig) -> Arc<ClientConfig> {
    let mut own = shared.clone();
    own.resumption = Resumption::store(Arc::new(OwnSession::default()));
    Arc::new(own)
}

/// The last session of one connection to one server. A ticket of TLS 1.3 is used once, so one is enough: the next
/// connection brings the next.
#[derive(Default)]
struct OwnSession {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: Option<Tls13ClientSessionValue>,
}

impl OwnSession {
    fn kept<R>(&self, with: impl FnOnce(&mut Kept) -> R) -> R {
        with(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientSessionStore for OwnSession {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept(|kept| kept.group = Some(group));
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept(|kept| kept.group)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.kept(|kept| kept.tls12 = Some(session));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept(|kept| kept.tls12.clone())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept(|kept| kept.tls12 = None);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.kept(|kept| kept.tls13 = Some(ticket));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept(|kept| kept.tls13.take())
    }
}

impl fmt::Debug for OwnSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnSession(secrets redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_that_costs_least_is_asked_for_first_and_none_is_left_out() {
        let (ours, all) = (provider(), rustls::crypto::ring::default_provider());
        let first = ours.cipher_suites.first().map(SupportedCipherSuite::suite);
        assert_eq!(first, Some(FIRST_SUITE));
        assert_eq!(ours.cipher_suites.len(), all.cipher_suites.len());
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        assert!(matches!(
            Trust::only_pem(b""),
            Err(TlsRefused::NoCertificate)
        ));
        let broken = b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n";
        assert!(matches!(Trust::only_pem(broken), Err(TlsRefused::Pem(_))));
        let nonsense = Trust::Only(vec![CertificateDer::from(vec![1, 2, 3])]);
        assert!(matches!(
            client_config(&nonsense),
            Err(TlsRefused::Roots(_))
        ));
    }
}

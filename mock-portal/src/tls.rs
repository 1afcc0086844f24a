//! TLS of the agents' address: certificates made for a run, or read from files.
//!
//! The one place of this crate that chooses the cryptography of TLS ([`provider`]). It decides nothing about who may
//! connect: an agent proves itself by its signatures, never by a client certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The cryptography of every TLS connection of this crate: ring.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate chain, its private key and, when both were made here, the authority that signed them.
pub struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    made: Option<Made>,
}

/// PEM texts of what [`Certificate::self_signed`] made.
struct Made {
    ca_pem: String,
    chain_pem: String,
    key_pem: String,
}

/// A certificate that no server can run with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text holds no certificate in PEM.
    #[error("no certificate in it: expected PEM with BEGIN CERTIFICATE, the server's own first")]
    NoCertificate,
    /// A block of the text is not what it says.
    #[error("its PEM cannot be read: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// The text holds no private key in PEM.
    #[error("no private key in it: expected PEM with BEGIN PRIVATE KEY, not encrypted")]
    NoKey,
    /// Certificate and key do not belong together, or rustls cannot use them.
    #[error("certificate and key cannot be used together: {0}")]
    Unusable(rustls::Error),
    /// The system's random source failed, or a certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Making(rcgen::Error),
}

/// The names that a certificate made here is good for: this machine, as itself.
fn own_names() -> Result<Vec<SanType>, rcgen::Error> {
    Ok(vec![
        SanType::DnsName("localhost".try_into()?),
        SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        SanType::IpAddress(IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ])
}

/// Parameters with a validity that no wrong clock falls out of: a test of clocks must fail at the protocol, not here.
fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2099, 12, 31);
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

impl Certificate {
    /// Makes an authority and a certificate signed by it for `localhost`, 127.0.0.1, ::1 and `also`, the address that
    /// is listened on.
    ///
    /// # Errors
    /// [`TlsError::Making`] when the system's random source fails.
    pub fn self_signed(also: Option<IpAddr>) -> Result<Self, TlsError> {
        Self::make(also).map_err(TlsError::Making)
    }

    fn make(also: Option<IpAddr>) -> Result<Self, rcgen::Error> {
        let mut ca = parameters("mock-portal test authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_key = KeyPair::generate()?;
        let ca_pem = ca.self_signed(&ca_key)?.pem();

        let mut leaf = parameters("mock-portal");
        leaf.subject_alt_names = own_names()?;
        let also = also
            .filter(|address| !address.is_unspecified())
            .map(SanType::IpAddress);
        leaf.subject_alt_names
            .extend(also.filter(|name| !own_names().is_ok_and(|own| own.contains(name))));
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf_key = KeyPair::generate()?;
        let leaf = leaf.signed_by(&leaf_key, &Issuer::new(ca, ca_key))?;

        Ok(Self {
            chain: vec![leaf.der().clone()],
            key: PrivatePkcs8KeyDer::from(leaf_key.serialize_der()).into(),
            made: Some(Made {
                ca_pem,
                chain_pem: leaf.pem(),
                key_pem: leaf_key.serialize_pem(),
            }),
        })
    }

    /// Reads a chain (the server's own certificate first) from PEM.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(TlsError::Pem)?;
        if chain.is_empty() {
            Err(TlsError::NoCertificate)
        } else {
            Ok(chain)
        }
    }

    /// Reads a private key (PKCS#8, PKCS#1 or SEC1, not encrypted) from PEM.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => TlsError::NoKey,
            other => TlsError::Pem(other),
        })
    }

    /// A certificate of somebody else's authority.
    pub fn given(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self {
            chain,
            key,
            made: None,
        }
    }

    /// The authority's certificate in PEM, for the agents' `ca_file`; none for a certificate from files.
    pub fn ca_pem(&self) -> Option<&str> {
        self.made.as_ref().map(|made| made.ca_pem.as_str())
    }

    /// The server's chain and private key in PEM, to write them to files; none for a certificate from files.
    pub fn pem(&self) -> Option<(&str, &str)> {
        self.made
            .as_ref()
            .map(|made| (made.chain_pem.as_str(), made.key_pem.as_str()))
    }

    /// What the accept loop needs. HTTP/1.1 only; sessions are resumed by tickets, so that a thousand agents that come
    /// back need no table here.
    ///
    /// # Errors
    /// [`TlsError::Unusable`] when key and certificate do not belong together.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(self.chain.clone(), self.key.clone_key())
            })
            .map_err(TlsError::Unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(TlsError::Unusable)?;
        Ok(Arc::new(config))
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let from = if self.made.is_some() {
            "made here"
        } else {
            "from files"
        };
        write!(formatter, "Certificate({from}, private key redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_here_is_read_back_and_served() {
        let made = Certificate::self_signed(None).unwrap();
        let (chain, key) = made.pem().unwrap();
        let read = Certificate::given(
            Certificate::read_chain(chain.as_bytes()).unwrap(),
            Certificate::read_key(key.as_bytes()).unwrap(),
        );
        assert_eq!(read.chain, made.chain);
        assert_eq!(read.ca_pem(), None);
        read.server_config().unwrap();
    }

    #[test]
    fn what_cannot_be_served_says_why() {
        let (one, other) = (
            Certificate::self_signed(None).unwrap(),
            Certificate::self_signed(None).unwrap(),
        );
        let (chain, key) = one.pem().unwrap();
        for (error, says) in [
            (
                Certificate::read_chain(b"").unwrap_err(),
                "BEGIN CERTIFICATE",
            ),
            (
                Certificate::read_chain(key.as_bytes()).unwrap_err(),
                "no certificate",
            ),
            (
                Certificate::read_key(chain.as_bytes()).unwrap_err(),
                "no private key",
            ),
            (
                Certificate::given(one.chain.clone(), other.key.clone_key())
                    .server_config()
                    .unwrap_err(),
                "together",
            ),
        ] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn no_key_shows_in_debug() {
        assert_eq!(
            format!("{:?}", Certificate::self_signed(None).unwrap()),
            "Certificate(made here, private key redacted)"
        );
    }
}

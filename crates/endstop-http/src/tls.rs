//! TLS: the trusted authorities, and the handshake.

use crate::host::bare;
use crate::stream::Io;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::Verifier;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use tokio_rustls::TlsConnector;

/// Certificates of authorities. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Certificates(Arc<Vec<CertificateDer<'static>>>);

/// The reason why the certificate of an authority cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A block is not valid PEM.
    #[error("a block is not valid PEM")]
    Pem,
    /// The text contains no certificate.
    #[error("no certificate found; expected PEM, which has a line `-----BEGIN CERTIFICATE-----`")]
    Missing,
    /// A block is not the certificate of an authority.
    #[error("a block is not a valid certificate: {0}")]
    Invalid(#[source] rustls::Error),
}

impl Certificates {
    /// Reads the certificates of a PEM text. Blocks of other kinds are ignored.
    ///
    /// # Errors
    /// The text has no certificate, or one that is not valid.
    ///
    /// ```
    /// use endstop_http::{CertificateError, Certificates};
    /// assert!(matches!(Certificates::from_pem(b"none"), Err(CertificateError::Missing)));
    /// ```
    pub fn from_pem(pem: &[u8]) -> Result<Certificates, CertificateError> {
        let mut all = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            all.push(certificate.map_err(|_| CertificateError::Pem)?);
        }
        if all.is_empty() {
            return Err(CertificateError::Missing);
        }
        let mut store = RootCertStore::empty();
        for certificate in &all {
            // The store checks what a verifier would reject later, without a name.
            store.add(certificate.clone()).map_err(CertificateError::Invalid)?;
        }
        Ok(Certificates(Arc::new(all)))
    }
}

impl Extend<Certificates> for Certificates {
    fn extend<T: IntoIterator<Item = Certificates>>(&mut self, more: T) {
        for more in more {
            if self.0.is_empty() {
                self.0 = more.0;
            } else {
                Arc::make_mut(&mut self.0).extend_from_slice(&more.0);
            }
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({})", self.0.len())
    }
}

/// The settings of TLS, which are loaded when they are first used: loading the authorities of the
/// system takes time that a client of plain `http` can save.
pub(crate) struct Tls {
    authorities: Certificates,
    loaded: OnceLock<Result<Configs, rustls::Error>>,
}

/// The settings of handshakes.
#[derive(Clone)]
pub(crate) struct Configs {
    /// With servers, which may choose HTTP/2.
    pub(crate) server: Arc<ClientConfig>,
    /// With proxies. A proxy is asked with HTTP/1.1.
    pub(crate) proxy: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new(authorities: Certificates) -> Tls {
        Tls { authorities, loaded: OnceLock::new() }
    }

    /// Returns the settings, which are loaded if this was not done before.
    pub(crate) fn load(&self) -> Result<Configs, rustls::Error> {
        self.loaded.get_or_init(|| self.configs()).clone()
    }

    fn configs(&self) -> Result<Configs, rustls::Error> {
        // A program may have installed another one, for example one that is certified.
        let installed = CryptoProvider::get_default().cloned();
        let crypto = installed.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
        let verifier = self.verifier(&crypto)?;
        let proxy = ClientConfig::builder_with_provider(crypto)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        // Both settings share the verifier, whose authorities take megabytes.
        let mut server = proxy.clone();
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Configs { server: Arc::new(server), proxy: Arc::new(proxy) })
    }

    fn verifier(&self, crypto: &Arc<CryptoProvider>) -> Result<Verifier, rustls::Error> {
        if self.authorities.0.is_empty() {
            return Verifier::new(Arc::clone(crypto));
        }
        #[cfg(not(target_os = "android"))]
        return Verifier::new_with_extra_roots(self.authorities.0.to_vec(), Arc::clone(crypto));
        #[cfg(target_os = "android")]
        Err(rustls::Error::General(
            "additional authorities are not supported on Android".to_owned(),
        ))
    }
}

/// Negotiates TLS. Returns the stream, and `true` if the server chose HTTP/2.
pub(crate) async fn handshake(
    stream: Box<dyn Io>,
    host: &str,
    config: Arc<ClientConfig>,
) -> io::Result<(Box<dyn Io>, bool)> {
    let name = ServerName::try_from(bare(host).to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the host is not a valid name"))?;
    let tls = TlsConnector::from(config).connect(name, stream).await?;
    let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((Box::new(tls), h2))
}

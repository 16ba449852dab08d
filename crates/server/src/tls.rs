//! TLS: the server's certificate and key, and the handshake.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, InconsistentKeys, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A larger file is not taken.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A longer chain is not taken: clients take ten or so.
const CERTIFICATES_MAX: usize = 16;
/// A client has this long for the handshake, and then as long as any other for a request.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// What is spoken over TLS.
const PROTOCOL: &[u8] = b"http/1.1";

/// Why a certificate or a key is not taken. Nothing of a file is shown: it may be a key.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct TlsError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it has no certificate in PEM form (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    #[error("it has more than {CERTIFICATES_MAX} certificates")]
    TooManyCertificates,
    #[error("it has no private key in PEM form (-----BEGIN PRIVATE KEY-----), without a password")]
    NoKey,
    #[error("it is not PEM as it should be: {0}")]
    Pem(&'static str),
    #[error("it is not the key of the certificate in {}", .0.display())]
    Mismatch(PathBuf),
    #[error("it is not taken: {0}")]
    Refused(rustls::Error),
}

/// What a server that speaks TLS shows and proves.
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a certificate, followed by those that lead to a root, and its private key, all in PEM
    /// form.
    ///
    /// # Errors
    /// A file that cannot be read or taken, or a key of another certificate.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let of = |path: &Path| {
            let path = path.to_path_buf();
            |problem| TlsError { path, problem }
        };
        let chain = chain(certificate).map_err(of(certificate))?;
        let secret = private_key(key).map_err(of(key))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Problem::Refused)
            .map_err(of(certificate))?
            .with_no_client_auth()
            .with_single_cert(chain, secret);
        let mut config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                of(key)(Problem::Mismatch(certificate.to_path_buf()))
            }
            rustls::Error::InvalidCertificate(_) => of(certificate)(Problem::Refused(error)),
            error => of(key)(Problem::Refused(error)),
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Greets a client; `None` where that fails or takes too long, which is the client's matter.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        tokio::time::timeout(HANDSHAKE_TIME_MAX, self.0.accept(stream)).await.ok()?.ok()
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let bytes = read(path)?;
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&bytes).take(CERTIFICATES_MAX + 1).collect();
    let chain = chain.map_err(|error| in_words(error, Problem::NoCertificate))?;
    match chain.len() {
        0 => Err(Problem::NoCertificate),
        1..=CERTIFICATES_MAX => Ok(chain),
        _ => Err(Problem::TooManyCertificates),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| in_words(error, Problem::NoKey))
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Problem::TooLarge);
    }
    Ok(bytes)
}

/// What is wrong with a file, without the bytes that the crate's own words show.
fn in_words(error: pem::Error, none: Problem) -> Problem {
    match error {
        pem::Error::MissingSectionEnd { .. } => Problem::Pem("an END line is missing"),
        pem::Error::IllegalSectionStart { .. } => Problem::Pem("a BEGIN line is broken"),
        pem::Error::Base64Decode(_) => Problem::Pem("what is between the lines is not base64"),
        pem::Error::NoItemsFound => none,
        _ => Problem::Pem("it cannot be read"),
    }
}

//! The flags of who may reach a server.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use server::Origin;

/// Who may reach the server, and by which name.
#[derive(Args)]
pub(crate) struct AccessArguments {
    /// Other names of this server, as a proxy uses
    ///
    /// A server on a loopback address answers to localhost and to the addresses of this machine
    /// only: a page of another site, whose name leads here, reaches nothing (DNS rebinding). On
    /// other addresses any name does, as long as none is given here.
    #[arg(
        long = "host-name",
        env = "REFRAIN_HOST_NAME",
        value_name = "NAME",
        value_delimiter = ',',
        hide_short_help = true
    )]
    host_names: Vec<String>,
    /// Pages that may ask from a browser [default: none]
    ///
    /// Their origins, as https://chat.example or http://localhost:3000 (CORS); * is any page that a
    /// browser of whoever reaches the server opens. Where keys are asked for, they need one too.
    #[arg(
        long = "cors-origin",
        env = "REFRAIN_CORS_ORIGIN",
        value_name = "ORIGIN",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) origins: Vec<Origin>,
    /// Speak TLS, with this certificate [default: HTTP]
    ///
    /// In PEM form, followed by the certificates that lead to its root. Both files are read once,
    /// at the start.
    #[arg(
        long,
        env = "REFRAIN_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key",
        hide_short_help = true
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert
    ///
    /// In PEM form, without a password.
    #[arg(
        long,
        env = "REFRAIN_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert",
        hide_short_help = true
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Append a line for each request [default: none]
    ///
    /// A JSON object without any text of prompts or answers: when, whose, what was asked, what was
    /// reused, and how long it took. - is the output.
    #[arg(long, env = "REFRAIN_ACCESS_LOG", value_name = "FILE", hide_short_help = true)]
    pub(crate) access_log: Option<PathBuf>,
}

impl AccessArguments {
    /// The names that requests may use where the server listens on `address`; `None` is any.
    pub(crate) fn host_names(&self, address: IpAddr) -> Option<Vec<String>> {
        let names: Vec<String> = self.host_names.iter().map(|name| name.to_lowercase()).collect();
        (is_loopback(address) || !names.is_empty()).then_some(names)
    }
}

/// Whether an address reaches this machine only.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

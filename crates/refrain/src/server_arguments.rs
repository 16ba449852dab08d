//! The flags of commands that ask a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::values::whole;

/// Which server, and as whom.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// The server [default: http://127.0.0.1:8080]
    #[arg(
        long,
        env = "REFRAIN_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        hide_default_value = true
    )]
    pub(crate) url: String,
    /// The API key, where the server wants one
    #[arg(long, env = "REFRAIN_API_KEY", value_name = "KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Who vouches for an https:// server
    ///
    /// A file of certificates in PEM form, of the authorities to trust, or the server's own; left
    /// out, those that browsers trust.
    #[arg(long, env = "REFRAIN_CA_CERT", value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// The cache_salt whose prefixes are meant
    ///
    /// Without it, those of requests that had none.
    #[arg(long, value_name = "SALT")]
    pub(crate) cache_salt: Option<String>,
    /// One JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is asked of a running server's prompt cache.
#[derive(Subcommand)]
pub(crate) enum CacheOrder {
    /// List the prefixes that a server holds, the last used first
    ///
    /// The longest ones: a conversation is listed once, with all that was computed of it. Only your
    /// own are listed: those of your API key and cache_salt.
    Ls(CacheLsArguments),
    /// Show one prefix with its text and its token ids
    Show(CacheIdArguments),
    /// Keep a prefix in memory, under a name
    ///
    /// What of it is on disk only is read first. Neither eviction, nor the end of its life, nor
    /// refrain cache clear takes it away, until it is unpinned or the server ends: after a restart
    /// it lies on disk like any other prefix, and can be pinned again. Where the server keeps
    /// prefixes on disk, a copy of it that is lost, or had to make room, is written again, as far
    /// as all pins take no more than half of --cache-disk. All pins together keep at most half of
    /// the memory for K/V, and are all taken back before a request fails that fits it alone.
    /// Another prefix that is pinned under the same name takes its place.
    Pin(CachePinArguments),
    /// Take a pin back
    Unpin(CacheUnpinArguments),
    /// Give up one prefix, in memory and on disk
    ///
    /// What another prefix begins with too, and what is pinned, stays.
    Evict(CacheIdArguments),
    /// Give up all of your prefixes, in memory and on disk
    ///
    /// What is pinned stays, in memory and on disk. What other models have on disk goes too; what
    /// other servers have in memory, they keep. It counts as never seen: the next request that
    /// begins like it is a first_request.
    Clear(ServerArguments),
    /// Figures of a server's prompt cache
    ///
    /// Of the whole server: how full it is concerns everybody.
    Stats(ServerArguments),
}

#[derive(Args)]
pub(crate) struct CacheLsArguments {
    /// How many at most [default: 20]
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u16, 1, 1000>)]
    pub(crate) limit: Option<u16>,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Args)]
pub(crate) struct CacheIdArguments {
    /// The prefix, as refrain cache ls names it
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Args)]
pub(crate) struct CachePinArguments {
    /// The prefix, as refrain cache ls names it
    pub(crate) id: String,
    /// The pin's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

#[derive(Args)]
pub(crate) struct CacheUnpinArguments {
    /// The pin's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

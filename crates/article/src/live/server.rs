//! The server crate's own server, on a thread of this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{Engine, EngineOptions, EngineStats};
use package::Package;
use server::ServerOptions;
use tokio::sync::oneshot;

use crate::error::ArticleError;
use crate::tally::Stop;

/// Longest wait for the engine to have nothing to do.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
const IDLE_POLL: Duration = Duration::from_millis(1);

/// A server that listens on a loopback port until it is dropped.
pub(super) struct Server {
    pub(super) engine: Engine,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Loads the model and starts to listen.
    pub(super) fn start(
        package: &Arc<Package>,
        options: EngineOptions,
    ) -> Result<Server, ArticleError> {
        let engine = Engine::start(package.clone(), options, &|_, _| {})?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (served, package) = (engine.clone(), package.clone());
        let thread = std::thread::Builder::new().name("article-server".to_owned());
        let thread = thread.spawn(move || {
            let until = async {
                // A sender that is gone means the same as one that speaks.
                let _ = stopped.await;
            };
            let options = ServerOptions::default();
            runtime.block_on(server::serve(listener, served, package, options, until));
        })?;
        Ok(Server { engine, address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine's counters once nothing runs or waits.
    pub(super) fn idle_stats(&self) -> Result<EngineStats, Stop> {
        let started = Instant::now();
        loop {
            let stats = self.engine.stats();
            if stats.running + stats.waiting == 0 {
                return Ok(stats);
            }
            if started.elapsed() > IDLE_TIME_MAX {
                return Err(Stop::failed("waiting for the engine", "it is busy without end"));
            }
            std::thread::sleep(IDLE_POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A server that panicked has ended too.
            let _ = thread.join();
        }
    }
}

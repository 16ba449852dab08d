//! Accepting connections within limits, and letting go of them when the server stops.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use engine::Engine;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tls::Tls;

/// Connections beyond this many wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// A client has this long to send a request's head, also on a connection that is kept alive.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// After a failed accept (no file descriptors, say) the next try waits this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(500);
/// How long answers may take to be written once the engine has finished them.
const WRITE_GRACE: Duration = Duration::from_secs(1);
const IDLE_POLL: Duration = Duration::from_millis(20);

/// Serves `router`, over TLS where that is given, until `shutdown` resolves, and returns when all
/// answers that `engine` computes have been given. Clients that have not sent a whole request by
/// then are let go.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    engine: &Engine,
    shutdown: impl Future<Output = ()>,
) {
    let service = TowerToHyperService::new(router);
    let tls = tls.map(Arc::new);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        // Small chunks of a stream must not wait for each other; a socket that cannot do that
        // still works.
        let _ = stream.set_nodelay(true);
        let (service, tls, watcher) = (service.clone(), tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            match tls {
                None => converse(stream, service, watcher).await,
                Some(tls) => {
                    if let Some(stream) = tls.accept(stream).await {
                        converse(stream, service, watcher).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = answered(engine) => {}
    }
}

/// Answers the requests of a connection, until it is closed or `watcher` says that it should be.
async fn converse<S>(stream: S, service: TowerToHyperService<Router>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // A connection that breaks is its client's matter.
    let _ = watcher.watch(connection).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed, so a place always comes.
    let place = places.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

/// Resolves once the engine has had nothing to do for as long as answers take to be written.
async fn answered(engine: &Engine) {
    let idle = || {
        let stats = engine.stats();
        stats.waiting + stats.running == 0
    };
    loop {
        while !idle() {
            tokio::time::sleep(IDLE_POLL).await;
        }
        tokio::time::sleep(WRITE_GRACE).await;
        if idle() {
            return;
        }
    }
}

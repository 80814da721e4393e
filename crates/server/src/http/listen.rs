//! The listening socket, its connections, and their end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::app::App;

/// Bytes of a request's headers at most.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Accepts connections until `stop` says so; returns when all are closed.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(app.options.max_connections));
    let (alive, mut all_closed) = tokio::sync::mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors, for one: those in use will be closed.
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            app.http.n_rejected_connections.fetch_add(1, Relaxed);
            continue;
        };
        app.http.n_connections.fetch_add(1, Relaxed);
        let tls = tls.clone();
        let (router, stop, served) = (router.clone(), stop.clone(), Arc::clone(&app));
        let work = async move {
            // Tokens are small, and each should arrive when it is written.
            let _ = socket.set_nodelay(true);
            match tls {
                None => connection(socket, peer, router, served, stop).await,
                Some(tls) => {
                    // A handshake may take as long as headers; one that fails is the client's affair.
                    let limit = served.options.header_timeout;
                    if let Ok(Ok(socket)) = timeout(limit, tls.accept(socket)).await {
                        connection(socket, peer, router, served, stop).await;
                    }
                }
            }
        };
        let alive = alive.clone();
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            work.await;
            app.http.n_connections.fetch_sub(1, Relaxed);
            drop((place, alive));
        });
    }
    drop((listener, alive));
    // No connection is alive when nobody can send.
    while all_closed.recv().await.is_some() {}
}

async fn connection(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut router = router.clone();
        tower_service::Service::call(&mut router, request.map(axum::body::Body::new))
    });
    let io = TokioIo::new(Patient::new(socket, app.options.write_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options.header_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // What goes wrong on a connection is the client's affair: it hears of it or is gone.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// A socket that gives up on a client which takes nothing for too long.
struct Patient<S> {
    socket: S,
    limit: Duration,
    /// Set while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(socket: S, limit: Duration) -> Patient<S> {
        Patient {
            socket,
            limit,
            deadline: None,
        }
    }

    /// What a write came to, or an error if it has waited too long.
    fn wait<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.deadline = None;
            return result;
        }
        let limit = self.limit;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wait(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(context);
        self.wait(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(context, buffers);
        self.wait(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

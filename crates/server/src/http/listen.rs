//! The listening socket, its connections, and shutdown.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::http::HttpOptions;

/// Maximum size of a request's headers, in bytes.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Accepts connections until `stop` is set; returns when all are closed.
pub(crate) async fn serve(
    (listener, tls): (TcpListener, Option<TlsAcceptor>),
    router: Router,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(app.options.max_connections));
    let shares = Arc::new(Shares::new(&app.options));
    let (alive, mut all_closed) = tokio::sync::mpsc::channel::<Infallible>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // For example out of descriptors: some in use will be closed.
                sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let place = Arc::clone(&places).try_acquire_owned();
        let share = Shares::take(&shares, peer.ip());
        let (Ok(place), Some(share)) = (place, share) else {
            app.http.n_rejected_connections.fetch_add(1, Relaxed);
            continue;
        };
        app.http.n_connections.fetch_add(1, Relaxed);
        let tls = tls.clone();
        let (router, stop, served) = (router.clone(), stop.clone(), Arc::clone(&app));
        let work = async move {
            // Tokens are small, and each should be sent as soon as it is written.
            let _ = socket.set_nodelay(true);
            match tls {
                None => connection(socket, peer, router, served, stop).await,
                Some(tls) => {
                    // A handshake has the time limit of headers. A failed one concerns only the client.
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
            drop((place, share, alive));
        });
    }
    drop((listener, alive));
    // Once all senders are dropped, no connection is alive.
    while all_closed.recv().await.is_some() {}
}

/// Number of connections of each address, none above its share. A client that opens as many as it can still leaves
/// places for others.
struct Shares {
    most: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection of an address, until it is dropped.
struct ConnectionSlot {
    shares: Arc<Shares>,
    address: IpAddr,
}

impl Shares {
    fn new(options: &HttpOptions) -> Shares {
        let half = options.max_connections.div_ceil(2);
        Shares {
            most: options.max_connections_per_address.unwrap_or(half),
            by_address: Mutex::default(),
        }
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection for this address; `None` if there would be too many.
    fn take(shares: &Arc<Shares>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = network(address);
        let mut by_address = shares.by_address();
        let n = by_address.entry(address).or_default();
        if *n >= shares.most {
            return None;
        }
        *n += 1;
        drop(by_address);
        Some(ConnectionSlot {
            shares: Arc::clone(shares),
            address,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut by_address = self.shares.by_address();
        if let Some(n) = by_address.get_mut(&self.address) {
            *n -= 1;
            if *n == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// The unit that counts as one address. For IPv6 it is the network of 64 bits, all of which one computer may have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        address => address,
    }
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
        // An error on a connection concerns only its client, which sees it or is gone.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// A socket that gives up on a client that reads nothing for too long.
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

    /// The result of a write, or an error if it has waited too long.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(most: usize) -> Arc<Shares> {
        Arc::new(Shares::new(&HttpOptions {
            max_connections: 8,
            max_connections_per_address: Some(most),
            ..HttpOptions::default()
        }))
    }

    #[test]
    fn each_address_has_its_share() {
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        for (first, second, are_one) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            let shares = shares(1);
            let held = Shares::take(&shares, address(first));
            assert!(held.is_some());
            let other = Shares::take(&shares, address(second));
            assert_eq!(other.is_none(), are_one, "{first} and {second}");
            drop((held, other));
            assert!(Shares::take(&shares, address(second)).is_some());
            assert!(shares.by_address().is_empty(), "nothing is left behind");
        }
        let half = Shares::new(&HttpOptions {
            max_connections: 5,
            ..HttpOptions::default()
        });
        assert_eq!(half.most, 3);
    }
}

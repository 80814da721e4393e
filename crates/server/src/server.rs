//! The life of a server, from start to end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::openai::stored::ResponseStore;
use crate::app::App;
use crate::audit::AuditLog;
use crate::batch::BatchStore;
use crate::http::{HttpOptions, listen, routes, tls};
use crate::keys::KeyUsage;
use crate::models::{ModelOptions, ModelSpec, Registry, beyond_budget};

/// Everything needed to run a server.
pub struct ServerOptions {
    /// The models. They are loaded at the start, as far as [`ModelOptions::max_loaded`] allows.
    pub models: Vec<ModelSpec>,
    /// How models are loaded and unloaded.
    pub model_options: ModelOptions,
    /// Network options.
    pub http: HttpOptions,
    /// Information about the machine for `/v1/system`.
    pub system: Arc<dyn Fn() -> Value + Send + Sync>,
}

/// Reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anyone on the network could use it.
    #[error(
        "{host} can be reached from other computers, and no API key is set: anyone there could use this \
         server. Give it a key, listen on 127.0.0.1, or allow it with --allow-open"
    )]
    Open {
        /// The address.
        host: std::net::IpAddr,
    },
    /// A model that exceeds the memory budget of all models.
    #[error("{0}")]
    TooLarge(String),
    /// Certificate or key of TLS.
    #[error("{0}")]
    Tls(#[from] crate::http::tls::TlsError),
    /// Two models with the same name.
    #[error("two models or adapters are called `{0}`; name models with NAME=MODEL")]
    Twice(String),
    /// The address is in use, or not this computer's.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: std::io::Error,
    },
    /// The audit log cannot be written.
    #[error("{}: {error}", file.display())]
    Audit {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The folder of batches.
    #[error("{0}")]
    Batches(Box<crate::batch::BatchError>),
    /// A system error, such as that no thread could start.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// Runs a server on its own threads, until `stop` returns true or the system asks the process to terminate. `listening`
/// gets the address; the models are still loading then.
///
/// # Errors
/// [`ServeError`].
pub fn run(
    options: ServerOptions,
    listening: impl FnOnce(SocketAddr),
    loaded: impl FnOnce(Result<(), (String, String)>),
    stop: impl Fn() -> bool,
) -> Result<(), ServeError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // The engine's threads compute; these two do I/O. Slow work (rendering, encoding, reading images) has separate
    // threads. More of those than processors can serve would only hold memory, each its stack and its part of the
    // heap. They stay alive: a new thread takes any free part of the heap, and grows that one too.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let n_blocking = (2 * processors).clamp(4, 16);
    let runtime = runtime.worker_threads(2).max_blocking_threads(n_blocking);
    let runtime = runtime.thread_keep_alive(Duration::from_secs(3600));
    let runtime = runtime.enable_all().build()?;
    let served = runtime.block_on(async {
        // Before the address is announced: a client that knows it may ask the server to end at once.
        let mut terminated = terminated()?;
        let server = Server::start(options).await?;
        listening(server.address());
        let until_asked = async {
            while !stop() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let serving = async {
            loaded(server.wait_until_loaded().await);
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = until_asked => {}
            () = terminated.as_mut() => {}
            () = serving => {}
        }
        server.stop().await;
        Ok(())
    });
    // Work unfinished by then (a template at its limit) has no client any more.
    runtime.shutdown_timeout(LAST_WORK);
    served
}

/// How long the shutdown waits for work whose requests are over.
const LAST_WORK: Duration = Duration::from_secs(1);

/// Completes when the system asks the process to terminate.
#[cfg(unix)]
fn terminated() -> std::io::Result<std::pin::Pin<Box<dyn Future<Output = ()>>>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signal = signal(SignalKind::terminate())?;
    Ok(Box::pin(async move {
        signal.recv().await;
    }))
}

#[cfg(not(unix))]
fn terminated() -> std::io::Result<std::pin::Pin<Box<dyn Future<Output = ()>>>> {
    Ok(Box::pin(std::future::pending()))
}

/// Refuses options that contradict each other.
fn check_options(options: &ServerOptions) -> Result<(), ServeError> {
    let host = options.http.host;
    if !host.is_loopback() && options.http.api_keys.is_empty() && !options.http.allow_open {
        return Err(ServeError::Open { host });
    }
    let mut ids = std::collections::BTreeSet::new();
    let names = options.models.iter().flat_map(|spec| {
        let adapters = spec.adapters.iter().map(|adapter| &adapter.name);
        std::iter::once(&spec.id).chain(adapters)
    });
    if let Some(twice) = names.into_iter().find(|name| !ids.insert(*name)) {
        return Err(ServeError::Twice(twice.clone()));
    }
    if let Some(budget) = options.model_options.memory_budget
        && let Some(spec) = options
            .models
            .iter()
            .find(|spec| spec.memory_bytes > budget)
    {
        return Err(ServeError::TooLarge(beyond_budget(spec, budget)));
    }
    Ok(())
}

/// The folder of batches and the audit log, if configured.
fn open_files(http: &HttpOptions) -> Result<(Option<BatchStore>, Option<AuditLog>), ServeError> {
    let store = http.batches.as_deref().map(BatchStore::open).transpose();
    let batches = store.map_err(|error| ServeError::Batches(Box::new(error)))?;
    let audit = http.audit_log.as_deref().map(|path| {
        let opened = AuditLog::open(path, http.audit_text);
        opened.map_err(|error| ServeError::Audit {
            file: path.to_owned(),
            error,
        })
    });
    Ok((batches, audit.transpose()?))
}

/// A running server.
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Binds the address, starts loading the models, and serves.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(options: ServerOptions) -> Result<Server, ServeError> {
        check_options(&options)?;
        let (batches, audit) = open_files(&options.http)?;
        let tls = options.http.tls.as_ref().map(tls::acceptor).transpose()?;
        let address = SocketAddr::new(options.http.host, options.http.port);
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| ServeError::Listen { address, error })?;
        let address = listener.local_addr()?;
        let app = Arc::new(App {
            registry: Registry::new(options.models, options.model_options),
            start: Instant::now(),
            batches: batches.map(Arc::new),
            responses: options
                .http
                .store_responses_bytes
                .map(|most| Arc::new(ResponseStore::new(most))),
            http: Default::default(),
            usage: usage(&options.http),
            audit: audit.map(Arc::new),
            is_leaving: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            system: options.system,
            options: options.http,
        });
        app.registry.load_first();
        let (stop, stopped) = watch::channel(false);
        let router = routes::router(&app);
        let accepting = tokio::spawn(listen::serve(
            (listener, tls),
            router,
            Arc::clone(&app),
            stopped.clone(),
        ));
        if let Some(store) = &app.batches {
            store.resume(&app, &stopped);
        }
        tokio::spawn(keep_house(Arc::clone(&app), stopped));
        Ok(Server {
            app,
            address,
            stop,
            accepting,
        })
    }

    /// The state that its handlers share.
    pub(crate) fn app(&self) -> Arc<App> {
        Arc::clone(&self.app)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every model is loaded.
    ///
    /// # Errors
    /// Name of the first model that could not be loaded, and the reason.
    pub async fn wait_until_loaded(&self) -> Result<(), (String, String)> {
        for entry in self.app.registry.entries() {
            let Some(scheduler) = entry.scheduler() else {
                continue;
            };
            scheduler.wait_until_loaded().await;
            if let Err(refusal) = scheduler.loaded() {
                return Err((entry.spec.id.clone(), refusal.to_string()));
            }
        }
        Ok(())
    }

    /// Stops the server. It reports that it is not ready, waits until that is noticed, and then refuses new requests.
    /// It completes accepted ones within the grace period.
    pub async fn stop(self) {
        self.app.is_leaving.store(true, Relaxed);
        tokio::time::sleep(self.app.options.linger).await;
        self.app.is_draining.store(true, Relaxed);
        let grace = self.app.options.grace;
        self.app.registry.drain(grace).await;
        // A send fails only if there is no receiver left.
        let _ = self.stop.send(true);
        // Remaining data must still be written to clients that may be slow.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.accepting).await;
    }
}

/// Limits and usage of each API key.
fn usage(options: &HttpOptions) -> Vec<Arc<KeyUsage>> {
    let limits = |index: usize| options.key_limits.get(index).cloned().unwrap_or_default();
    let keys = 0..options.api_keys.len();
    keys.map(|index| Arc::new(KeyUsage::new(index, limits(index))))
        .collect()
}

/// Interval of the housekeeping.
const TICK: Duration = Duration::from_millis(500);
/// Idle ticks after which the heap's free pages are returned: 5 s.
const RESTING_TICKS: u32 = 10;

/// Regularly unloads idle models, and returns heap memory that is free after work.
async fn keep_house(app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    let mut rest = Rest::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {
                app.registry.unload_idle();
                if rest.is_due(app.registry.last_used_ms(), app.registry.is_idle()) {
                    // Not on the I/O threads; nothing waits for it.
                    drop(tokio::task::spawn_blocking(millrace_kernels::heap::trim));
                }
            }
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Detects the moment at which the server has come to rest after work. Requests for health or counters do not count
/// as work: they may come every second.
#[derive(Default)]
struct Rest {
    /// Time of the last use of a model, as of the last tick.
    last_used_ms: u64,
    /// Ticks since the last work; none if its memory was already returned.
    n_quiet: Option<u32>,
}

impl Rest {
    /// Called once a tick: whether this is the moment.
    fn is_due(&mut self, last_used_ms: u64, is_idle: bool) -> bool {
        if last_used_ms != self.last_used_ms || !is_idle {
            self.last_used_ms = last_used_ms;
            self.n_quiet = Some(0);
            return false;
        }
        self.n_quiet = self.n_quiet.map(|n| n + 1);
        let is_due = self.n_quiet == Some(RESTING_TICKS);
        if is_due {
            self.n_quiet = None;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_comes_once_after_each_work() {
        let mut rest = Rest::default();
        let mut due = |looks: u32, last_used_ms, is_idle| {
            (0..looks)
                .filter(|_| rest.is_due(last_used_ms, is_idle))
                .count()
        };
        assert_eq!(
            due(100, 0, true),
            0,
            "a server that never worked has nothing to give"
        );
        assert_eq!(due(5, 1, true), 0);
        assert_eq!(due(100, 1, false), 0, "an answer is under way");
        assert_eq!(due(RESTING_TICKS - 1, 1, true), 0);
        assert_eq!(due(1, 1, true), 1);
        assert_eq!(due(100, 1, true), 0, "once is enough");
        assert_eq!(due(9, 2, true), 0);
        assert_eq!(due(RESTING_TICKS, 3, true), 0, "work begins the wait anew");
        assert_eq!(due(1, 3, true), 1);
    }
}

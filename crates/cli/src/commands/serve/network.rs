//! Network address of the server, and who may use it.

use super::at_least_one;
use crate::exit::{CommandFailure, CommandResult};
use crate::output::Ui;
use crate::prompt::read_file;
use millrace_server::{HttpOptions, KeyLimits, TlsFiles};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Minimum bytes of a key that signs thoughts.
const THINKING_KEY_BYTES: usize = 16;

/// Network address and access.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Network")]
pub(super) struct NetworkArgs {
    /// Address to listen on; an address beyond this computer needs an API key
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", value_parser = parse_host)]
    host: IpAddr,
    /// Port; 0 picks a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Use TLS: certificate in PEM, followed by its issuers
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    pub(super) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// API key that clients must send. May be repeated; better in the environment or a file
    #[arg(
        long,
        value_name = "KEY",
        env = "MILLRACE_API_KEY",
        hide_env_values = true
    )]
    api_key: Vec<String>,
    /// Read API keys from a file, one per line, each with optional limits after it: name=NAME requests=N tokens=N
    /// (per minute) concurrent=N priority=N
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    api_key_file: Option<PathBuf>,
    /// Append each request, its client and its outcome to a file: one JSON object per line, without texts
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    audit_log: Option<PathBuf>,
    /// Write request bodies to the audit log too: they contain the prompts
    #[arg(long, requires = "audit_log")]
    audit_text: bool,
    /// Sign the models' thoughts with the text of a file, so that clients can send them back after a restart [default:
    /// a key of this run]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    thinking_key_file: Option<PathBuf>,
    /// Listen beyond this computer without an API key: anyone there may use the models
    #[arg(long)]
    allow_open: bool,
    /// Allow web pages of this origin, such as http://localhost:3000; `*` is any. May be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    allow_origin: Vec<String>,
    /// Host name that requests may use, besides addresses and localhost. May be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Serve /metrics without an API key, for routers of a cluster: it shows numbers, and names of models and keys
    #[arg(long)]
    open_metrics: bool,
    /// Keep files and batches (/v1/files, /v1/batches) in this folder, and resume its batches
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    batches: Option<PathBuf>,
    /// Let clients with an API key load LoRA adapters from this folder while the server runs (/v1/load_lora_adapter)
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    lora_dir: Option<PathBuf>,
    /// Keep up to this many MiB of responses of /v1/responses in memory, for `previous_response_id`; a request with
    /// `store: false` is not kept [default: none are kept]
    #[arg(long, value_name = "MIB", value_parser = at_least_one())]
    store_responses: Option<usize>,
    /// Maximum size of a request body, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = at_least_one())]
    max_body: usize,
    /// Maximum connections at a time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one())]
    max_connections: usize,
    /// Maximum connections from one address. All clients behind a proxy share its address: allow as many as it
    /// opens [default: half]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    max_connections_per_address: Option<usize>,
    /// Let clients with different API keys share cached prompts: faster where prompts begin alike, but response times
    /// then reveal what others have asked
    #[arg(long)]
    share_cache: bool,
    /// Abort a request after this many seconds [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    request_timeout: Option<u64>,
    /// Keep accepting requests for this long after being asked to stop, while /ready says no, so that a proxy notices
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    linger: u64,
    /// Time that requests may still take after the server was asked to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(super) grace: u64,
}

/// An IP address, or the name that every computer has for itself.
fn parse_host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
        _ => text.parse().map_err(|_| {
            "write an IP address: 127.0.0.1 for this computer alone, 0.0.0.0 for others too"
                .to_owned()
        }),
    }
}

/// `*`, `null`, or a scheme and a host, as browsers send them.
fn parse_origin(text: &str) -> Result<String, String> {
    let host = text.split_once("://").map(|(_, host)| host);
    match host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
        true => Ok(text.to_owned()),
        false if text == "*" || text == "null" => Ok(text.to_owned()),
        false => Err("write scheme and host without a path, as http://localhost:3000".to_owned()),
    }
}

impl NetworkArgs {
    /// API keys, and the limits of each.
    fn keys(&self) -> CommandResult<(Vec<String>, Vec<KeyLimits>)> {
        let mut keys = self.api_key.clone();
        let mut limits = vec![KeyLimits::default(); keys.len()];
        let Some(path) = &self.api_key_file else {
            return Ok((keys, limits));
        };
        let text = read_file(path)?;
        let lines = text.lines().map(str::trim).enumerate();
        for (i, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (key, of_key) = KeyLimits::read_line(line).map_err(|reason| {
                let message = format!("{}, line {}: {reason}", path.display(), i + 1);
                CommandFailure::bad_input(message)
                    .hint("as in: KEY name=team requests=60 tokens=100000 concurrent=4 priority=5")
            })?;
            keys.push(key);
            limits.push(of_key);
        }
        if keys.len() == self.api_key.len() {
            let message = format!("{} holds no key", path.display());
            return Err(CommandFailure::bad_input(message).hint("write one a line"));
        }
        Ok((keys, limits))
    }

    pub(super) fn options(&self, ui: Ui) -> CommandResult<HttpOptions> {
        let (api_keys, key_limits) = self.keys()?;
        if let Some(path) = &self.thinking_key_file {
            let text = read_file(path)?;
            let key = text.trim();
            if key.len() < THINKING_KEY_BYTES {
                let message = format!(
                    "{}: expected {THINKING_KEY_BYTES} bytes at least, found {}",
                    path.display(),
                    key.len()
                );
                return Err(CommandFailure::bad_input(message).hint("write a long random text"));
            }
            millrace_server::sign_thoughts_with(key.as_bytes());
        }
        if api_keys.iter().any(String::is_empty) {
            return Err(CommandFailure::usage("--api-key: the key is empty"));
        }
        Ok(HttpOptions {
            host: self.host,
            port: self.port,
            tls: self
                .tls_cert
                .clone()
                .zip(self.tls_key.clone())
                .map(|(certificate, key)| TlsFiles { certificate, key }),
            api_keys,
            key_limits,
            audit_log: self.audit_log.clone(),
            audit_text: self.audit_text,
            allow_open: self.allow_open,
            allowed_origins: self.allow_origin.clone(),
            allowed_hosts: self.allow_host.clone(),
            open_metrics: self.open_metrics,
            max_body_bytes: self.max_body.saturating_mul(1 << 20),
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            share_cache: self.share_cache,
            request_timeout: self.request_timeout.map(Duration::from_secs),
            linger: Duration::from_secs(self.linger),
            grace: Duration::from_secs(self.grace),
            batches: self.batches.clone(),
            lora_dir: self.lora_dir.clone(),
            store_responses_bytes: self.store_responses.map(|mib| mib.saturating_mul(1 << 20)),
            log: !ui.quiet,
            ..HttpOptions::default()
        })
    }
}

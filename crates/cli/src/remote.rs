//! Models on a running server: `run` and `chat` with `--server`.

mod stream;

use crate::exit::{CommandFailure, CommandResult, Exit};
use crate::interrupt;
use clap::ValueHint::{FilePath, Url};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Pieces, StreamPiece};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

pub(crate) use stream::Answer;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of an image file to send; servers accept less.
const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// Options for a server in place of a model loaded here.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Ask a running server, of `millrace serve` or another with OpenAI's API, instead of loading the model here:
    /// MODEL is then its name there. The API key comes from MILLRACE_API_KEY
    #[arg(
        long,
        value_name = "URL",
        value_hint = Url,
        // Not `threads` and `cpu_level`: their environment variables may be set for other commands.
        conflicts_with_all = [
            "device", "ctx", "kv_type", "mmproj", "image_style", "pan_and_scan", "offline", "lora", "draft", "mode", "without",
            "numerics", "simulator", "machine", "set", "profile",
        ]
    )]
    pub(crate) server: Option<String>,
    /// Trust only this certificate, in PEM, for a server with its own certificate
    #[arg(long, value_name = "FILE", requires = "server", value_hint = FilePath)]
    server_ca: Option<PathBuf>,
}

impl ServerArgs {
    /// Connects to the server, if one is named.
    pub(crate) fn open(&self) -> CommandResult<Option<Server>> {
        let Some(url) = &self.server else {
            return Ok(None);
        };
        let base = url.trim_end_matches('/').trim_end_matches("/v1");
        if !base.starts_with("http://") && !base.starts_with("https://") {
            let message = format!("--server: `{url}` is not an http:// or https:// address");
            return Err(CommandFailure::usage(message)
                .hint("as `http://127.0.0.1:8080`, which `millrace serve` prints"));
        }
        let mut tls = TlsConfig::builder();
        if let Some(path) = &self.server_ca {
            let pem =
                std::fs::read(path).map_err(|error| CommandFailure::reading_file(path, &error))?;
            let certificate = Certificate::from_pem(&pem).map_err(|error| {
                CommandFailure::bad_input(format!(
                    "{} holds no certificate: {error}",
                    path.display()
                ))
            })?;
            tls = tls.root_certs(RootCerts::Specific(Arc::new(vec![certificate])));
        }
        let config = Agent::config_builder()
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .tls_config(tls.build())
            .build();
        Ok(Some(Server {
            agent: config.into(),
            base: base.to_owned(),
            key: std::env::var("MILLRACE_API_KEY")
                .ok()
                .filter(|key| !key.is_empty()),
        }))
    }
}

/// A server that answers.
#[derive(Clone)]
pub(crate) struct Server {
    agent: Agent,
    base: String,
    key: Option<String>,
}

impl Server {
    /// Base URL.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The server's description of a model; an error if it has none of that name.
    pub(crate) fn describe(&self, model: &str) -> CommandResult<Value> {
        let url = format!("{}/v1/models/{model}", self.base);
        let mut request = self.agent.get(&url);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let mut response = request.call().map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string();
        let text = text.map_err(|error| self.unreachable(&error))?;
        match status {
            200 => parse(&text),
            _ => Err(refused(status, &text)),
        }
    }

    /// Requests a streamed answer at `path`, and hands its text over as it arrives, until it ends or the work
    /// is interrupted.
    pub(crate) fn stream(
        &self,
        path: &str,
        mut body: Value,
        on_text: &mut dyn FnMut(&str),
    ) -> CommandResult<Answer> {
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let start = Instant::now();
        // Reading waits for the server, and Ctrl-C must not wait for that.
        let pieces = Pieces::start({
            let (server, path) = (self.clone(), path.to_owned());
            move |sender| server.read(&path, &body, sender)
        })?;
        let mut answer = Answer::default();
        loop {
            if interrupt::is_raised() {
                answer.was_stopped = true;
                break;
            }
            match pieces.next(Duration::from_millis(50)) {
                None => {}
                Some(StreamPiece::Event(event)) => answer.take(&event, start, on_text)?,
                Some(StreamPiece::End) => break,
                Some(StreamPiece::Failed(failure)) => return Err(failure),
            }
        }
        answer.total = start.elapsed();
        Ok(answer)
    }

    fn read(&self, path: &str, body: &Value, sender: &stream::Sender) -> CommandResult {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.post(&url).content_type("application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = request.send(body.to_string());
        let mut response = response.map_err(|error| self.unreachable(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            let text = response.body_mut().read_to_string();
            return Err(refused(status, &text.unwrap_or_default()));
        }
        stream::events(response.into_body().into_reader(), sender)
    }

    fn unreachable(&self, error: &ureq::Error) -> CommandFailure {
        let message = format!("cannot ask {}: {error}", self.base);
        let failure = CommandFailure::new(Exit::NotFound, message);
        match self.base.starts_with("https://") {
            true => failure
                .hint("does it run there? For a certificate of its own give --server-ca FILE; it must be made with basicConstraints=CA:FALSE"),
            false => failure.hint("does it run there? `millrace serve MODEL` starts one"),
        }
    }
}

fn parse(text: &str) -> CommandResult<Value> {
    serde_json::from_str(text).map_err(|error| {
        CommandFailure::bad_input(format!("the server's answer is not JSON: {error}"))
    })
}

/// Failure for a request that the server refused.
fn refused(status: u16, text: &str) -> CommandFailure {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let said = body["error"]["message"].as_str().or(body["error"].as_str());
    let said = said.unwrap_or("it does not say why");
    let message = format!("the server answers {status}: {said}");
    match status {
        401 => CommandFailure::usage(message).hint("set MILLRACE_API_KEY to a key of the server"),
        404 => CommandFailure::not_found(message),
        400 | 403 | 413 => CommandFailure::usage(message),
        429 => CommandFailure::new(Exit::Failed, message).hint("try again in a moment"),
        _ => CommandFailure::new(Exit::Failed, message),
    }
}

/// A user message in OpenAI's API, with images as data.
pub(crate) fn user_message(text: &str, images: &[PathBuf]) -> CommandResult<Value> {
    if images.is_empty() {
        return Ok(json!({"role": "user", "content": text}));
    }
    let mut content = Vec::new();
    for path in images {
        content.push(json!({"type": "image_url", "image_url": {"url": data_url(path)?}}));
    }
    content.push(json!({"type": "text", "text": text}));
    Ok(json!({"role": "user", "content": content}))
}

fn data_url(path: &Path) -> CommandResult<String> {
    let failed = |error: std::io::Error| CommandFailure::reading_file(path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_IMAGE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_IMAGE_BYTES {
        let message = format!(
            "{} is longer than the {MAX_IMAGE_BYTES} bytes that are sent",
            path.display()
        );
        return Err(CommandFailure::bad_input(message));
    }
    let kind = match &bytes[..] {
        [0x89, b'P', b'N', b'G', ..] => "png",
        [0xFF, 0xD8, ..] => "jpeg",
        [b'R', b'I', b'F', b'F', ..] => "webp",
        _ => {
            let message = format!("{} is no PNG, JPEG or WebP file", path.display());
            return Err(CommandFailure::bad_input(message));
        }
    };
    Ok(format!(
        "data:image/{kind};base64,{}",
        millrace_server::base64(&bytes)
    ))
}

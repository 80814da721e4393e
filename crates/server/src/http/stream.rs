//! Answers that are written while they are generated: server-sent events, or one JSON object on each line.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Number of pieces that wait for a slow client. The rest of the answer waits in the scheduler's channel, where its
/// limit of tokens bounds it.
const N_PIECES: usize = 16;

/// The client has disconnected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientGone;

/// Writes a stream.
pub(crate) struct StreamWriter {
    sender: mpsc::Sender<Bytes>,
}

impl StreamWriter {
    /// A writer whose pieces are read from a channel.
    #[cfg(test)]
    pub(crate) fn with_reader() -> (StreamWriter, mpsc::Receiver<Bytes>) {
        const N_PIECES: usize = 1 << 16;
        let (sender, receiver) = mpsc::channel(N_PIECES);
        (StreamWriter { sender }, receiver)
    }

    async fn bytes(&self, bytes: String) -> Result<(), ClientGone> {
        self.sender.send(bytes.into()).await.map_err(|_| ClientGone)
    }

    /// Writes a server-sent event without a name.
    pub(crate) async fn data(&self, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("data: {value}\n\n")).await
    }

    /// Writes a server-sent event with a name.
    pub(crate) async fn event(&self, name: &str, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("event: {name}\ndata: {value}\n\n"))
            .await
    }

    /// Writes the end of a stream of OpenAI's API.
    pub(crate) async fn done(&self) -> Result<(), ClientGone> {
        self.bytes("data: [DONE]\n\n".to_owned()).await
    }

    /// Writes a JSON object as a line.
    pub(crate) async fn line(&self, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("{value}\n")).await
    }
}

/// A response of server-sent events written by `work`. Headers and a first comment are sent at once, and a comment
/// after each idle interval. Clients and proxies then do not mistake a long prompt for a dead server. When the client
/// disconnects, `work` is dropped.
pub(crate) fn events<F>(keep_alive: Duration, work: impl FnOnce(StreamWriter) -> F) -> Response
where
    F: Future<Output = Result<(), ClientGone>> + Send + 'static,
{
    let mut response = start("text/event-stream", Some(keep_alive), work);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // For nginx: do not buffer the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One JSON object on each line, as in Ollama. This format has no comments, so only data is written.
pub(crate) fn lines<F>(work: impl FnOnce(StreamWriter) -> F) -> Response
where
    F: Future<Output = Result<(), ClientGone>> + Send + 'static,
{
    start("application/x-ndjson", None, work)
}

fn start<F>(
    content_type: &'static str,
    keep_alive: Option<Duration>,
    work: impl FnOnce(StreamWriter) -> F,
) -> Response
where
    F: Future<Output = Result<(), ClientGone>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(N_PIECES);
    let closed = sender.clone();
    let work = work(StreamWriter { sender });
    tokio::spawn(async move {
        tokio::select! {
            // The body was dropped, so the work is too, and with it the job.
            () = closed.closed() => {}
            _ = work => {}
        }
    });
    let body = StreamBody {
        receiver,
        keep_alive: keep_alive.map(|period| {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }),
        has_begun: keep_alive.is_none(),
    };
    let headers = [(header::CONTENT_TYPE, content_type)];
    (StatusCode::OK, headers, Body::new(body)).into_response()
}

/// The pieces of a stream as a body.
struct StreamBody {
    receiver: mpsc::Receiver<Bytes>,
    keep_alive: Option<Interval>,
    has_begun: bool,
}

impl http_body::Body for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let data = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if !std::mem::replace(&mut self.has_begun, true) {
            return data(Bytes::from_static(b": accepted\n\n"));
        }
        match self.receiver.poll_recv(context) {
            Poll::Ready(Some(bytes)) => {
                if let Some(ticks) = &mut self.keep_alive {
                    ticks.reset();
                }
                data(bytes)
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let ticks = self.keep_alive.as_mut();
                match ticks.map(|ticks| ticks.poll_tick(context)) {
                    Some(Poll::Ready(_)) => data(Bytes::from_static(b": still working\n\n")),
                    _ => Poll::Pending,
                }
            }
        }
    }
}

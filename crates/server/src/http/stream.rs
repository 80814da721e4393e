//! Answers that are written while they come into being: server-sent events, or a JSON object a line.

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

/// Pieces that wait for a slow client; the answer waits in the scheduler's channel behind them, where it
/// can be no longer than its limit of tokens.
const N_PIECES: usize = 16;

/// The client went away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientGone;

/// Writes a stream.
pub(crate) struct StreamWriter {
    sender: mpsc::Sender<Bytes>,
}

impl StreamWriter {
    /// One whose pieces are read from a channel.
    #[cfg(test)]
    pub(crate) fn with_reader() -> (StreamWriter, mpsc::Receiver<Bytes>) {
        const N_PIECES: usize = 1 << 16;
        let (sender, receiver) = mpsc::channel(N_PIECES);
        (StreamWriter { sender }, receiver)
    }

    async fn bytes(&self, bytes: String) -> Result<(), ClientGone> {
        self.sender.send(bytes.into()).await.map_err(|_| ClientGone)
    }

    /// A server-sent event without a name.
    pub(crate) async fn data(&self, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("data: {value}\n\n")).await
    }

    /// A server-sent event with a name.
    pub(crate) async fn event(&self, name: &str, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("event: {name}\ndata: {value}\n\n"))
            .await
    }

    /// What ends the streams of OpenAI's API.
    pub(crate) async fn done(&self) -> Result<(), ClientGone> {
        self.bytes("data: [DONE]\n\n".to_owned()).await
    }

    /// A JSON object on a line of its own.
    pub(crate) async fn line(&self, value: &Value) -> Result<(), ClientGone> {
        self.bytes(format!("{value}\n")).await
    }
}

/// Server-sent events that `work` writes. Headers and a first comment go out at once, and a comment whenever
/// there was nothing to say for a while, so that neither clients nor proxies take a long prompt
/// for a dead server. When the client goes away, `work` is dropped.
pub(crate) fn events<F>(keep_alive: Duration, work: impl FnOnce(StreamWriter) -> F) -> Response
where
    F: Future<Output = Result<(), ClientGone>> + Send + 'static,
{
    let mut response = start("text/event-stream", Some(keep_alive), work);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // What nginx calls it: do not collect the stream before passing it on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A JSON object a line, as Ollama has it; there is no comment in this format, so only news are written.
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
            // The body was dropped: so is the work, and with it the job.
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

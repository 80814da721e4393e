//! Responses that hold a value until they are written.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};

struct HeldBody<T> {
    body: Body,
    _held: T,
}

impl<T: Unpin> http_body::Body for HeldBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The response, which drops `held` with its body: when it is fully written, or the client has gone.
pub(crate) fn until_written<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(HeldBody { body, _held: held }))
}

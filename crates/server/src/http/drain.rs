//! What still comes of a body that was refused.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::Body as _;

/// Bytes that are read at most, and how long.
const MAX_BYTES: usize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(20);

/// Reads on beside the answer, and forgets what comes. Some clients read nothing before they have sent all, and a socket that is closed
/// with unread bytes takes the answer away from them.
pub(crate) fn drain(mut body: Body) {
    let work = async move {
        let mut n_bytes = 0;
        while n_bytes < MAX_BYTES {
            match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                Some(Ok(frame)) => n_bytes += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => return,
            }
        }
    };
    tokio::spawn(tokio::time::timeout(MAX_TIME, work));
}

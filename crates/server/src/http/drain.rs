//! Reads the rest of a refused body.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::Body as _;

/// Maximum number of bytes read, and the time limit.
const MAX_BYTES: usize = 256 << 20;
const MAX_TIME: Duration = Duration::from_secs(20);

/// Reads on while the response is sent, and discards the data. Some clients read nothing before they have sent
/// everything. Closing a socket with unread bytes would take the response away from them.
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

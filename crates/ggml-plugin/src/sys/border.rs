//! No panic crosses into C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Message of a panic.
pub(crate) fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no words".to_owned())
}

/// Calls `f`; if it panics, reports that and returns `fallback`.
pub(crate) fn guard<R>(place: &str, fallback: R, f: impl FnOnce() -> R) -> R {
    // Data that `f` may leave half done is behind locks whose users start anew, or belongs to this call.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        eprintln!("millrace: internal error in {place}: {}", words(&*payload));
        fallback
    })
}

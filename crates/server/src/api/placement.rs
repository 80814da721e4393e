//! Cost of a job, for clients that ask where an answer was computed.

use millrace_runtime::npu::HostShare;
use serde_json::{Value, json};

use crate::scheduler::{PassRecord, Receipt};

/// The device that computed an answer, and the provenance of the times.
pub(crate) fn placement(receipt: &Receipt) -> Value {
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let mut placement = json!({
        "device": receipt.device,
        "host_ms": ms(receipt.host),
        "host_time": "measured",
        "queued_ms": ms(receipt.queued),
        "first_token_ms": ms(receipt.first_token),
        "total_ms": ms(receipt.total),
        "preempted": receipt.n_preempted,
    });
    if let Some(drafts) = &receipt.drafts {
        placement["drafted_tokens"] = drafts.n_drafted.into();
        placement["accepted_tokens"] = drafts.n_accepted.into();
    }
    if let Some((time, origin)) = &receipt.device_time {
        placement["device_ms"] = ms(*time).into();
        placement["device_time"] = origin.to_string().into();
    }
    if let Some(shares) = &receipt.shares {
        placement["device_ops"] = shares.n_device.into();
        let share = |share: &HostShare| json!({"op": share.label, "count": share.n_ops, "reason": share.reason});
        placement["host_ops"] = shares.host.iter().map(share).collect();
    }
    if !receipt.timeline.is_empty() {
        let pass = |pass: &PassRecord| {
            json!({
                "end_ms": ms(pass.end), "reads": pass.reads, "tokens": pass.n_tokens,
                "pass_tokens": pass.n_pass_tokens, "host_ms": ms(pass.host), "device_ms": ms(pass.device),
            })
        };
        placement["timeline"] = receipt.timeline.iter().map(pass).collect();
    }
    placement
}

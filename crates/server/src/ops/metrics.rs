//! `GET /metrics`: Prometheus' text format, version 0.0.4.
//!
//! Metrics that vLLM has too appear under its names (`vllm:…`, vLLM 0.11's `docs/usage/metrics.md`), because gateways
//! and autoscalers read those to spread load. The others are under `millrace:`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use millrace_runtime::PAGE_TOKENS;

use crate::app::App;
use crate::keys::{KeyCounts, KeyUsage};
use crate::models::ModelEntry;
use crate::scheduler::{Histogram, Snapshot};

type MetricNumber = fn(&Snapshot) -> f64;

/// Name, kind, help, value.
const NUMBERS: &[(&str, &str, &str, MetricNumber)] = &[
    (
        "vllm:num_requests_running",
        "gauge",
        "Answers being computed.",
        |s| s.n_running as f64,
    ),
    (
        "vllm:num_requests_waiting",
        "gauge",
        "Answers waiting for a sequence.",
        |s| s.n_waiting as f64,
    ),
    (
        "vllm:kv_cache_usage_perc",
        "gauge",
        "Share of the KV cache in use by answers, 0 to 1.",
        usage,
    ),
    (
        "vllm:gpu_cache_usage_perc",
        "gauge",
        "As vllm:kv_cache_usage_perc, by its older name.",
        usage,
    ),
    (
        "vllm:prompt_tokens_total",
        "counter",
        "Tokens of prompts accepted.",
        |s| s.prompt_tokens as f64,
    ),
    (
        "vllm:generation_tokens_total",
        "counter",
        "Tokens drawn.",
        |s| s.generated_tokens as f64,
    ),
    (
        "vllm:prefix_cache_queries_total",
        "counter",
        "Tokens of prompts looked up in the cache.",
        |s| s.prompt_tokens as f64,
    ),
    (
        "vllm:prefix_cache_hits_total",
        "counter",
        "Tokens of prompts found in the cache.",
        |s| s.cached_tokens as f64,
    ),
    (
        "vllm:num_preemptions_total",
        "counter",
        "Answers that gave their pages back.",
        |s| s.preemptions as f64,
    ),
    (
        "vllm:spec_decode_num_drafts_total",
        "counter",
        "Drafts of one or more tokens that were checked.",
        |s| s.checks as f64,
    ),
    (
        "vllm:spec_decode_num_draft_tokens_total",
        "counter",
        "Tokens guessed ahead and checked.",
        |s| s.drafted_tokens as f64,
    ),
    (
        "vllm:spec_decode_num_accepted_tokens_total",
        "counter",
        "Of those: drawn.",
        |s| s.accepted_tokens as f64,
    ),
    (
        "millrace:draft_failures_total",
        "counter",
        "Failures of the draft model's engine; after one, nothing is drafted until the model is loaded again.",
        |s| s.draft_failures as f64,
    ),
    (
        "millrace:kv_used_bytes",
        "gauge",
        "Bytes of keys and values of answers.",
        |s| s.kv_used_bytes as f64,
    ),
    (
        "millrace:kv_idle_bytes",
        "gauge",
        "Bytes of keys and values kept for prompts that begin the same.",
        |s| s.kv_idle_bytes as f64,
    ),
    (
        "millrace:kv_capacity_bytes",
        "gauge",
        "Bytes of keys and values there can be.",
        |s| s.kv_capacity_bytes as f64,
    ),
    (
        "millrace:kv_evicted_pages_total",
        "counter",
        "Kept pages given up for room.",
        |s| s.evicted_pages as f64,
    ),
    (
        "millrace:passes_total",
        "counter",
        "Passes of the engine.",
        |s| s.passes as f64,
    ),
    (
        "millrace:refused_total",
        "counter",
        "Requests refused because the queue was full.",
        |s| s.refused as f64,
    ),
    (
        "millrace:host_seconds_total",
        "counter",
        "Time of this computer inside the engine, measured.",
        |s| s.host_ns as f64 / 1e9,
    ),
    (
        "millrace:scheduling_seconds_total",
        "counter",
        "Time of the scheduler's thread outside the engine while it had work, measured.",
        |s| s.scheduling_ns as f64 / 1e9,
    ),
    (
        "millrace:device_seconds_total",
        "counter",
        "Time on the device; /v1/system says whether measured or modelled.",
        |s| s.device_ns as f64 / 1e9,
    ),
];

fn usage(snapshot: &Snapshot) -> f64 {
    snapshot.kv_used_bytes as f64 / (snapshot.kv_capacity_bytes as f64).max(1.0)
}

type Histograms = fn(&ModelEntry) -> &Histogram;

const HISTOGRAMS: &[(&str, &str, Histograms)] = &[
    (
        "vllm:time_to_first_token_seconds",
        "From submission to the first token.",
        |e| &e.metrics.first_token,
    ),
    (
        "vllm:inter_token_latency_seconds",
        "From one token of an answer to the next.",
        |e| &e.metrics.inter_token,
    ),
    (
        "vllm:time_per_output_token_seconds",
        "As vllm:inter_token_latency_seconds, by its older name.",
        |e| &e.metrics.inter_token,
    ),
    (
        "vllm:e2e_request_latency_seconds",
        "From submission to the end.",
        |e| &e.metrics.total,
    ),
    (
        "vllm:request_queue_time_seconds",
        "From submission to admission.",
        |e| &e.metrics.queued,
    ),
    ("vllm:iteration_tokens_total", "Tokens of a pass.", |e| {
        &e.metrics.pass_tokens
    }),
];

pub(crate) async fn handle(State(app): State<Arc<App>>) -> Response {
    let headers = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (headers, render(&app)).into_response()
}

// Writing to a string does not fail.
fn render(app: &App) -> String {
    let mut out = String::new();
    let models: Vec<(String, Snapshot)> = app
        .registry
        .entries()
        .iter()
        .map(|entry| (label(&entry.spec.id), entry.metrics.snapshot()))
        .collect();
    for (name, kind, help, number) in NUMBERS {
        head(&mut out, name, kind, help);
        for (model, snapshot) in &models {
            let _ = writeln!(out, "{name}{{model_name=\"{model}\"}} {}", number(snapshot));
        }
    }
    let name = "vllm:request_success_total";
    head(&mut out, name, "counter", "Answers by how they ended.");
    for (model, snapshot) in &models {
        for (reason, n) in [
            ("stop", snapshot.stopped),
            ("length", snapshot.length),
            ("abort", snapshot.aborted),
            ("error", snapshot.failed),
        ] {
            let _ = writeln!(
                out,
                "{name}{{model_name=\"{model}\",finished_reason=\"{reason}\"}} {n}"
            );
        }
    }
    cache_config(&mut out, &models);
    adapters(&mut out, app);
    for (name, help, of) in HISTOGRAMS {
        head(&mut out, name, "histogram", help);
        for entry in app.registry.entries() {
            histogram(&mut out, name, &label(&entry.spec.id), of(entry));
        }
    }
    http(&mut out, app);
    keys(&mut out, app);
    out
}

/// The metric for routers by prefix (llm-d, Kubernetes' Gateway API Inference Extension): the cache's page size in
/// tokens, and the number of pages.
fn cache_config(out: &mut String, models: &[(String, Snapshot)]) {
    let name = "vllm:cache_config_info";
    head(
        out,
        name,
        "gauge",
        "The KV cache: tokens of a page, pages of a loaded model. Always 1.",
    );
    for (model, snapshot) in models {
        let _ = writeln!(
            out,
            "{name}{{model_name=\"{model}\",block_size=\"{PAGE_TOKENS}\",num_gpu_blocks=\"{}\"}} 1",
            snapshot.kv_capacity_pages
        );
    }
}

/// The metric for routers by adapter: every adapter is ready for the whole life of its model, so none waits.
fn adapters(out: &mut String, app: &App) {
    let entries = app.registry.entries().iter();
    let mut with_adapters = entries
        .filter(|entry| !entry.spec.adapters.is_empty())
        .peekable();
    if with_adapters.peek().is_none() {
        return;
    }
    let name = "vllm:lora_requests_info";
    head(
        out,
        name,
        "gauge",
        "LoRA adapters of a model. The value is the time of the reading, in seconds since 1970.",
    );
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = since_1970.map_or(0, |since| since.as_secs());
    for entry in with_adapters {
        let names: Vec<_> = entry.spec.adapters.iter().map(|a| label(&a.name)).collect();
        let _ = writeln!(
            out,
            "{name}{{model_name=\"{}\",max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"\"}} {now_s}",
            label(&entry.spec.id),
            names.len(),
            names.join(",")
        );
    }
}

/// Maximum number of keys with a separate label: the numbers of all others are summed.
const MAX_KEY_LABELS: usize = 100;

type KeyNumber = fn(&KeyCounts) -> &AtomicU64;

/// Name, kind, help, value.
const KEY_NUMBERS: [(&str, &str, &str, KeyNumber); 5] = [
    (
        "millrace:key_requests_running",
        "gauge",
        "Requests of an API key under way.",
        |c| &c.running,
    ),
    (
        "millrace:key_requests_total",
        "counter",
        "Requests of an API key that were let through.",
        |c| &c.requests,
    ),
    (
        "millrace:key_refused_total",
        "counter",
        "Requests of an API key beyond its quotas.",
        |c| &c.refused,
    ),
    (
        "millrace:key_prompt_tokens_total",
        "counter",
        "Tokens of an API key's prompts.",
        |c| &c.prompt_tokens,
    ),
    (
        "millrace:key_generation_tokens_total",
        "counter",
        "Tokens drawn for an API key.",
        |c| &c.generated_tokens,
    ),
];

fn keys(out: &mut String, app: &App) {
    if app.usage.is_empty() {
        return;
    }
    let (own, others) = app.usage.split_at(app.usage.len().min(MAX_KEY_LABELS));
    for (name, kind, help, number) in KEY_NUMBERS {
        head(out, name, kind, help);
        let value = |usage: &Arc<KeyUsage>| number(usage.counts()).load(Relaxed);
        for usage in own {
            let _ = writeln!(
                out,
                "{name}{{key=\"{}\"}} {}",
                label(usage.label()),
                value(usage)
            );
        }
        if !others.is_empty() {
            let sum: u64 = others.iter().map(value).sum();
            let _ = writeln!(out, "{name}{{key=\"other\"}} {sum}");
        }
    }
}

fn http(out: &mut String, app: &App) {
    let name = "millrace:http_responses_total";
    head(
        out,
        name,
        "counter",
        "Responses by the class of their status.",
    );
    for (class, n) in app.http.by_class.iter().enumerate() {
        let n = n.load(Relaxed);
        let _ = writeln!(out, "{name}{{class=\"{}xx\"}} {n}", class + 2);
    }
    let name = "millrace:http_connections";
    head(out, name, "gauge", "Open connections.");
    let _ = writeln!(out, "{name} {}", app.http.n_connections.load(Relaxed));
    let name = "millrace:http_connections_rejected_total";
    head(out, name, "counter", "Connections beyond the limit.");
    let _ = writeln!(
        out,
        "{name} {}",
        app.http.n_rejected_connections.load(Relaxed)
    );
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Escapes a label's value: backslash, quote and line end.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn histogram(out: &mut String, name: &str, model: &str, histogram: &Histogram) {
    let (buckets, n, sum) = histogram.read();
    for (bound, count) in buckets {
        let _ = writeln!(
            out,
            "{name}_bucket{{model_name=\"{model}\",le=\"{bound}\"}} {count}"
        );
    }
    let _ = writeln!(
        out,
        "{name}_bucket{{model_name=\"{model}\",le=\"+Inf\"}} {n}"
    );
    let _ = writeln!(
        out,
        "{name}_sum{{model_name=\"{model}\"}} {sum}\n{name}_count{{model_name=\"{model}\"}} {n}"
    );
}

//! Limits of each API key, and its usage.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limits of a key. `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Name of the key in logs and metrics; `key 0` and so on without one.
    pub name: Option<String>,
    /// Requests a minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens of prompts and answers a minute.
    pub tokens_per_minute: Option<u32>,
    /// Simultaneous requests.
    pub concurrent: Option<u32>,
    /// Priority of requests that set none, and the earliest that any request of the key gets. Lower is earlier.
    pub priority: Option<i32>,
}

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 64;

impl KeyLimits {
    /// Parses a line of a file of keys: the key, then settings, as `KEY name=team requests=60 tokens=100000
    /// concurrent=4 priority=5`.
    ///
    /// # Errors
    /// The setting that is unknown or has an invalid value.
    pub fn read_line(line: &str) -> Result<(String, KeyLimits), String> {
        let mut words = line.split_whitespace();
        let key = words.next().ok_or("there is no key")?.to_owned();
        let mut limits = KeyLimits::default();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || {
                let number = value.parse().ok().filter(|number: &u32| *number > 0);
                let wrong = || format!("{name}: expected a number above 0, found \"{value}\"");
                number.map(Some).ok_or_else(wrong)
            };
            match name {
                "name" if is_name(value) => limits.name = Some(value.to_owned()),
                "name" => {
                    return Err(format!(
                        "name: expected 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`, found \"{value}\""
                    ));
                }
                "requests" => limits.requests_per_minute = number()?,
                "tokens" => limits.tokens_per_minute = number()?,
                "concurrent" => limits.concurrent = number()?,
                "priority" => {
                    let wrong = |_| format!("priority: expected a whole number, found \"{value}\"");
                    limits.priority = Some(value.parse().map_err(wrong)?);
                }
                _ => {
                    return Err(format!(
                        "expected name=, requests=, tokens=, concurrent= or priority= behind the key, found \"{name}\""
                    ));
                }
            }
        }
        Ok((key, limits))
    }
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

/// A token bucket that refills over time, up to one minute's quota.
#[derive(Debug)]
struct Bucket {
    per_minute: f64,
    /// The remaining quota; negative after overuse.
    left: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_minute: u32, now: Instant) -> Bucket {
        Bucket {
            per_minute: per_minute.into(),
            left: per_minute.into(),
            filled: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        self.left += self.per_minute * elapsed.as_secs_f64() / 60.0;
        self.left = self.left.min(self.per_minute);
        self.filled = now;
    }

    /// The wait until this much is available; `None` if it is.
    fn wait(&mut self, wanted: f64, now: Instant) -> Option<Duration> {
        self.fill(now);
        let missing = wanted - self.left;
        (missing > 0.0).then(|| Duration::from_secs_f64(60.0 * missing / self.per_minute))
    }
}

#[derive(Debug)]
struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

/// Quotas and usage counts of a key.
#[derive(Debug)]
pub struct KeyUsage {
    limits: KeyLimits,
    label: String,
    buckets: Mutex<Buckets>,
    counts: KeyCounts,
}

/// Usage counts of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts {
    pub(crate) running: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) prompt_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
}

/// A request over its key's quota.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OverQuota {
    /// The exceeded quota, with its limit.
    pub(crate) quota: String,
    pub(crate) retry_after: Duration,
}

impl KeyUsage {
    /// State of the key with this index, without usage.
    pub(crate) fn new(index: usize, limits: KeyLimits) -> KeyUsage {
        let now = Instant::now();
        let bucket = |per_minute: Option<u32>| per_minute.map(|limit| Bucket::new(limit, now));
        KeyUsage {
            label: limits
                .name
                .clone()
                .unwrap_or_else(|| format!("key {index}")),
            buckets: Mutex::new(Buckets {
                requests: bucket(limits.requests_per_minute),
                tokens: bucket(limits.tokens_per_minute),
            }),
            limits,
            counts: KeyCounts::default(),
        }
    }

    /// Name of the key in logs and metrics.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn counts(&self) -> &KeyCounts {
        &self.counts
    }

    pub(crate) fn priority(&self) -> Option<i32> {
        self.limits.priority
    }

    /// Begins a request, which ends when the returned guard is dropped, or reports that it must wait.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant) -> Result<RunningRequest, OverQuota> {
        let begun = self.counts.running.fetch_add(1, Relaxed);
        let running = RunningRequest(Arc::clone(self));
        let refused = self.refusal(begun, now);
        let count = match refused {
            Some(_) => &self.counts.refused,
            None => &self.counts.requests,
        };
        count.fetch_add(1, Relaxed);
        match refused {
            Some(refused) => Err(refused),
            None => Ok(running),
        }
    }

    /// The reason why a request must wait, with `n_running` others under way. A request that need not wait is counted
    /// against the quota.
    fn refusal(&self, n_running: u64, now: Instant) -> Option<OverQuota> {
        if let Some(limit) = self
            .limits
            .concurrent
            .filter(|limit| n_running >= u64::from(*limit))
        {
            return Some(OverQuota {
                quota: format!("{limit} requests at a time"),
                retry_after: Duration::from_secs(1),
            });
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Buckets { requests, tokens } = &mut *buckets;
        // An answer's tokens are known only after it is written, so requests under way can overdraw a quota.
        for (bucket, wanted, what) in [
            (&mut *tokens, 1.0, "tokens"),
            (&mut *requests, 1.0, "requests"),
        ] {
            if let Some(bucket) = bucket
                && let Some(retry_after) = bucket.wait(wanted, now)
            {
                let quota = format!("{} {what} a minute", bucket.per_minute);
                return Some(OverQuota { quota, retry_after });
            }
        }
        if let Some(requests) = requests {
            requests.left -= 1.0;
        }
        None
    }

    /// Counts the tokens of an accepted prompt.
    pub(crate) fn add_prompt(&self, n_tokens: usize) {
        self.counts
            .prompt_tokens
            .fetch_add(n_tokens as u64, Relaxed);
        self.spend(n_tokens);
    }

    /// Counts a generated token.
    pub(crate) fn add_generated(&self) {
        self.counts.generated_tokens.fetch_add(1, Relaxed);
        self.spend(1);
    }

    fn spend(&self, n_tokens: usize) {
        if self.limits.tokens_per_minute.is_some() {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(tokens) = &mut buckets.tokens {
                tokens.fill(Instant::now());
                tokens.left -= n_tokens as f64;
            }
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct RunningRequest(Arc<KeyUsage>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.counts.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_and_what_it_may_use() {
        let read = |line: &str| KeyLimits::read_line(line);
        assert_eq!(
            read("secret"),
            Ok(("secret".to_owned(), KeyLimits::default()))
        );
        let all = KeyLimits {
            name: Some("team-a".to_owned()),
            requests_per_minute: Some(60),
            tokens_per_minute: Some(1000),
            concurrent: Some(2),
            priority: Some(-3),
        };
        let line = "secret  name=team-a requests=60\ttokens=1000 concurrent=2 priority=-3";
        assert_eq!(read(line), Ok(("secret".to_owned(), all)));
        for (line, word) in [
            ("", "no key"),
            ("secret requests=0", "requests"),
            ("secret tokens=many", "tokens"),
            ("secret concurrent", "concurrent"),
            ("secret priority=high", "priority"),
            ("secret name=a\"b", "name"),
            ("secret name=", "name"),
            ("secret other", "other"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    fn usage(limits: KeyLimits) -> Arc<KeyUsage> {
        Arc::new(KeyUsage::new(0, limits))
    }

    #[test]
    fn requests_a_minute_come_back_by_the_clock() {
        let usage = usage(KeyLimits {
            requests_per_minute: Some(2),
            ..KeyLimits::default()
        });
        let start = Instant::now();
        let begin = |after_s: u64| usage.begin(start + Duration::from_secs(after_s));
        assert!(begin(0).is_ok() && begin(0).is_ok());
        let refused = begin(0).unwrap_err();
        assert_eq!(refused.quota, "2 requests a minute");
        assert!(
            (29.0..=30.0).contains(&refused.retry_after.as_secs_f64()),
            "{refused:?}"
        );
        assert!(begin(31).is_ok());
        assert!(begin(31).is_err());
        // At most one minute's quota accumulates.
        assert!(begin(1000).is_ok() && begin(1000).is_ok() && begin(1000).is_err());
        let counts = usage.counts();
        assert_eq!(
            (counts.requests.load(Relaxed), counts.refused.load(Relaxed)),
            (5, 3)
        );
        assert_eq!(counts.running.load(Relaxed), 0);
    }

    #[test]
    fn so_many_requests_run_at_a_time() {
        let usage = usage(KeyLimits {
            concurrent: Some(1),
            ..KeyLimits::default()
        });
        let now = Instant::now();
        let first = usage.begin(now).unwrap();
        assert_eq!(usage.begin(now).unwrap_err().quota, "1 requests at a time");
        drop(first);
        assert!(usage.begin(now).is_ok());
    }

    #[test]
    fn tokens_are_counted_when_they_are_known() {
        let usage = usage(KeyLimits {
            tokens_per_minute: Some(60),
            ..KeyLimits::default()
        });
        assert!(usage.begin(Instant::now()).is_ok());
        usage.add_prompt(90);
        for _ in 0..30 {
            usage.add_generated();
        }
        let refused = usage.begin(Instant::now()).unwrap_err();
        assert_eq!(refused.quota, "60 tokens a minute");
        // 60 beyond the quota, and one more.
        assert!(
            (59.0..=61.0).contains(&refused.retry_after.as_secs_f64()),
            "{refused:?}"
        );
        assert!(
            usage
                .begin(Instant::now() + Duration::from_secs(62))
                .is_ok()
        );
        let counts = usage.counts();
        let tokens = [&counts.prompt_tokens, &counts.generated_tokens];
        assert_eq!(tokens.map(|count| count.load(Relaxed)), [90, 30]);
    }
}

//! HTTP to the hub: listings, redirects, scope of the token, and which failures are retried.

use super::cache::is_hex;
use super::select::{RepoFile, is_safe_path};
use super::{Error, HubSettings};
use crate::watch;
use serde::Deserialize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use ureq::http::{Response, StatusCode, header};
use ureq::{Agent, Body};

/// Failures in a row without progress before giving up.
const ATTEMPTS: u32 = 5;
/// Wait after the first failure; doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection that delivers nothing for this long is considered dead.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 8;
/// The largest listing accepted; the hub's largest repositories stay below a tenth of it.
const MAX_LISTING_BYTES: u64 = 64 << 20;

/// A failure that may be temporary, or one that is final.
pub(super) enum Trouble {
    Passing {
        error: Error,
        wait: Option<Duration>,
    },
    Final(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Final(error)
    }
}

/// Counts failures, waits longer after each, and decides when to stop.
#[derive(Default)]
pub(super) struct RetryBudget {
    failures: u32,
}

impl RetryBudget {
    /// Records progress: earlier failures no longer count.
    pub(super) fn progressed(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next attempt, or returns the error if there should be none.
    pub(super) fn wait(&mut self, trouble: Trouble, cancel: &AtomicBool) -> Result<(), Error> {
        let (error, wait) = match trouble {
            Trouble::Final(error) => return Err(error),
            Trouble::Passing { error, wait } => (error, wait),
        };
        self.failures += 1;
        if self.failures >= ATTEMPTS {
            return Err(error);
        }
        let backoff = FIRST_WAIT * 2u32.pow(self.failures - 1);
        watch::sleep(wait.unwrap_or(backoff).min(LONGEST_WAIT), cancel)
    }
}

/// Which part of a file to ask for.
pub(super) struct ByteRange<'a> {
    pub(super) start: u64,
    /// The ETag of the response that brought the bytes before `start`, where one is known.
    pub(super) if_range: Option<&'a str>,
}

/// A repository at one commit.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<RepoFile>,
}

/// The HTTP side of the hub.
pub(super) struct Client<'a> {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    cancel: &'a AtomicBool,
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &HubSettings, cancel: &'a AtomicBool) -> Client<'a> {
        let config = Agent::config_builder()
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            // Redirects are followed here, since the token's rule is applied here.
            .max_redirects(0)
            .http_status_as_error(false)
            // Sizes and ranges are those of the file itself.
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(STALL_TIMEOUT))
            .timeout_per_read(Some(STALL_TIMEOUT))
            .build();
        let (endpoint, token) = (settings.endpoint.clone(), settings.token.clone());
        Client {
            agent: config.into(),
            endpoint,
            token,
            cancel,
        }
    }

    /// The files of a repository, with sizes and hashes.
    pub(super) fn list(&self, repo: &str, revision: &str) -> Result<Listing, Error> {
        // A revision with slashes (`refs/pr/1`) is one path segment.
        let revision_segment = percent_encode(revision).replace('/', "%2F");
        let url = format!(
            "{}/api/models/{repo}/revision/{revision_segment}?blobs=true",
            self.endpoint
        );
        let mut patience = RetryBudget::default();
        loop {
            match self.list_once(&url, repo, revision) {
                Ok(listing) => return Ok(listing),
                Err(trouble) => patience.wait(trouble, self.cancel)?,
            }
        }
    }

    fn list_once(&self, url: &str, repo: &str, revision: &str) -> Result<Listing, Trouble> {
        let response = self.get(url, None)?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(&response, url, repo, Some(revision)));
        }
        let text = response
            .into_body()
            .with_config()
            .limit(MAX_LISTING_BYTES)
            .read_to_vec()
            .map_err(|error| network(url, &error))?;
        Ok(parse_listing(&text, repo)?)
    }

    /// Sends a GET and follows redirects. The token goes to the endpoint's own origin only. A redirect to storage
    /// elsewhere carries its permission in its address.
    pub(super) fn get(
        &self,
        url: &str,
        range: Option<&ByteRange<'_>>,
    ) -> Result<Response<Body>, Trouble> {
        let mut url = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let mut request = self.agent.get(&url);
            if let Some(token) = &self.token
                && origin(&url) == origin(&self.endpoint)
            {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some(range) = range {
                request = request.header(header::RANGE, format!("bytes={}-", range.start));
                if let Some(etag) = range.if_range {
                    request = request.header(header::IF_RANGE, etag);
                }
            }
            let response = request.call().map_err(|error| network(&url, &error))?;
            let location = response.headers().get(header::LOCATION);
            match location.filter(|_| is_redirect(response.status())) {
                Some(location) => url = redirect_target(&url, location.to_str().unwrap_or(""))?,
                None => return Ok(response),
            }
        }
        Err(Trouble::Final(Error::BadResponse {
            url,
            what: "too many redirects".into(),
        }))
    }

    /// The error for an unsuccessful status. `revision` is given when a listing was requested.
    pub(super) fn refusal(
        &self,
        response: &Response<Body>,
        url: &str,
        repo: &str,
        revision: Option<&str>,
    ) -> Trouble {
        let status = response.status().as_u16();
        let text = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        let code = text("x-error-code").unwrap_or_default();
        let (repo, endpoint) = (repo.to_owned(), self.endpoint.clone());
        let has_token = self.token.is_some();
        let error = match (status, code, revision) {
            (401 | 403, "GatedRepo", _) => Error::Gated {
                repo,
                endpoint,
                has_token,
            },
            (401 | 403, _, _) => Error::Refused {
                repo,
                endpoint,
                status,
                has_token,
            },
            (404, "RevisionNotFound", Some(revision)) => Error::NoSuchRevision {
                repo,
                revision: revision.to_owned(),
            },
            (404, _, Some(_)) => Error::NoSuchRepo { repo, endpoint },
            _ => Error::Status {
                url: url.to_owned(),
                status,
            },
        };
        if matches!(status, 408 | 425 | 429 | 500..=599) {
            let wait = text("retry-after").and_then(|seconds| seconds.trim().parse().ok());
            return Trouble::Passing {
                error,
                wait: wait.map(Duration::from_secs),
            };
        }
        Trouble::Final(error)
    }
}

#[derive(Deserialize)]
struct ApiModel {
    sha: String,
    #[serde(default)]
    siblings: Vec<ApiFile>,
}

#[derive(Deserialize)]
struct ApiFile {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<ApiLfs>,
}

#[derive(Deserialize)]
struct ApiLfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Parses the hub's listing. Every name and hash in it is checked before it can become a path.
fn parse_listing(text: &[u8], repo: &str) -> Result<Listing, Error> {
    let bad = |what: String| Error::BadListing {
        repo: repo.to_owned(),
        what,
    };
    let model: ApiModel = serde_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
    if !is_hex(&model.sha) {
        return Err(bad(format!("`{}` is not a commit", model.sha)));
    }
    let file = |file: ApiFile| {
        if !is_safe_path(&file.rfilename) {
            return Err(bad(format!(
                "`{}` is not a path within a repository",
                file.rfilename
            )));
        }
        let lfs = file.lfs.as_ref();
        let size_bytes = lfs.and_then(|lfs| lfs.size).or(file.size);
        let hash = lfs.and_then(|lfs| lfs.sha256.clone()).or(file.blob_id);
        let size_bytes =
            size_bytes.ok_or_else(|| bad(format!("no size for `{}`", file.rfilename)))?;
        Ok(RepoFile {
            name: file.rfilename,
            size_bytes,
            hash,
        })
    };
    let files = model
        .siblings
        .into_iter()
        .map(file)
        .collect::<Result<_, _>>()?;
    Ok(Listing {
        commit: model.sha,
        files,
    })
}

/// An error of the connection. A host that does not exist or refuses is final: that does not change within the
/// seconds that retries take.
pub(super) fn network(url: &str, error: &ureq::Error) -> Trouble {
    let unresolved = match error {
        ureq::Error::HostNotFound => true,
        // The system's message on Unix and on Windows; its error kind is not specific.
        ureq::Error::Io(io) => {
            let text = io.to_string();
            text.contains("lookup address") || text.contains("No such host")
        }
        _ => false,
    };
    let what = match error {
        _ if unresolved => "the host's name cannot be resolved".to_owned(),
        ureq::Error::Timeout(_) => "the server does not answer".to_owned(),
        other => other.to_string(),
    };
    let refused =
        matches!(error, ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused || unresolved {
        let url = url.to_owned();
        return Trouble::Final(Error::Unreachable { url, what });
    }
    let network = Error::Network {
        url: url.to_owned(),
        what,
    };
    match error {
        ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::Protocol(_) => {
            Trouble::Passing {
                error: network,
                wait: None,
            }
        }
        _ => Trouble::Final(network),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Scheme and authority of an address, in lower case.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(format!("{scheme}://{authority}").to_lowercase())
}

/// The address of a `Location` header, relative to `url`.
fn redirect_target(url: &str, location: &str) -> Result<String, Error> {
    let bad = |what: &str| Error::BadResponse {
        url: url.to_owned(),
        what: what.to_owned(),
    };
    let base = origin(url).ok_or_else(|| bad("an address without a host"))?;
    let scheme = base.split(':').next().unwrap_or_default();
    let target = if location.starts_with("http://") || location.starts_with("https://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{base}{location}")
    } else {
        return Err(bad("a redirect to an address this program cannot follow"));
    };
    if scheme == "https" && target.starts_with("http://") {
        return Err(bad("a redirect from https to http"));
    }
    Ok(target)
}

/// Escapes characters that a path within an address may not contain; slashes stay.
pub(super) fn percent_encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_resolve_against_the_origin() {
        let from = "https://hub.example/a/b?x=1";
        for (location, target) in [
            ("https://cdn.example/y", "https://cdn.example/y"),
            ("//cdn.example/y", "https://cdn.example/y"),
            ("/z?q", "https://hub.example/z?q"),
        ] {
            assert_eq!(redirect_target(from, location).expect(location), target);
        }
        for location in ["http://cdn.example/y", "ftp://x", "relative", ""] {
            assert!(redirect_target(from, location).is_err(), "{location}");
        }
    }

    #[test]
    fn origins_differ_by_scheme_host_and_port() {
        let same = |a, b| origin(a) == origin(b);
        assert!(same("https://Hub.example/x", "https://hub.example"));
        assert!(!same("https://hub.example", "http://hub.example"));
        assert!(!same("http://hub.example:1/x", "http://hub.example:2/x"));
        assert!(!same("https://hub.example.evil/x", "https://hub.example/x"));
    }

    #[test]
    fn listings_with_names_that_leave_the_cache_are_refused() {
        let sha = "0123456789012345678901234567890123456789";
        let listing = |name: &str, sha: &str| {
            let text = format!(
                r#"{{"sha":"{sha}","siblings":[{{"rfilename":"{name}","size":1,"blobId":"{sha}"}}]}}"#
            );
            parse_listing(text.as_bytes(), "a/b")
        };
        assert_eq!(listing("x.gguf", sha).expect("fine").files[0].size_bytes, 1);
        for (name, sha) in [("../x", sha), ("/x", sha), ("x", "../../refs"), ("x", "")] {
            assert!(listing(name, sha).is_err(), "{name} {sha}");
        }
        assert!(parse_listing(b"<html>", "a/b").is_err());
    }

    #[test]
    fn paths_are_escaped() {
        assert_eq!(percent_encode("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}

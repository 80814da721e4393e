//! Access control by host name, origin and key; and the headers that every response carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::held::until_written;
use crate::api::error::ApiError;
use crate::api::unique;
use crate::app::{App, Asker, Dialect, LEFT_OUT, key_name};
use crate::keys::OverQuota;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Public paths: liveness, and the page, which asks for the key itself.
const OPEN: [&str; 5] = ["/", "/health", "/v1/health", "/ready", "/favicon.ico"];

/// Paths of programs that only check whether the server is alive.
const PROBES: [&str; 3] = ["/health", "/v1/health", "/ready"];

/// Names by which a container reaches its host. They belong to no public domain.
const HOSTS_OF_CONTAINERS: [&str; 2] = ["host.docker.internal", "host.containers.internal"];

/// Admits or refuses a request; gives it an id, counts it and, if configured, logs it.
pub(crate) async fn guard(
    State(app): State<Arc<App>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let asked = Preflight::of(&request);
    let mut usage = None;
    let mut response = match admit(&app, &request, peer.ip()) {
        Err(error) => Dialect::of_path(&path).response(&error),
        Ok(_) if method == Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        Ok(client) => {
            usage = app.usage_of(&client);
            let asker = Asker {
                client,
                request: Arc::from(id.as_str()),
                priority: usage
                    .as_ref()
                    .and_then(|usage| usage.priority())
                    .unwrap_or(0),
                usage: usage.clone(),
            };
            request.extensions_mut().insert(asker);
            let counted = usage.as_ref().filter(|_| is_counted(&method, &path));
            match counted.map(|usage| usage.begin(start)).transpose() {
                Ok(running) => until_written(next.run(request).await, running),
                Err(refused) => Dialect::of_path(&path).response(&over_quota(&refused)),
            }
        }
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(&REQUEST_ID, value);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if let Some(origin) = origin.filter(|origin| is_allowed_origin(&app, origin)) {
        allow_origin(headers, origin, asked);
    }
    app.http.count(response.status());
    if app.options.log || app.audit.is_some() {
        let mut line = json!({
            "request": id, "peer": peer.ip().to_string(), "method": method.as_str(), "path": path,
            "status": response.status().as_u16(),
            "headers_after_ms": start.elapsed().as_secs_f64() * 1e3,
        });
        if let Some(usage) = &usage {
            line["key"] = usage.label().into();
        }
        app.request_log(Arc::from(id)).write(&line);
    }
    response
}

/// Whether a request counts against its key's quotas: all requests that models work for.
fn is_counted(method: &Method, path: &str) -> bool {
    let is_kept = ["/v1/files", "/v1/batches", "/v1/models/", "/lora-adapters"];
    method == Method::POST && !is_kept.iter().any(|kept| path.starts_with(kept))
}

fn over_quota(refused: &OverQuota) -> ApiError {
    let seconds = refused.retry_after.as_secs_f64().ceil() as u64;
    let message = format!(
        "this API key may use {}; try again in {seconds} s",
        refused.quota
    );
    ApiError {
        code: Some("rate_limit_exceeded"),
        retry_after: Some(seconds.max(1)),
        ..ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
    }
}

/// The caller's own id for its request if it is plain, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(&REQUEST_ID).and_then(|id| id.to_str().ok());
    let is_plain = |id: &&str| {
        (1..=128).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    given
        .filter(is_plain)
        .map_or_else(|| unique("req_"), str::to_owned)
}

/// The client, or the reason for refusing it.
fn admit(app: &App, request: &Request, peer: IpAddr) -> Result<Arc<str>, ApiError> {
    let headers = request.headers();
    check_host(app, request)?;
    if let Some(origin) = headers.get(header::ORIGIN)
        && !is_allowed_origin(app, origin)
        && !is_own_origin(origin, headers)
    {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "pages of this origin may not use this server; start it with --allow-origin to let them",
        ));
    }
    // Browsers send preflight requests without the key.
    if request.method() == Method::OPTIONS {
        return Ok(Arc::from(""));
    }
    if app.options.api_keys.is_empty() {
        return Ok(Arc::from(peer.to_string()));
    }
    let given = given_key(headers);
    let found = given.and_then(|given| find_key(&app.options.api_keys, given));
    match found {
        Some(index) => Ok(key_name(index)),
        None if is_open(app, request.uri().path()) => Ok(Arc::from(peer.to_string())),
        None => Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            match given {
                Some(_) => "the API key is not one of this server's",
                None => {
                    "this server wants an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
                }
            },
        )),
    }
}

/// Whether a path needs no key.
fn is_open(app: &App, path: &str) -> bool {
    OPEN.contains(&path) || (app.options.open_metrics && path == "/metrics")
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| text("x-api-key"))
}

/// The index of a key. All keys are compared, by their hashes, so timing reveals neither a key's bytes nor its index.
fn find_key(keys: &[String], given: &str) -> Option<usize> {
    let given = Sha256::digest(given.as_bytes());
    let mut found = None;
    for (i, key) in keys.iter().enumerate() {
        let key = Sha256::digest(key.as_bytes());
        let difference = key.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
        if difference == 0 {
            found = Some(i);
        }
    }
    found
}

/// A foreign page can point its own host name at this computer; its requests then carry that name. If several hosts
/// are named, a proxy may have used another of them (RFC 9112, section 3.2), so all must be known.
fn check_host(app: &App, request: &Request) -> Result<(), ApiError> {
    let hosts: Vec<&HeaderValue> = request.headers().get_all(header::HOST).iter().collect();
    let in_target = request.uri().authority().map(|host| host.as_str());
    let named = match (&hosts[..], in_target) {
        // Probes of old proxies. No browser speaks HTTP/1.0, and nothing there depends on a name.
        ([], None)
            if request.version() <= Version::HTTP_10 && PROBES.contains(&request.uri().path()) =>
        {
            return Ok(());
        }
        ([], None) => return Err(ApiError::bad("the request has no Host header")),
        ([], Some(_)) => None,
        ([host], _) => Some(host.to_str().unwrap_or_default()),
        _ => return Err(ApiError::bad("the request has several Host headers")),
    };
    let is_known = |host: &str| match HostName::of(host) {
        None => false,
        Some(HostName::Address) => true,
        Some(HostName::Name(name)) => {
            let mut allowed = app.options.allowed_hosts.iter();
            is_of_this_computer(name)
                || allowed.any(|known| known.trim_end_matches('.').eq_ignore_ascii_case(name))
        }
    };
    if named.into_iter().chain(in_target).all(is_known) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        "this server does not go by that name; start it with --allow-host NAME if it should",
    ))
}

/// The host in a `Host` header.
#[derive(Debug, PartialEq, Eq)]
enum HostName<'a> {
    Address,
    /// A name, without the final dot of its fully qualified form.
    Name(&'a str),
}

impl HostName<'_> {
    /// Parses an address or a name, with an optional port: nothing else is allowed (RFC 9110, section 7.2).
    fn of(host: &str) -> Option<HostName<'_>> {
        let is_port = |rest: &str| match rest.strip_prefix(':') {
            Some(port) => port.bytes().all(|b| b.is_ascii_digit()) && port.len() <= 5,
            None => rest.is_empty(),
        };
        if let Some(rest) = host.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let is_address = address.parse::<Ipv6Addr>().is_ok();
            return (is_address && is_port(rest)).then_some(HostName::Address);
        }
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        if name.is_empty() || !is_port(port) {
            return None;
        }
        if name.parse::<Ipv4Addr>().is_ok() {
            return Some(HostName::Address);
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let name = name.strip_suffix('.').unwrap_or(name);
        (!name.is_empty() && name.bytes().all(is_plain)).then_some(HostName::Name(name))
    }
}

/// Names that always refer to this computer: `localhost` and its subdomains (RFC 6761, section 6.3), and the names
/// that containers have for it.
fn is_of_this_computer(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let labels = name.strip_suffix("localhost");
    labels.is_some_and(|labels| labels.is_empty() || labels.ends_with('.'))
        || HOSTS_OF_CONTAINERS.contains(&name.as_str())
}

fn is_allowed_origin(app: &App, origin: &HeaderValue) -> bool {
    let origin = origin.to_str().unwrap_or_default();
    let mut allowed = app.options.allowed_origins.iter();
    allowed.any(|one| one == "*" || one.eq_ignore_ascii_case(origin))
}

/// Whether the request comes from a page of this server.
fn is_own_origin(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let (Some(origin), Some(host)) = (text(origin), headers.get(header::HOST).and_then(text))
    else {
        return false;
    };
    let after_scheme = origin.split_once("://").map(|(_, host)| host.to_owned());
    after_scheme.is_some_and(|of_page| of_page.eq_ignore_ascii_case(&host))
}

/// A browser's preflight request for a page.
struct Preflight {
    /// Names of headers the page wants to send.
    headers: Option<HeaderValue>,
    /// Whether the page comes from a wider network than this server's.
    is_from_outside: bool,
}

impl Preflight {
    fn of(request: &Request) -> Preflight {
        let headers = request.headers();
        let is_true = |value: &HeaderValue| value == "true";
        Preflight {
            headers: headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned(),
            is_from_outside: headers.get(&PRIVATE_NETWORK_ASKED).is_some_and(is_true),
        }
    }
}

static PRIVATE_NETWORK_ASKED: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
static PRIVATE_NETWORK_ALLOWED: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Headers that pages send, for browsers that do not list them.
const SENT_HEADERS: &str = "authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms, \
                            anthropic-version, anthropic-beta, anthropic-dangerous-direct-browser-access";

/// Lets a page of an allowed origin send any headers, and read the response's. Every official client has its own
/// headers, and none of them affects access.
fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue, asked: Preflight) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::VARY,
        HeaderValue::from_static("origin, access-control-request-headers"),
    );
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, OPTIONS"),
    );
    let sent = asked.headers.filter(|names| !names.is_empty());
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        sent.unwrap_or_else(|| HeaderValue::from_static(SENT_HEADERS)),
    );
    let read = format!("{REQUEST_ID}, retry-after, {LEFT_OUT}");
    if let Ok(read) = HeaderValue::from_str(&read) {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, read);
    }
    if asked.is_from_outside {
        headers.insert(&PRIVATE_NETWORK_ALLOWED, HeaderValue::from_static("true"));
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
}

/// Refuses new requests while the server shuts down; clients should retry later.
pub(crate) fn refuse_while_draining(app: &App) -> Result<(), ApiError> {
    if app.is_draining.load(Relaxed) {
        return Err(crate::scheduler::SubmitError::Draining.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_an_address_or_a_name_and_a_port() {
        let name = |name| Some(HostName::Name(name));
        for (host, read) in [
            ("localhost:8080", name("localhost")),
            ("localhost.", name("localhost")),
            ("a.localhost.:80", name("a.localhost")),
            ("evil.example", name("evil.example")),
            ("localhost:", name("localhost")),
            ("127.0.0.1", Some(HostName::Address)),
            ("127.0.0.1:80", Some(HostName::Address)),
            ("[::1]:8080", Some(HostName::Address)),
            ("[::1]", Some(HostName::Address)),
            ("[::1].evil.example", None),
            ("[::1]evil", None),
            ("[::1]:80@evil.example", None),
            ("[evil.example]", None),
            ("[127.0.0.1]", None),
            ("[::1", None),
            ("::1", None),
            ("localhost:80@evil.example", None),
            ("localhost:80.evil.example", None),
            ("user@localhost", None),
            ("localhost/evil", None),
            ("localhost:123456", None),
            ("a b", None),
            (":80", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(HostName::of(host), read, "{host}");
        }
        for (name, is_own) in [
            ("localhost", true),
            ("LocalHost", true),
            ("app.localhost", true),
            ("host.docker.internal", true),
            ("notlocalhost", false),
            ("localhost.evil.example", false),
            ("evil.docker.internal", false),
        ] {
            assert_eq!(is_of_this_computer(name), is_own, "{name}");
        }
    }

    #[test]
    fn keys_are_found_by_all_their_bytes() {
        let keys = ["alpha".to_owned(), "beta".to_owned()];
        assert_eq!(find_key(&keys, "beta"), Some(1));
        for wrong in ["", "alph", "alphaa", "Alpha"] {
            assert_eq!(find_key(&keys, wrong), None, "{wrong}");
        }
    }
}

//! A hub on loopback: one repository, a second server that acts as the storage it redirects to, and faults on demand.

use serde_json::{Value, json};
use sha2::Digest;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Commit of the hub's only revision.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// Name of the hub's repository.
pub(crate) const REPO: &str = "acme/tiny";
/// Files above this size are "large": named by SHA-256 and, if asked, on the storage server.
const LARGE_BYTES: usize = 1000;

/// How the hub misbehaves.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// Only this token may read.
    pub(crate) token: Option<&'static str>,
    /// Large files are stored elsewhere: a redirect to the storage server.
    pub(crate) storage: bool,
    /// Every file is behind a redirect to another path of the same server.
    pub(crate) same_host_redirect: bool,
    /// Ranges are ignored: the whole file is sent, with status 200.
    pub(crate) ignore_range: bool,
    /// The bodies of the next large downloads end after this many bytes; one entry per request.
    pub(crate) cut_after: Vec<usize>,
    /// Statuses that the next file requests get instead.
    pub(crate) statuses: Vec<u16>,
    /// Large bodies have one changed byte.
    pub(crate) corrupt: bool,
    /// Large bodies arrive in slices of this size, with this pause after each.
    pub(crate) drip: Option<(usize, Duration)>,
    /// Extra entries in the listing.
    pub(crate) extra_siblings: Vec<Value>,
    /// Answer listings with 403 and the code of a gated repository.
    pub(crate) gated: bool,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `hub` or `storage`.
    pub(crate) server: &'static str,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

struct Shared {
    files: Vec<(String, Vec<u8>)>,
    faults: Mutex<Faults>,
    requests: Mutex<Vec<Request>>,
    storage: String,
}

/// The running servers; their threads end with the test process.
pub(crate) struct TestHub {
    pub(crate) endpoint: String,
    shared: Arc<Shared>,
}

impl TestHub {
    pub(crate) fn start(files: &[(&str, Vec<u8>)], faults: Faults) -> TestHub {
        let hub = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let storage = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address =
            |listener: &TcpListener| format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            files: files
                .iter()
                .map(|(name, bytes)| ((*name).to_owned(), bytes.clone()))
                .collect(),
            faults: Mutex::new(faults),
            requests: Mutex::default(),
            storage: address(&storage),
        });
        let endpoint = address(&hub);
        serve(hub, "hub", &shared);
        serve(storage, "storage", &shared);
        TestHub { endpoint, shared }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared
            .requests
            .lock()
            .expect("no panic while held")
            .clone()
    }

    /// Requests that delivered file content (not the redirects before them).
    pub(crate) fn downloads(&self, file: &str) -> Vec<Request> {
        let redirected = {
            let faults = self.shared.faults.lock().expect("no panic while held");
            faults.storage || faults.same_host_redirect
        };
        let is_content = |request: &Request| {
            let resolve = request.path.contains("/resolve/");
            request.path.ends_with(file) && (resolve != redirected)
        };
        self.requests().into_iter().filter(is_content).collect()
    }

    /// Changes the faults from now on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        *self.shared.faults.lock().expect("no panic while held") = faults;
    }
}

fn serve(listener: TcpListener, server: &'static str, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                // Clients that hang up early are part of the tests.
                let _ = answer(stream, server, &shared);
            });
        }
    });
}

fn answer(mut stream: TcpStream, server: &'static str, shared: &Shared) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let request = Request {
        server,
        path,
        headers,
    };
    shared
        .requests
        .lock()
        .expect("no panic while held")
        .push(request.clone());
    respond(&mut stream, &request, shared)
}

fn respond(stream: &mut TcpStream, request: &Request, shared: &Shared) -> std::io::Result<()> {
    let faults = shared.faults.lock().expect("no panic while held").clone();
    let authorized = request
        .header("authorization")
        .map(|value| value.replace("Bearer ", ""));
    if request.server == "hub" && faults.token.is_some() && authorized.as_deref() != faults.token {
        return plain(stream, 401, &[]);
    }
    let path = request.path.split('?').next().unwrap_or_default();
    if path == format!("/api/models/{REPO}/revision/main") {
        if faults.gated {
            return plain(stream, 403, &[("X-Error-Code", "GatedRepo")]);
        }
        return json_body(stream, &listing(shared, &faults));
    }
    if path.starts_with(&format!("/api/models/{REPO}/")) {
        return plain(stream, 404, &[("X-Error-Code", "RevisionNotFound")]);
    }
    let resolve = format!("/{REPO}/resolve/{COMMIT}/");
    let name = path
        .strip_prefix(&resolve)
        .or(path.strip_prefix("/stored/"));
    let Some((name, bytes)) =
        name.and_then(|name| shared.files.iter().find(|(file, _)| file == name))
    else {
        return plain(stream, 404, &[("X-Error-Code", "RepoNotFound")]);
    };
    let direct = path.starts_with("/stored/");
    if !direct && faults.same_host_redirect {
        return plain(stream, 307, &[("Location", &format!("/stored/{name}"))]);
    }
    if !direct && faults.storage && bytes.len() > LARGE_BYTES {
        return plain(
            stream,
            302,
            &[("Location", &format!("{}/stored/{name}", shared.storage))],
        );
    }
    let next_status = {
        let mut faults = shared.faults.lock().expect("no panic while held");
        (!faults.statuses.is_empty()).then(|| faults.statuses.remove(0))
    };
    match next_status {
        Some(status) => plain(stream, status, &[]),
        None => content(stream, request, bytes, shared, &faults),
    }
}

/// Sends a file, or the requested part of it.
fn content(
    stream: &mut TcpStream,
    request: &Request,
    bytes: &[u8],
    shared: &Shared,
    faults: &Faults,
) -> std::io::Result<()> {
    let etag = "\"validator\"";
    let start = request
        .header("range")
        .filter(|_| !faults.ignore_range)
        .filter(|_| request.header("if-range").is_none_or(|value| value == etag))
        .and_then(|range| {
            range
                .strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse::<usize>()
                .ok()
        });
    let total = bytes.len();
    let mut body = bytes[start.unwrap_or(0)..].to_vec();
    let large = total > LARGE_BYTES;
    if faults.corrupt && large {
        body[0] ^= 1;
    }
    let status = match start {
        Some(start) => format!(
            "206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}",
            total - 1
        ),
        None => "200 OK".to_owned(),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nETag: {etag}\r\nConnection: close\r\n\r\n"
    )?;
    if large {
        let mut faults = shared.faults.lock().expect("no panic while held");
        if !faults.cut_after.is_empty() {
            body.truncate(faults.cut_after.remove(0));
        }
    }
    match faults.drip.filter(|_| large) {
        Some((slice, pause)) => {
            for part in body.chunks(slice) {
                stream.write_all(part)?;
                std::thread::sleep(pause);
            }
            Ok(())
        }
        None => stream.write_all(&body),
    }
}

fn listing(shared: &Shared, faults: &Faults) -> Value {
    let sibling = |(name, bytes): &(String, Vec<u8>)| {
        let blob_id = git_sha1(bytes);
        let mut entry = json!({ "rfilename": name, "size": bytes.len(), "blobId": blob_id });
        if bytes.len() > LARGE_BYTES {
            let sha256 = sha256(bytes);
            entry["lfs"] = json!({ "sha256": sha256, "size": bytes.len(), "pointerSize": 134 });
        }
        entry
    };
    let mut siblings: Vec<Value> = shared.files.iter().map(sibling).collect();
    siblings.extend(faults.extra_siblings.iter().cloned());
    json!({ "id": REPO, "sha": COMMIT, "siblings": siblings })
}

fn plain(stream: &mut TcpStream, status: u16, headers: &[(&str, &str)]) -> std::io::Result<()> {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn json_body(stream: &mut TcpStream, value: &Value) -> std::io::Result<()> {
    let text = value.to_string();
    let length = text.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&sha2::Sha256::digest(bytes))
}

pub(crate) fn git_sha1(bytes: &[u8]) -> String {
    let mut hasher = sha1::Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex(&hasher.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

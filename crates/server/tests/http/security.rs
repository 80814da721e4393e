//! Access control and limits.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};

use millrace_server::{HttpOptions, ServeError, Server};
use serde_json::json;

use crate::{Running, options, question, shared};

mod connections;

fn running(change: impl FnOnce(&mut HttpOptions)) -> Running {
    let mut options = options();
    change(&mut options.http);
    Running::start(options)
}

#[test]
fn others_on_the_network_need_a_key_or_a_word() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut open = options();
    open.http.host = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let error = runtime.block_on(Server::start(open)).err().unwrap();
    assert!(matches!(error, ServeError::Open { .. }));
    assert!(error.to_string().contains("no API key"), "{error}");
    for change in [
        |http: &mut HttpOptions| http.allow_open = true,
        |http: &mut HttpOptions| http.api_keys = vec!["secret".into()],
    ] {
        let mut options = options();
        options.http.host = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        change(&mut options.http);
        let server = runtime.block_on(Server::start(options)).unwrap();
        runtime.block_on(server.stop());
    }
}

#[test]
fn keys_are_asked_for_in_each_clients_way() {
    let server = running(|http| http.api_keys = vec!["first".into(), "second".into()]);
    let models =
        |headers: &[(&str, &str)]| server.request("GET", "/v1/models", headers, b"").status;
    assert_eq!(models(&[]), 401);
    assert_eq!(models(&[("authorization", "Bearer wrong")]), 401);
    assert_eq!(models(&[("authorization", "Basic first")]), 401);
    assert_eq!(models(&[("authorization", "Bearer first")]), 200);
    assert_eq!(models(&[("x-api-key", "second")]), 200);
    // Errors in each dialect's form; liveness and the page are public.
    let reply = server.post("/v1/messages", &json!({}));
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    assert!(server.post("/api/chat", &json!({})).json()["error"].is_string());
    for path in ["/", "/health", "/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/system", "/openapi.json"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}

#[test]
fn metrics_may_be_open_beside_keys() {
    let server = running(|http| {
        http.api_keys = vec!["first".into()];
        http.open_metrics = true;
    });
    assert_eq!(server.get("/metrics").status, 200);
    for path in ["/metrics/x", "/v1/system", "/v1/models"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}

#[test]
fn pages_of_strangers_may_not_ask() {
    let body = question("Hi").to_string();
    let ask = |server: &Running, headers: &[(&str, &str)]| {
        server.request("POST", "/v1/chat/completions", headers, body.as_bytes())
    };
    let closed = running(|_| {});
    let evil = ("origin", "https://evil.example");
    assert_eq!(ask(&closed, &[evil]).status, 403);
    assert_eq!(ask(&closed, &[("origin", "null")]).status, 403);
    let own = format!("http://{}", closed.address);
    assert_eq!(ask(&closed, &[("origin", &own)]).status, 200);
    assert_eq!(
        closed.request("OPTIONS", "/v1/models", &[evil], b"").status,
        403
    );

    let listed = running(|http| http.allowed_origins = vec!["https://good.example".into()]);
    let good = ("origin", "https://good.example");
    let reply = ask(&listed, &[good]);
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://good.example")
    );
    assert_eq!(ask(&listed, &[evil]).status, 403);
    let before = listed.request("OPTIONS", "/v1/chat/completions", &[good], b"");
    assert_eq!(before.status, 204);
    assert!(
        before
            .header("access-control-allow-headers")
            .unwrap()
            .contains("authorization")
    );
    assert_eq!(before.header("access-control-allow-private-network"), None);
    // Clients may send any headers.
    let wanted = "authorization,x-stainless-os,x-stainless-arch,openai-beta,x-anything";
    let asked = [
        good,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", wanted),
        ("access-control-request-private-network", "true"),
    ];
    let before = listed.request("OPTIONS", "/v1/chat/completions", &asked, b"");
    assert_eq!(before.header("access-control-allow-headers"), Some(wanted));
    assert_eq!(
        before.header("access-control-allow-private-network"),
        Some("true")
    );
    let exposed = reply.header("access-control-expose-headers").unwrap();
    for name in ["x-request-id", "retry-after", "x-millrace-left-out"] {
        assert!(exposed.contains(name), "{exposed}");
    }
    // A foreign origin gets none of it.
    let mut asked = asked;
    asked[0] = evil;
    let before = listed.request("OPTIONS", "/v1/chat/completions", &asked, b"");
    assert_eq!(before.status, 403);
    assert_eq!(before.header("access-control-allow-headers"), None);
    assert_eq!(before.header("access-control-allow-private-network"), None);
}

#[test]
fn names_that_are_not_the_servers_are_refused() {
    let health = |server: &Running, host: &str| {
        server
            .request("GET", "/health", &[("host", host)], b"")
            .status
    };
    let server = running(|http| http.allowed_hosts = vec!["box.lan".into()]);
    for (host, status) in [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:99", 200),
        ("BOX.lan:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("localhost.", 200),
        ("a.localhost:8080", 200),
        ("box.lan.", 200),
        ("host.docker.internal:8080", 200),
        ("evil.docker.internal", 403),
        ("[::1].evil.example", 403),
        ("localhost:80@evil.example", 403),
        ("user@localhost", 403),
        ("", 403),
    ] {
        assert_eq!(health(&server, host), status, "{host}");
    }
    // It is ambiguous which of two is meant.
    let two = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(server.request("GET", "/health", &two, b"").status, 400);
    for (target, status) in [
        ("http://evil.example/health", 403),
        ("http://box.lan/health", 200),
        ("http://user@box.lan/health", 403),
    ] {
        let headers = [("host", "localhost")];
        let reply = server.request("GET", target, &headers, b"");
        assert_eq!(reply.status, status, "{target}");
    }
}

/// Requests as old proxies send them to check that the server is alive.
#[test]
fn probes_need_no_name() {
    let ask = |head: &str| {
        let mut stream = shared().connect();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 64];
        let n = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for (head, status) in [
        ("GET /health HTTP/1.0\r\n\r\n", "200"),
        ("GET /ready HTTP/1.0\r\n\r\n", "200"),
        ("GET /v1/models HTTP/1.0\r\n\r\n", "400"),
        ("GET /health HTTP/1.1\r\n\r\n", "400"),
        ("GET /health HTTP/1.0\r\nhost: evil.example\r\n\r\n", "403"),
    ] {
        assert_eq!(ask(head), status, "{head}");
    }
}

#[test]
fn slashes_too_many_change_nothing() {
    let body = question("What is 7 plus 5?").to_string();
    let path = "/v1/chat/completions";
    for path in [
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        path,
    ] {
        let reply = shared().request("POST", path, &[], body.as_bytes());
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    assert_eq!(shared().get("/v1/models/demo/?a=1").status, 200);
    // Errors have the form of the intended API, and keys are required.
    let reply = shared().post("//v1/messages/", &json!({}));
    assert_eq!(reply.json()["type"], "error");
    let server = running(|http| http.api_keys = vec!["secret".into()]);
    for (path, status) in [
        ("//v1/models", 401),
        ("/v1/models/", 401),
        ("//health", 200),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
}

#[test]
fn errors_below_the_apis_have_their_shape_too() {
    let reply = shared().get("/v1/models/%ff%fe");
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    let headers = [("content-encoding", "gzip")];
    let reply = shared().request("POST", "/v1/messages", &headers, b"\x1f\x8b\x08");
    assert_eq!(reply.status, 415, "{}", reply.body);
    let message = reply.json()["error"]["message"].to_string();
    assert!(
        message.contains("gzip") && message.contains("send it as it is"),
        "{message}"
    );
}

/// The bytes after a request on its connection are the next request, whatever the first one was.
#[test]
fn requests_may_follow_each_other_unasked() {
    let body = question("What is 7 plus 5?").to_string();
    let whole = format!("content-length: {}\r\n\r\n{body}", body.len());
    let pieces: String = body.as_bytes().chunks(7).fold(String::new(), |all, piece| {
        let piece = std::str::from_utf8(piece).unwrap();
        format!("{all}{:x}\r\n{piece}\r\n", piece.len())
    });
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{pieces}0\r\n\r\n");
    let post = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n";
    let mut all = String::new();
    for rest in [&whole, &chunked, &whole] {
        all += &format!("{post}{rest}");
    }
    all += "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut stream = shared().connect();
    stream.write_all(all.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 4, "{answers}");
    assert_eq!(answers.matches("7 plus 5 is 12.").count(), 3, "{answers}");
    assert!(answers.ends_with(r#"{"status":"ok"}"#), "{answers}");
}

#[test]
fn bodies_have_a_limit_and_must_be_json() {
    let server = running(|http| http.max_body_bytes = 4096);
    let reply = server.request("POST", "/v1/chat/completions", &[], &[b' '; 5000]);
    assert_eq!(reply.status, 413, "{}", reply.body);
    // An announced length is refused before the body arrives.
    let mut stream = server.connect();
    let head =
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 64];
    let n = stream.read(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer[..n]).starts_with("HTTP/1.1 413"));
    // A client that still sends everything before it reads gets the response: the body is larger than the socket
    // buffers.
    let body = vec![b' '; 64 << 20];
    for kept in ["close", "keep-alive"] {
        let mut stream = server.connect();
        let length = body.len();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: {kept}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        let mut answer = [0; 1024];
        let n = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..n]);
        assert!(answer.starts_with("HTTP/1.1 413"), "{kept}: {answer}");
        assert!(answer.contains("--max-body"), "{kept}: {answer}");
    }
    // Without an announced length, the body is read up to the limit.
    let mut stream = server.connect();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..10 {
        let _ = stream.write_all(format!("400\r\n{}\r\n", " ".repeat(0x400)).as_bytes());
    }
    let mut answer = [0; 64];
    let n = stream.read(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer[..n]).starts_with("HTTP/1.1 413"));
    for body in [
        "",
        "{",
        "[1, 2]",
        "\"x\"",
        "{\"model\": }",
        "\u{0}",
        &"[".repeat(4000),
    ] {
        let reply = server.request("POST", "/v1/chat/completions", &[], body.as_bytes());
        assert_eq!(reply.status, 400, "{body}: {}", reply.body);
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    }
}

#[test]
fn nothing_of_a_request_is_opened() {
    // Paths are only names of models.
    for path in [
        "/v1/models/../../etc/passwd",
        "/v1/models/%2e%2e%2fetc",
        "//etc/passwd",
        "/v1/models//etc/passwd",
    ] {
        assert_eq!(shared().get(path).status, 404, "{path}");
    }
    let reply = shared().post(
        "/v1/chat/completions",
        &crate::with(question("x"), json!({"model": "/etc/passwd"})),
    );
    assert_eq!(reply.status, 404);
}

#[test]
fn answers_carry_a_name_and_no_sniffing() {
    let reply = shared().request("GET", "/health", &[("x-request-id", "mine-1")], b"");
    assert_eq!(reply.header("x-request-id"), Some("mine-1"));
    assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    let other = shared().request("GET", "/health", &[("x-request-id", "<script>")], b"");
    assert!(other.header("x-request-id").unwrap().starts_with("req_"));
    let page = shared().get("/");
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .contains("default-src 'none'")
    );
}

/// Number of prompt tokens that a key finds in the cache.
fn n_cached(server: &Running, key: &str) -> u64 {
    let question = json!({"model": "demo", "max_tokens": 1, "messages": [
        {"role": "user", "content": "Tell me a story of a squirrel and a stone. ".repeat(12)},
    ]});
    let headers = [("authorization", &*format!("Bearer {key}"))];
    let body = question.to_string();
    let reply = server.request("POST", "/v1/chat/completions", &headers, body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let cached = &reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().expect("a number")
}

#[test]
fn a_key_finds_its_own_prompts_in_the_cache_and_no_others() {
    let keys = || vec!["first".to_owned(), "second".to_owned()];
    let apart = running(|http| http.api_keys = keys());
    assert_eq!(n_cached(&apart, "first"), 0);
    let own = n_cached(&apart, "first");
    assert!(own >= 64, "{own}");
    assert_eq!(n_cached(&apart, "second"), 0);
    assert_eq!(n_cached(&apart, "second"), own);
    let shared = running(|http| {
        http.api_keys = keys();
        http.share_cache = true;
    });
    assert_eq!(n_cached(&shared, "first"), 0);
    assert_eq!(n_cached(&shared, "second"), own, "as was chosen");
    let open = running(|_| {});
    assert_eq!(n_cached(&open, "any"), 0);
    assert_eq!(n_cached(&open, "other"), own, "without keys all share");
}

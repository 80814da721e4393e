//! TLS with a test certificate.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_server::{Server, TlsFiles};
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::{Running, options, question, with};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/tls")
        .join(name)
}

fn files(certificate: &str, key: &str) -> TlsFiles {
    TlsFiles {
        certificate: file(certificate),
        key: file(key),
    }
}

/// Sends a request over TLS and returns the whole response; trusts only the test certificate.
fn ask(server: &Running, request: &str) -> String {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(file("certificate.pem")).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn answers_and_streams_come_over_tls() {
    let mut options = options();
    options.http.tls = Some(files("certificate.pem", "key.pem"));
    options.http.header_timeout = std::time::Duration::from_millis(300);
    let server = Running::start(options);
    let health = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(ask(&server, health).contains("{\"status\":\"ok\"}"));
    let body = with(question("What is 7 plus 5?"), json!({"stream": true})).to_string();
    let length = body.len();
    let chat = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let reply = ask(&server, &chat);
    assert!(reply.contains("data: [DONE]"), "{reply}");
    // Clients that speak plain HTTP, or nothing, are dropped without delaying others.
    let mut plain = server.connect();
    plain.write_all(health.as_bytes()).unwrap();
    let mut reply = Vec::new();
    let _ = plain.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP"), "{reply:?}");
    let mut silent = server.connect();
    assert!(ask(&server, health).contains("ok"));
    assert_eq!(
        silent.read(&mut [0; 16]).unwrap(),
        0,
        "closed after the time for headers"
    );
}

#[test]
fn files_that_do_not_serve_are_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (certificate, key, words) in [
        ("none.pem", "key.pem", "none.pem: No such file"),
        ("key.pem", "key.pem", "holds no certificates in PEM"),
        (
            "certificate.pem",
            "certificate.pem",
            "holds no private key in PEM",
        ),
        (
            "README.md",
            "key.pem",
            "README.md: it holds no certificates",
        ),
        (
            "certificate.pem",
            "other-key.pem",
            "cannot be used together",
        ),
    ] {
        let mut options = options();
        options.http.tls = Some(files(certificate, key));
        let error = runtime.block_on(Server::start(options)).err().unwrap();
        let error = error.to_string();
        assert!(error.contains(words), "{error}");
    }
}

//! Limits on the number and duration of connections.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::running;
use crate::Running;

#[test]
fn who_never_ends_its_headers_is_let_go() {
    let server = running(|http| http.header_timeout = Duration::from_millis(200));
    let mut stream = server.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nhost: x")
        .unwrap();
    let start = Instant::now();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn connections_have_a_limit() {
    let server = running(|http| {
        http.max_connections = 3;
        http.max_connections_per_address = Some(3);
    });
    let idle: Vec<_> = (0..3).map(|_| server.connect()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let mut fourth = server.connect();
    let mut answer = Vec::new();
    // Closed without a response.
    let _ = fourth.read_to_end(&mut answer);
    assert!(answer.is_empty());
    drop(idle);
    let start = Instant::now();
    while !is_served(server.connect()) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "its place is not given back"
        );
    }
}

/// A connection from another address of this computer.
fn connect_from(server: &Running, address: &str) -> std::net::TcpStream {
    let stream = server.runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket
            .bind(format!("{address}:0").parse().unwrap())
            .unwrap();
        socket.connect(server.address).await.unwrap()
    });
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// Whether a server answers on this connection.
fn is_served(mut stream: std::net::TcpStream) -> bool {
    let asked =
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("200 OK")
}

/// Only on Linux does every address of 127.0.0.0/8 belong to this computer.
#[cfg(target_os = "linux")]
#[test]
fn one_address_leaves_connections_for_others() {
    for (share, n_held) in [(None, 4), (Some(2), 2)] {
        let server = running(|http| {
            http.max_connections = 8;
            http.max_connections_per_address = share;
        });
        // More than it may open.
        let greedy: Vec<_> = (0..20)
            .map(|_| connect_from(&server, "127.0.0.2"))
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_served(connect_from(&server, "127.0.0.2")), "{share:?}");
        assert!(is_served(connect_from(&server, "127.0.0.3")), "{share:?}");
        let metrics = server.get("/metrics").body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("millrace:http_connections "));
        let line = line.expect("a line on connections");
        // Including the connection of this request.
        assert_eq!(line, format!("millrace:http_connections {}", n_held + 1));
        drop(greedy);
        let start = Instant::now();
        while !is_served(connect_from(&server, "127.0.0.2")) {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "its share is not given back"
            );
        }
    }
}

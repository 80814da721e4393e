//! A simple client that shares no code with the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Names and data of server-sent events; comments are left out.
    pub(crate) fn events(&self) -> Vec<(Option<String>, String)> {
        let blocks = self.body.split("\n\n").filter(|block| !block.is_empty());
        let event = |block: &str| {
            let field = |name: &str| {
                let mut lines = block.lines();
                lines
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            Some((field("event: "), field("data: ")?))
        };
        blocks.filter_map(event).collect()
    }

    /// The data of server-sent events that are JSON; the last must be `[DONE]`.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        assert_eq!(events.pop().expect("events").1, "[DONE]", "{}", self.body);
        let parse = |(_, data): (_, String)| serde_json::from_str(&data).unwrap();
        events.into_iter().map(parse).collect()
    }
}

/// A response that is being read.
pub(crate) struct Open {
    pub(crate) stream: BufReader<TcpStream>,
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Open {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses at once may not read everything.
        let _ = stream.write_all(body);
        let mut stream = BufReader::new(stream);
        let (status, headers) = read_head(&mut stream);
        Open {
            stream,
            status,
            headers,
        }
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        self.open(method, path, headers, body).read_all()
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let headers = [("content-type", "application/json")];
        self.request("POST", path, &headers, body.to_string().as_bytes())
    }

    /// Sends a request and expects success.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    /// Begins a stream and reads its headers.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> Open {
        let headers = [("content-type", "application/json")];
        self.open("POST", path, &headers, body.to_string().as_bytes())
    }
}

fn read_line(stream: &mut impl BufRead) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn read_head(stream: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let first = read_line(stream);
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let mut headers = Vec::new();
    loop {
        let line = read_line(stream);
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    (
        status.unwrap_or_else(|| panic!("no answer: {first:?}")),
        headers,
    )
}

impl Open {
    /// The next piece of a chunked body; `None` at its end.
    pub(crate) fn piece(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&read_line(&mut self.stream), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn read_all(mut self) -> Reply {
        let is_chunked = self
            .headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let mut body = String::new();
        if is_chunked {
            while let Some(piece) = self.piece() {
                body += &piece;
            }
        } else {
            self.stream.read_to_string(&mut body).unwrap();
        }
        Reply {
            status: self.status,
            headers: self.headers,
            body,
        }
    }
}

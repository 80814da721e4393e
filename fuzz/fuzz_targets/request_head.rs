//! Any bytes after the first words of a request: an answer, or a closed connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::server::server;

fuzz_target!(init: millrace_fuzz::trial::install(), |bytes: &[u8]| {
    server().send_part(&[b"POST /v1/messages HTTP/1.1\r\nconnection: close\r\n", bytes].concat());
});

//! Forms of `POST /v1/files`: an answer within the deadline, whose status is not the server's fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_fuzz::server::server;

fuzz_target!(init: millrace_fuzz::trial::install(), |bytes: &[u8]| {
    let form = [
        b"--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n",
        bytes,
        b"\r\n--b--\r\n",
    ]
    .concat();
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: multipart/form-data; \
         boundary=b\r\ncontent-length: {}\r\n\r\n",
        form.len()
    );
    server().send(&[head.as_bytes(), &form].concat());
});

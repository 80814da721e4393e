//! Code shared by fuzz targets: edits of valid files, small models, a server, and request bodies.

pub mod body;
pub mod edits;
pub mod models;
pub mod schema;
pub mod server;
pub mod session;
pub mod trial;

/// A fuzz target of one route: bodies are grown from the server's description of it.
#[macro_export]
macro_rules! route {
    ($path:literal) => {
        use libfuzzer_sys::arbitrary::Unstructured;

        libfuzzer_sys::fuzz_target!(init: $crate::trial::install(), |bytes: &[u8]| {
            let mut input = Unstructured::new(bytes);
            let server = $crate::server::server();
            let Ok(body) = $crate::body::grow(server.described($path), &mut input) else {
                return;
            };
            server.post($path, &body.to_string().into_bytes());
        });
    };
}

//! Bodies of `POST /v1/batches`: an answer within the deadline, whose status is not the server's fault.
#![no_main]

millrace_fuzz::route!("/v1/batches");

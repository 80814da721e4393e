//! Bodies of `POST /completion`: an answer within the deadline, whose status is not the server's fault.
#![no_main]

millrace_fuzz::route!("/completion");

//! Runs the binary as a user does, and looks at what it prints, writes and returns.

mod hub;
mod pull;
mod run;

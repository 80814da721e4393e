//! `chat` at a terminal: lines that arrive at once, without bracketed-paste marks.

use crate::run::{finished, millrace};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Both ends of a pseudo-terminal.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let user = openpt(flags).expect("a terminal");
    grantpt(&user).expect("granted");
    unlockpt(&user).expect("unlocked");
    let name = ptsname(&user, Vec::new()).expect("a name");
    let path = name.into_string().expect("UTF-8");
    let program = File::options().read(true).write(true).open(path);
    (File::from(user), program.expect("the other end"))
}

#[test]
fn each_line_becomes_a_message() {
    let home = tempfile::tempdir().expect("a folder");
    let (mut user, program) = terminal();
    let end = |file: &File| Stdio::from(file.try_clone().expect("a copy"));
    let mut child = millrace(home.path())
        .args(["chat", "demo", "--greedy", "-t", "1", "-n", "24"])
        .env("TERM", "xterm")
        .stdin(end(&program))
        .stdout(end(&program))
        .stderr(end(&program))
        .spawn()
        .expect("the binary starts");
    drop(program);
    let seen = Arc::new(Mutex::new(String::new()));
    let (copy, mut reader) = (Arc::clone(&seen), user.try_clone().expect("a copy"));
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        // Reading from the terminal fails once the program has gone.
        while let Ok(n @ 1..) = reader.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
            copy.lock().expect("whole").push_str(&text);
        }
    });
    let wait_until = |what: &str, holds: &dyn Fn(&str) -> bool| {
        let start = Instant::now();
        while !holds(&seen.lock().expect("whole")) {
            let so_far = seen.lock().expect("whole").clone();
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "no {what} in {so_far:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let wait_for = |text: &str| wait_until(text, &|seen| seen.contains(text));
    let wait_for_prompt_after = |text: &str| {
        let asks = |(_, rest): (&str, &str)| rest.contains(">>> ");
        wait_until("prompt", &|seen| seen.rsplit_once(text).is_some_and(asks));
    };
    wait_for(">>> ");
    user.write_all(b"What is 7 plus 5?\rWhat is 2 plus 2?\rWhat is 3 plus 4?\r")
        .expect("typed");
    for answer in ["7 plus 5 is 12", "2 plus 2 is 4", "3 plus 4 is 7"] {
        wait_for(answer);
    }
    // Between two lines the editor does not own the terminal: an end of input typed there would be lost.
    wait_for_prompt_after("3 plus 4 is 7");
    user.write_all(b"\x04").expect("typed");
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().expect("killed");
            panic!("it does not end: {:?}", seen.lock().expect("whole"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let done = finished(child.wait_with_output().expect("it ended"));
    assert_eq!(done.code, crate::run::OK);
    reading.join().expect("read");
}

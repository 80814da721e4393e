//! Networks, servers and disks that fail: received data is kept, wrong data is refused.

use super::{GGUF, assert_pulled, gguf_hub, home, incomplete, pull, repo_dir};
use crate::hub::{Faults, REPO, git_sha1, sha256};
use crate::run::{INTERRUPTED, IO, NOT_FOUND, OK, finish, finished, shell};
use serde_json::json;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_cut_connection_continues_with_a_range() {
    let cut_after = vec![100_000, 120_000];
    let (hub, bytes) = gguf_hub(Faults {
        cut_after,
        ..Faults::default()
    });
    let home = home();
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    let ranges: Vec<_> = hub
        .downloads(GGUF)
        .iter()
        .map(|request| request.header("range").map(str::to_owned))
        .collect();
    assert_eq!(
        ranges,
        [
            None,
            Some("bytes=100000-".into()),
            Some("bytes=220000-".into())
        ]
    );
    assert_eq!(
        hub.downloads(GGUF)[1].header("if-range"),
        Some("\"validator\"")
    );
}

#[test]
fn a_later_run_continues_an_earlier_one() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    fs::create_dir_all(repo_dir(&home).join("blobs")).expect("folder");
    fs::write(incomplete(&home, &bytes), &bytes[..123_456]).expect("write");
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    assert_eq!(
        hub.downloads(GGUF)[0].header("range"),
        Some("bytes=123456-")
    );
}

#[test]
fn a_damaged_beginning_is_noticed_and_fetched_again() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    fs::create_dir_all(repo_dir(&home).join("blobs")).expect("folder");
    fs::write(incomplete(&home, &bytes), vec![0; 5000]).expect("write");
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    assert_eq!(hub.downloads(GGUF).len(), 2);
    // A partial file longer than the whole file is not its beginning either.
    fs::remove_dir_all(repo_dir(&home)).expect("remove");
    fs::create_dir_all(repo_dir(&home).join("blobs")).expect("folder");
    fs::write(incomplete(&home, &bytes), vec![0; 400_000]).expect("write");
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
}

#[test]
fn a_server_without_ranges_sends_it_all_again() {
    let faults = Faults {
        ignore_range: true,
        cut_after: vec![50_000],
        ..Faults::default()
    };
    let (hub, bytes) = gguf_hub(faults);
    let home = home();
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    assert_eq!(hub.downloads(GGUF).len(), 2);
}

#[test]
fn no_hub_at_all_is_reported_at_once() {
    let (hub, _) = gguf_hub(Faults::default());
    let home = home();
    let mut command = pull(&hub, &home, &[REPO]);
    let begin = Instant::now();
    finish(command.env("HF_ENDPOINT", "http://127.0.0.1:9"))
        .expect_error(NOT_FOUND, &["127.0.0.1:9"]);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn wrong_bytes_are_refused_and_deleted() {
    let (hub, bytes) = gguf_hub(Faults {
        corrupt: true,
        ..Faults::default()
    });
    let home = home();
    finish(&mut pull(&hub, &home, &[REPO])).expect_error(
        NOT_FOUND,
        &["SHA-256", &sha256(&bytes), "run the command again"],
    );
    assert!(!incomplete(&home, &bytes).exists());
    assert!(!repo_dir(&home).join("refs/main").exists());
    hub.set_faults(Faults::default());
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
}

#[test]
fn a_busy_server_is_asked_again() {
    let (hub, bytes) = gguf_hub(Faults {
        statuses: vec![503, 429],
        ..Faults::default()
    });
    let home = home();
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    assert_eq!(hub.downloads(GGUF).len(), 3);
}

#[test]
fn a_listing_cannot_write_outside_the_cache() {
    let evil =
        json!({ "rfilename": "../../../../evil.gguf", "size": 3, "blobId": git_sha1(b"abc") });
    let (hub, _) = gguf_hub(Faults {
        extra_siblings: vec![evil],
        ..Faults::default()
    });
    let home = home();
    finish(&mut pull(&hub, &home, &[REPO])).expect_error(NOT_FOUND, &["evil.gguf"]);
    assert!(!repo_dir(&home).exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_came_and_the_next_run_continues() {
    let drip = Some((20_000, Duration::from_millis(100)));
    let (hub, bytes) = gguf_hub(Faults {
        drip,
        ..Faults::default()
    });
    let home = home();
    let mut command = pull(&hub, &home, &[REPO]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let began = Instant::now();
    while fs::metadata(incomplete(&home, &bytes)).map_or(0, |file| file.len()) < 40_000 {
        assert!(began.elapsed() < Duration::from_secs(20), "no bytes arrive");
        std::thread::sleep(Duration::from_millis(10));
    }
    finish(Command::new("kill").arg("-INT").arg(child.id().to_string())).expect(OK);
    finished(child.wait_with_output().expect("ends")).expect(INTERRUPTED);
    let kept = fs::metadata(incomplete(&home, &bytes)).expect("kept").len();
    assert!((40_000..300_000).contains(&kept), "{kept}");
    hub.set_faults(Faults::default());
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
    let range = format!("bytes={kept}-");
    assert_eq!(
        hub.downloads(GGUF).last().expect("asked").header("range"),
        Some(range.as_str())
    );
}

/// A file size limit stands in for a full disk: the write fails in the same place.
#[cfg(unix)]
#[test]
fn a_full_disk_keeps_what_fits() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    let script = "trap '' XFSZ; ulimit -f 200; exec \"$MILLRACE\" pull acme/tiny";
    let mut limited = shell(home.path(), script);
    finish(limited.env("HF_ENDPOINT", &hub.endpoint)).expect_error(IO, &["incomplete"]);
    let kept = fs::metadata(incomplete(&home, &bytes)).expect("kept").len();
    assert!(kept > 0 && kept < bytes.len() as u64, "{kept}");
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
}

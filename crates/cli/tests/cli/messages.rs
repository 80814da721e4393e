//! Messages say a thing once, in terms of the user's action.

use crate::models;
use crate::run::{NOT_FOUND, OK, USAGE, command, finish, home};
use std::fs;

/// A dangling link is in its folder, and must not be suggested in place of itself.
#[cfg(unix)]
#[test]
fn a_missing_file_is_no_suggestion_for_itself() {
    let home = home();
    let link = home.path().join("gone.gguf");
    std::os::unix::fs::symlink(home.path().join("nowhere"), link).expect("link");
    let finished = finish(&mut command(&home, &["info", "gone.gguf"]));
    let finished = finished.expect_error(NOT_FOUND, &["a link to", "which does not exist"]);
    assert!(
        !finished.stderr.contains("did you mean"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_host_that_cannot_be_found_has_sent_nothing_that_continues() {
    let home = home();
    for endpoint in ["http://nonexistent.invalid", "http://127.0.0.1:9"] {
        let mut pull = command(&home, &["pull", "acme/unheard"]);
        let finished = finish(pull.env("HF_ENDPOINT", endpoint));
        let finished = finished.expect_error(NOT_FOUND, &[endpoint, "network connection"]);
        assert!(
            !finished.stderr.contains("continues"),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn prefixes_and_names_stand_once() {
    let home = home();
    let model = models::gguf().to_str().expect("UTF-8");
    fs::write(home.path().join("one.txt"), "x").expect("write");
    for (line, once) in [
        (vec!["kernel", "add", "4096", "--set", "cols=99"], "--set"),
        (vec!["perplexity", model, "one.txt"], "chunk"),
        (vec!["bench", model, "-p", "99999999999"], "ask for"),
        (vec!["run", model, "x", "--device", "fpu"], "fpu"),
        (
            vec!["run", "demo", "x", "--device", "xdna2", "--kv-type", "q8_0"],
            "--kv-type q8_0",
        ),
    ] {
        let finished = finish(&mut command(&home, &line)).expect_error(USAGE, &[once]);
        let n = finished.stderr.matches(once).count();
        assert_eq!(n, 1, "{line:?}: {}", finished.stderr);
    }
}

/// Each of a model's programs is looked up in the cache, but a fault there is reported once.
#[test]
fn a_broken_manifest_is_told_once() {
    let home = home();
    let cache = home.path().join("npu");
    let run = || {
        let mut run = command(&home, &["compile", "demo"]);
        finish(run.env("MILLRACE_NPU_CACHE", &cache)).expect(OK)
    };
    run();
    let manifest = fs::read_dir(&cache)
        .expect("the cache")
        .flatten()
        .map(|entry| entry.path());
    let manifest = manifest
        .into_iter()
        .find(|path| path.ends_with("manifest.json"));
    fs::write(manifest.expect("a manifest"), "{").expect("write");
    let stderr = run().stderr;
    assert_eq!(stderr.matches("manifest").count(), 1, "{stderr}");
}

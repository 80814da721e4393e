//! `millrace pull` against a hub on loopback.

mod faults;

use crate::hub::{COMMIT, Faults, REPO, TestHub, git_sha1, sha256};
use crate::models;
use crate::run::{Finished, NOT_FOUND, OK, USAGE, finish, finished, home, millrace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const GGUF: &str = "tiny-Q4_0.gguf";

/// Bytes that differ everywhere, so that a wrong splice is noticed.
fn weights(n: usize, seed: u8) -> Vec<u8> {
    (0..n)
        .map(|i| (i as u64).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed)
        .collect()
}

fn gguf_hub(faults: Faults) -> (TestHub, Vec<u8>) {
    let bytes = weights(300_000, 1);
    let files = [
        (GGUF, bytes.clone()),
        ("tiny-Q8_0.gguf", weights(400_000, 2)),
        ("README.md", b"# Tiny".to_vec()),
    ];
    (TestHub::start(&files, faults), bytes)
}

fn pull(hub: &TestHub, home: &TempDir, arguments: &[&str]) -> Command {
    let mut command = millrace(home.path());
    command
        .arg("pull")
        .args(arguments)
        .env("HF_ENDPOINT", &hub.endpoint);
    command
}

fn repo_dir(home: &TempDir) -> PathBuf {
    home.path()
        .join(".cache/huggingface/hub/models--acme--tiny")
}

fn incomplete(home: &TempDir, bytes: &[u8]) -> PathBuf {
    repo_dir(home)
        .join("blobs")
        .join(format!("{}.incomplete", sha256(bytes)))
}

/// Asserts that the pulled file has these bytes, and that nothing unfinished is left.
#[track_caller]
fn assert_pulled(finished: &Finished, home: &TempDir, bytes: &[u8]) {
    let path = PathBuf::from(finished.stdout.trim_end());
    assert_eq!(
        path,
        repo_dir(home).join("snapshots").join(COMMIT).join(GGUF)
    );
    assert!(
        fs::read(&path).expect("readable") == bytes,
        "the bytes differ"
    );
    assert!(!incomplete(home, bytes).exists());
}

#[test]
fn a_gguf_lands_in_the_shared_layout_and_comes_once() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    let first = finish(&mut pull(&hub, &home, &[REPO])).expect(OK);
    assert_pulled(&first, &home, &bytes);
    let link = repo_dir(&home).join("snapshots").join(COMMIT).join(GGUF);
    let target = fs::read_link(link).expect("a link");
    assert_eq!(target, Path::new("../../blobs").join(sha256(&bytes)));
    let reference = fs::read_to_string(repo_dir(&home).join("refs/main")).expect("a reference");
    assert_eq!(reference, COMMIT);

    let again = finish(&mut pull(&hub, &home, &[REPO])).expect(OK);
    assert_pulled(&again, &home, &bytes);
    assert!(again.stderr.contains("in the cache"), "{}", again.stderr);
    assert_eq!(hub.downloads(GGUF).len(), 1);
    assert_eq!(hub.downloads("tiny-Q8_0.gguf").len(), 0, "not asked for");
}

#[test]
fn a_quantisation_is_chosen_and_a_wrong_one_lists_the_others() {
    let (hub, _) = gguf_hub(Faults::default());
    let home = home();
    let q8 = finish(&mut pull(&hub, &home, &["hf:acme/tiny:q8_0", "--json"]))
        .expect(OK)
        .json();
    assert_eq!(q8["files"][0]["name"], "tiny-Q8_0.gguf");
    assert_eq!(q8["files"][0]["downloaded_bytes"], 400_000);
    assert_eq!(q8["commit"], COMMIT);
    finish(&mut pull(&hub, &home, &["acme/tiny:Q5_K_M"]))
        .expect_error(NOT_FOUND, &["Q5_K_M", "Q4_0", "Q8_0"]);
}

#[test]
fn a_safetensors_model_is_a_folder() {
    let config = br#"{"model_type":"llama"}"#.to_vec();
    let files = [
        ("config.json", config.clone()),
        ("model.safetensors", weights(5000, 3)),
        ("original/consolidated.00.pth", weights(5000, 4)),
    ];
    let hub = TestHub::start(&files, Faults::default());
    let home = home();
    let path = finish(&mut pull(&hub, &home, &[REPO])).expect(OK).stdout;
    let folder = Path::new(path.trim_end());
    assert_eq!(
        fs::read(folder.join("config.json")).expect("config"),
        config
    );
    assert!(folder.join("model.safetensors").is_file());
    assert!(!folder.join("original").exists());
    assert!(
        repo_dir(&home)
            .join("blobs")
            .join(git_sha1(&config))
            .is_file()
    );
}

#[test]
fn the_token_reaches_the_hub_and_never_the_storage() {
    let faults = Faults {
        token: Some("hf_secret"),
        storage: true,
        ..Faults::default()
    };
    let (hub, bytes) = gguf_hub(faults);
    let home = home();
    let run = finish(pull(&hub, &home, &[REPO]).env("HF_TOKEN", "hf_secret")).expect(OK);
    assert_pulled(&run, &home, &bytes);
    let requests = hub.requests();
    assert!(requests.iter().any(|request| request.server == "storage"));
    for request in requests {
        let sent = request.header("authorization");
        let expected = (request.server == "hub").then_some("Bearer hf_secret");
        assert_eq!(sent, expected, "{} {}", request.server, request.path);
    }
}

#[test]
fn a_redirect_on_the_same_server_keeps_the_token() {
    let faults = Faults {
        token: Some("hf_file"),
        same_host_redirect: true,
        ..Faults::default()
    };
    let (hub, bytes) = gguf_hub(faults);
    let home = home();
    fs::create_dir_all(home.path().join(".cache/huggingface")).expect("folder");
    fs::write(home.path().join(".cache/huggingface/token"), "hf_file\n").expect("write");
    assert_pulled(
        &finish(&mut pull(&hub, &home, &[REPO])).expect(OK),
        &home,
        &bytes,
    );
}

#[test]
fn refusals_say_what_to_do() {
    let (hub, _) = gguf_hub(Faults::default());
    let home = home();
    finish(&mut pull(&hub, &home, &["acme/other"]))
        .expect_error(NOT_FOUND, &["acme/other", "no such model", "spelling"]);
    finish(&mut pull(&hub, &home, &["acme/tiny@v9"]))
        .expect_error(NOT_FOUND, &["no revision `v9`"]);
    hub.set_faults(Faults {
        token: Some("hf_secret"),
        ..Faults::default()
    });
    finish(&mut pull(&hub, &home, &[REPO]))
        .expect_error(NOT_FOUND, &["refuses", "401", "HF_TOKEN"]);
    finish(pull(&hub, &home, &[REPO]).env("HF_TOKEN", "wrong"))
        .expect_error(NOT_FOUND, &["expired"]);
    hub.set_faults(Faults {
        gated: true,
        ..Faults::default()
    });
    finish(&mut pull(&hub, &home, &[REPO]))
        .expect_error(NOT_FOUND, &["gated", "accept the licence"]);
    assert!(
        !repo_dir(&home).exists(),
        "nothing is made for a model that is not there"
    );
}

#[test]
fn a_name_that_is_none_is_a_usage_error() {
    let (hub, _) = gguf_hub(Faults::default());
    let home = home();
    for name in ["", "../x", "a/b/c/d", "acme/tiny:"] {
        finish(&mut pull(&hub, &home, &[name])).expect_error(USAGE, &["OWNER/REPO"]);
    }
    assert!(hub.requests().is_empty());
}

#[test]
fn offline_uses_the_cache_and_never_the_network() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    finish(&mut pull(&hub, &home, &["--offline", REPO]))
        .expect_error(NOT_FOUND, &["not in the cache", "millrace pull acme/tiny"]);
    finish(pull(&hub, &home, &[REPO]).env("HF_HUB_OFFLINE", "1")).expect(NOT_FOUND);
    assert!(hub.requests().is_empty());
    finish(&mut pull(&hub, &home, &[REPO])).expect(OK);
    let online = hub.requests().len();
    assert_pulled(
        &finish(&mut pull(&hub, &home, &["--offline", REPO])).expect(OK),
        &home,
        &bytes,
    );
    assert_eq!(hub.requests().len(), online);
}

#[test]
fn a_model_argument_downloads_once_and_then_needs_no_hub() {
    let bytes = fs::read(models::gguf()).expect("the model");
    let hub = TestHub::start(&[("tiny-Q8_0.gguf", bytes)], Faults::default());
    let home = home();
    let info = |model: &str| {
        let mut command = millrace(home.path());
        finish(
            command
                .args(["info", model, "--json"])
                .env("HF_ENDPOINT", &hub.endpoint),
        )
    };
    info("acme/tiny").expect_error(NOT_FOUND, &["millrace pull acme/tiny"]);
    assert!(
        hub.requests().is_empty(),
        "a bare name never asks the network"
    );
    assert_eq!(
        info("hf:acme/tiny").expect(OK).json()["config"]["family"],
        "llama"
    );
    let asked = hub.requests().len();
    for model in [
        "hf:acme/tiny:Q8_0",
        "hf://acme/tiny",
        "acme/tiny",
        "acme/tiny:q8_0",
    ] {
        info(model).expect(OK);
    }
    assert_eq!(hub.requests().len(), asked);
    info("acme/tinny").expect_error(NOT_FOUND, &["did you mean `acme/tiny`"]);
}

#[test]
fn two_processes_share_one_download() {
    let drip = Some((30_000, Duration::from_millis(60)));
    let (hub, bytes) = gguf_hub(Faults {
        drip,
        ..Faults::default()
    });
    let home = home();
    let start = || {
        let mut command = pull(&hub, &home, &[REPO]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts")
    };
    let both = [start(), start()];
    for child in both {
        let run = finished(child.wait_with_output().expect("ends")).expect(OK);
        assert_pulled(&run, &home, &bytes);
    }
    assert_eq!(hub.downloads(GGUF).len(), 1);
}

#[test]
fn what_was_pulled_is_listed_and_removed() {
    let (hub, bytes) = gguf_hub(Faults::default());
    let home = home();
    let list = || {
        let listed = finish(millrace(home.path()).args(["list", "--json"])).expect(OK);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).expect("JSON");
        let pulled = listed.into_iter().filter(|model| model["kind"] == "pulled");
        let names = pulled.map(|model| {
            let size_bytes = model["size_bytes"].as_u64().expect("a size");
            (
                model["name"].as_str().expect("a name").to_owned(),
                size_bytes,
            )
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(list(), []);
    finish(&mut pull(&hub, &home, &[REPO])).expect(OK);
    finish(&mut pull(&hub, &home, &[&format!("{REPO}:Q8_0")])).expect(OK);
    let (q4, q8) = (format!("{REPO}:{GGUF}"), format!("{REPO}:tiny-Q8_0.gguf"));
    assert_eq!(
        list(),
        [(q4.clone(), bytes.len() as u64), (q8.clone(), 400_000)]
    );
    let table = finish(millrace(home.path()).arg("list")).expect(OK);
    for words in ["demo", "built in", &q4, &COMMIT[..12]] {
        assert!(table.stdout.contains(words), "{}", table.stdout);
    }
    let remove = |name: &str| finish(millrace(home.path()).args(["rm", name]));
    // `rm` accepts a name that `list` prints; the files beside it stay.
    let removed = remove(&q8).expect(OK);
    assert!(
        removed.stderr.contains("1 file removed, 390.6 KiB"),
        "{}",
        removed.stderr
    );
    assert_eq!(list(), [(q4.clone(), bytes.len() as u64)]);
    let again = finish(&mut pull(&hub, &home, &[REPO, "--offline"])).expect(OK);
    assert_pulled(&again, &home, &bytes);
    remove(&q8).expect_error(NOT_FOUND, &["Q8_0"]);
    // A model is not removed while another process writes to it.
    let locks = home
        .path()
        .join(".cache/huggingface/hub/.locks/models--acme--tiny");
    let lock = fs::read_dir(locks)
        .expect("locks")
        .flatten()
        .next()
        .expect("a lock");
    let lock = fs::File::open(lock.path()).expect("a lock");
    lock.lock().expect("it is free");
    remove(REPO).expect_error(crate::run::IO, &["being downloaded"]);
    drop(lock);
    remove(REPO).expect(OK);
    assert_eq!(list(), []);
    assert!(!repo_dir(&home).exists());
    remove(REPO).expect_error(NOT_FOUND, &["not in the cache"]);
    remove("demo").expect_error(USAGE, &["part of this program"]);
    remove("../../etc").expect_error(USAGE, &["not a model reference"]);
}

//! Chat templates of downloaded files are untrusted programs. Whatever they do costs an error
//! message that names them, a bounded time and bounded memory.

use crate::models;
use crate::run::{BAD_INPUT, OK, finish, finished, millrace, shell};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use tempfile::{TempDir, tempdir};

/// A folder with the test model's files and another template.
fn with_template(file: &str, contents: &str) -> TempDir {
    let home = tempdir().expect("a temporary folder");
    for entry in fs::read_dir(models::folder()).expect("the model").flatten() {
        let name = entry.file_name();
        if name != "chat_template.jinja" {
            fs::copy(entry.path(), home.path().join(name)).expect("copy");
        }
    }
    fs::write(home.path().join(file), contents).expect("write");
    home
}

fn doubling(start: &str, step: &str) -> String {
    format!(
        "{{% set ns = namespace(s={start}) %}}{{% for i in range(60) %}}{{% set ns.s = {step} %}}{{% endfor %}}{{{{ ns.s | length }}}}"
    )
}

/// Hostile templates, each with its expected error text; the text is empty if the template may end well.
fn hostile() -> Vec<(&'static str, String, &'static str)> {
    // The memory or the time limit, whichever comes first on this machine.
    let refused = "chat template of";
    vec![
        ("indent", "{{ 'a' | indent(9999999999) }}".into(), "9999999999"),
        ("format", "{{ '%99999999999d' | format(1) }}".into(), "99999999999"),
        ("text doubled by ~", doubling("'ab'", "ns.s ~ ns.s"), refused),
        ("text doubled by +", doubling("'ab'", "ns.s + ns.s"), refused),
        ("text doubled by join", doubling("'ab'", "[ns.s, ns.s] | join"), refused),
        ("text doubled by replace", doubling("'a' * 4096", "ns.s | replace('a' * 4096, 'a' * 8192)"), refused),
        ("text repeated into a list", "{% set ns = namespace(l=[]) %}{% for i in range(9000) %}{% set ns.l = ns.l + ['x' * 90000000 ~ i] %}{% endfor %}".into(), refused),
        ("many lists", "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = ns.l + [[[]] * 1000000] %}{% endfor %}".into(), refused),
        ("folded constants", "{{ 'x' * 99999999 }}".repeat(60), ""),
        ("a text without an end", "{% for i in range(90000) %}{{ 'x' * 90000 }}{% endfor %}".into(), "bytes"),
        ("loops without an end", "{% for a in range(90000) %}{% for b in range(90000) %}{{ '' }}{% endfor %}{% endfor %}".into(), "steps"),
        ("captured output doubled", format!("{{% set x0 %}}ab{{% endset %}}{}", (0..40).map(|i| format!("{{% set x{} %}}{{{{ x{i} }}}}{{{{ x{i} }}}}{{% endset %}}", i + 1)).collect::<String>()), ""),
        ("a list in itself", doubling("[1]", "[ns.s, ns.s]").replace("length", "tojson"), refused),
        ("a deep value", "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}".into(), ""),
        ("minus signs", format!("{{{{ {}1 }}}}", "-".repeat(20_000)), "20005 characters"),
        ("fields of fields", format!("{{{{ a{} }}}}", ".b".repeat(33_000)), "66007 bytes"),
        ("negations", format!("{{{{ {}1 }}}}", "not ".repeat(15_000)), "characters"),
        ("blocks in blocks", "{%if a%}".repeat(8_000), refused),
        ("macros in macros", "{%macro a()%}".repeat(5_000), refused),
        ("a macro of itself", "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".into(), "recursion"),
        ("too long", "x".repeat(200_000), "200000 bytes"),
    ]
}

/// Runs a chat; returns the exit code, standard error and the peak memory of its processes, in bytes.
fn chat(home: &Path, model: &str) -> (i32, String, u64) {
    let mut command = millrace(home);
    command.args(["run", model, "--chat", "Hello", "-n", "1", "--greedy"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("the binary starts");
    let id = child.id();
    let watch = std::thread::spawn(move || {
        let mut most = 0;
        // Polls until the process has gone.
        while let Some(own) = resident_bytes(id) {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
            let ids = children.unwrap_or_default();
            let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
            most = most.max(own + ids.filter_map(resident_bytes).sum::<u64>());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        most
    });
    let finished = finished(child.wait_with_output().expect("it ends"));
    (
        finished.code,
        finished.stderr,
        watch.join().expect("watched"),
    )
}

/// Resident bytes of a process; none once it has ended, or where the system does not report it.
fn resident_bytes(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[test]
fn templates_of_strangers_are_bounded() {
    for (what, template, mentions) in hostile() {
        let home = with_template("chat_template.jinja", &template);
        let (code, stderr, most) = chat(home.path(), ".");
        assert!([OK, BAD_INPUT].contains(&code), "{what}: {code}, {stderr}");
        if !mentions.is_empty() {
            assert_eq!(code, BAD_INPUT, "{what}: {stderr}");
        }
        if code == BAD_INPUT {
            let stderr = stderr.replace('\n', " ");
            assert!(stderr.contains("chat_template.jinja"), "{what}: {stderr}");
            assert!(
                stderr.contains(mentions),
                "{what}: no `{mentions}` in {stderr}"
            );
        }
        // One process may take 768 MiB, including its program; the other holds the model and the source.
        assert!(most < 1000 << 20, "{what}: {most} bytes");
        println!("{what}: code {code}, {} MiB", most >> 20);
    }
}

#[test]
fn the_error_names_the_place_of_the_template() {
    let hostile = doubling("'ab'", "ns.s ~ ns.s");
    let config = serde_json::json!({ "chat_template": hostile }).to_string();
    let home = with_template("tokenizer_config.json", &config);
    let (code, stderr, _) = chat(home.path(), ".");
    assert!(
        code == BAD_INPUT && stderr.contains("tokenizer_config.json"),
        "{stderr}"
    );

    let folder = with_template("chat_template.jinja", &hostile);
    let mut quantize = millrace(folder.path());
    quantize.args(["-q", "quantize", ".", "x.gguf", "F16"]);
    crate::run::finish(&mut quantize).expect(OK);
    let (code, stderr, _) = chat(folder.path(), "x.gguf");
    let named = stderr.contains("x.gguf") && stderr.contains("tokenizer.chat_template");
    assert!(code == BAD_INPUT && named, "{stderr}");
}

/// A limit on the program (`ulimit`) also applies to the processes that it starts, even below their own limits. On a
/// system without /proc the program finds its file by its own name.
#[test]
fn the_callers_limits_hold() {
    let home = with_template(
        "chat_template.jinja",
        "{{ bos_token }}{{ messages[0].content }}",
    );
    for limit in ["-v 700000", "-t 3", "-S -t 4", "-c 0"] {
        let script = format!("ulimit {limit} && $MILLRACE run . --chat Hello -n 1 --greedy -t 1");
        finish(&mut shell(home.path(), &script)).expect(OK);
    }
    // Each text is within the engine's bound; together they are not.
    let texts = "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = ns.l + ['x' * 60000000] %}{% endfor %}";
    let memory = with_template("chat_template.jinja", texts);
    let script = "ulimit -v 600000 && $MILLRACE run . --chat Hello -n 1 --greedy -t 1";
    finish(&mut shell(memory.path(), script)).expect_error(BAD_INPUT, &["the 585 MiB of memory"]);
}

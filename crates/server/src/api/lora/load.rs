//! `POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`, with vLLM's names: adapters from one folder, added
//! while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_runtime::LoraAdapter;

use crate::api::error::ApiError;
use crate::api::fields::Fields;
use crate::app::{App, Dialect, Incoming};
use crate::models::{AdapterSpec, AddedAdapter, MAX_ADDED, ModelEntry};

/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 128;

pub(crate) async fn load(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        let folder = folder(&app)?;
        let Incoming { body, caller } = app.read(request).await?;
        let fields = Fields::of(&body)?;
        let name = name(&fields)?.to_owned();
        let path = fields.need("lora_path", fields.text("lora_path")?)?;
        let is_again = fields.bool("load_inplace")?.unwrap_or(false);
        let entry = entry(&app, &fields)?;
        check_name(&app, &entry, &name, is_again)?;
        let served = caller
            .within(async { Ok(app.registry.serve(&entry).await?) })
            .await?;
        if !served.loaded.device.starts_with("cpu") {
            let message = format!("{} computes with no adapters", served.loaded.device);
            return Err(ApiError::field("base_model_name", message));
        }
        let path = within(&folder, path)?;
        let source = path.display().to_string();
        let model = Arc::clone(&served.loaded.model);
        let open = move || LoraAdapter::open(&path, &model);
        let opened = tokio::task::spawn_blocking(open).await;
        let opened = opened
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let adapter = opened.map_err(|error| ApiError::field("lora_path", error))?;
        let added = entry.add(AddedAdapter {
            spec: AdapterSpec {
                name: name.clone(),
                source,
            },
            adapter: Arc::new(adapter),
        });
        match added {
            true => Ok(told(format!(
                "Success: LoRA adapter '{name}' added successfully."
            ))),
            false => {
                let message = format!("{MAX_ADDED} adapters are added already; unload one first");
                Err(ApiError::field("lora_name", message))
            }
        }
    };
    Dialect::OpenAi.answer(work.await)
}

pub(crate) async fn unload(State(app): State<Arc<App>>, request: Request) -> Response {
    let work = async {
        folder(&app)?;
        let body = app.read(request).await?.body;
        let fields = Fields::of(&body)?;
        let name = name(&fields)?;
        match app
            .registry
            .entries()
            .iter()
            .any(|entry| entry.remove(name))
        {
            true => Ok(told(format!(
                "Success: LoRA adapter '{name}' removed successfully."
            ))),
            false => {
                let message = format!("no adapter `{name}` was added while the server runs");
                Err(ApiError::new(StatusCode::NOT_FOUND, message))
            }
        }
    };
    Dialect::OpenAi.answer(work.await)
}

/// vLLM answers with plain text.
fn told(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// The folder of adapters. Loading from it requires the folder to be configured, and clients to show a key.
fn folder(app: &App) -> Result<PathBuf, ApiError> {
    let Some(folder) = &app.options.lora_dir else {
        let message =
            "this server loads no adapters while it runs; start it with --lora-dir FOLDER";
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, message));
    };
    if app.options.api_keys.is_empty() {
        let message = "adapters are loaded for those alone who show a key; start the server with --api-key-file FILE";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(folder.clone())
}

fn name<'a>(fields: &Fields<'a>) -> Result<&'a str, ApiError> {
    let name = fields.need("lora_name", fields.text("lora_name")?)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
        let message = format!("a name has 1 to {MAX_NAME_BYTES} letters, digits, `_`, `-` or `.`");
        return Err(ApiError::field("lora_name", message));
    }
    Ok(name)
}

/// The base model of an adapter: the one named, or the only one.
fn entry(app: &App, fields: &Fields<'_>) -> Result<Arc<ModelEntry>, ApiError> {
    const NAME: &str = "base_model_name";
    let entries = app.registry.entries();
    let found = match (fields.text(NAME)?, entries) {
        (Some(name), _) => entries.iter().find(|entry| entry.spec.id == name),
        (None, [only]) => Some(only),
        (None, _) => {
            let message = "this server has several models: name the one that it is for";
            return Err(ApiError::field(NAME, message));
        }
    };
    let named = fields.text(NAME)?.unwrap_or_default();
    let unknown = || ApiError::unknown_model(named, &app.registry.ids());
    found.cloned().ok_or_else(unknown)
}

/// Refuses names that are taken. An added adapter of the same model may be loaded again under its name.
fn check_name(app: &App, entry: &ModelEntry, name: &str, is_again: bool) -> Result<(), ApiError> {
    let is_own = entry.added().iter().any(|added| added.spec.name == name);
    match app.registry.locate(name) {
        None => Ok(()),
        Some(_) if is_again && is_own => Ok(()),
        Some(_) => {
            let message = format!("`{name}` is there already; unload it, or set load_inplace");
            Err(ApiError::field("lora_name", message))
        }
    }
}

/// A path that is in the folder after links are followed.
fn within(folder: &Path, path: &str) -> Result<PathBuf, ApiError> {
    let folder = folder.canonicalize().map_err(|error| {
        let message = format!("--lora-dir {}: {error}", folder.display());
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    let found = folder.join(path).canonicalize();
    let found = found
        .ok()
        .filter(|found| found.starts_with(&folder) && *found != folder);
    // Does not reveal whether something exists outside.
    let message = format!("there is no `{path}` in the folder of adapters");
    found.ok_or_else(|| ApiError::field("lora_path", message))
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn paths_stay_in_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("adapters");
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        std::fs::write(root.path().join("secret"), "x").unwrap();
        std::fs::write(folder.join("deep/a.gguf"), "x").unwrap();
        std::fs::write(folder.join("b.gguf"), "x").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(root.path().join("secret"), folder.join("link")).unwrap();
        let whole = folder.join("b.gguf").display().to_string();
        let outside = root.path().join("secret").display().to_string();
        for (path, is_fine) in [
            ("b.gguf", true),
            ("deep/a.gguf", true),
            ("deep/../b.gguf", true),
            (whole.as_str(), true),
            ("", false),
            (".", false),
            ("../secret", false),
            ("link", false),
            (outside.as_str(), false),
            ("nobody.gguf", false),
            ("a\0b", false),
        ] {
            assert_eq!(within(&folder, path).is_ok(), is_fine, "{path}");
        }
    }
}

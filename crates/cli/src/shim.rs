//! TEMPORARY
#![allow(dead_code)]
use crate::exit::*;
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Message { pub(crate) role: String, pub(crate) content: String }
impl Message { pub(crate) fn new(r: impl Into<String>, c: impl Into<String>) -> Message { Message { role: r.into(), content: c.into() } } }
#[derive(Default)]
pub(crate) struct RenderOptions { pub(crate) add_generation_prompt: bool, pub(crate) x: u8 }
pub(crate) struct ChatTemplate;
impl ChatTemplate { pub(crate) fn render(&self, m: &[Message], _: &RenderOptions) -> Outcome<String> { Ok(m.iter().map(|m| format!("{}: {}\n", m.role, m.content)).collect()) } }
pub(crate) trait T { fn chat_template(&self) -> Outcome<ChatTemplate>; }
impl T for millrace_runtime::LoadedModel { fn chat_template(&self) -> Outcome<ChatTemplate> { Ok(ChatTemplate) } }

//! Sliding windows: which layers have one, in each family's way of saying it.

use serde_json::{Value, json};

use super::ConfigObject;
use crate::Error;
use crate::config::MAX_LAYERS;

/// How a family's `config.json` specifies which layers slide.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HfWindows {
    /// The class has no window; the key, if present, means nothing.
    Never,
    /// The same; types of layers include recurrent ones, which the family's hooks read.
    Recurrent,
    /// `sliding_window` (default given) on layers of the type `sliding_attention`, in a family with recurrent layers. Its
    /// hooks read the other types.
    BesideRecurrent(usize),
    /// `sliding_window` (default given) on every layer; `null` for none.
    All(usize),
    /// `sliding_window` on every layer; none where the key is absent or `null`.
    Given,
    /// `use_sliding_window`, then `sliding_window` (default given) on every layer.
    AllIfUsed(usize),
    /// `use_sliding_window`, then `layer_types`, else each second layer from the first on, before `max_window_layers`.
    EvenBefore {
        /// Default of `sliding_window`.
        window: usize,
        /// Default of `max_window_layers`.
        end: usize,
    },
    /// `use_sliding_window`, then `layer_types`, else layers from `max_window_layers` on.
    FromLayer {
        /// Default of `sliding_window`.
        window: usize,
        /// Default of `max_window_layers`.
        first: usize,
    },
    /// `layer_types`, else every layer but each `sliding_window_pattern`-th, or by the letters of that key.
    Pattern {
        /// Default of `sliding_window`.
        window: usize,
        /// Default of `sliding_window_pattern`.
        pattern: usize,
    },
    /// `attention_chunk_size` (default given), in layers of the type `chunked_attention`; the family's hook decides which
    /// layers these are where no types are given.
    Chunks(usize),
    /// `local_attention`, then `layer_types`, else every layer but each `global_attn_every_n_layers`-th, counted from
    /// the first.
    Local {
        /// Default of `local_attention`.
        window: usize,
        /// Default of `global_attn_every_n_layers`.
        every: usize,
    },
}

/// The window and the layers that use it.
pub(super) struct Windows {
    pub(super) window: Option<usize>,
    pub(super) layers: Vec<bool>,
}

/// A window, and whether a layer has it.
type WindowRule = (Option<usize>, Box<dyn Fn(usize) -> bool>);

impl HfWindows {
    pub(super) fn read(self, text: &ConfigObject<'_>, n_layers: usize) -> Result<Windows, Error> {
        // Bounds the lists below; `validate` repeats it with the other sizes.
        if n_layers > MAX_LAYERS {
            let found = json!(n_layers);
            return Err(text.bad("num_hidden_layers", &found, "a plausible number of layers"));
        }
        let types = match self {
            HfWindows::Recurrent => None,
            HfWindows::BesideRecurrent(_) => sliding_of_any(text)?,
            HfWindows::Chunks(_) => layer_types(text, "chunked_attention")?,
            _ => layer_types(text, "sliding_attention")?,
        };
        let (window, rule) = self.rule(text, types.as_deref())?;
        let by_rule = || {
            (0..n_layers)
                .map(|layer| window.is_some() && rule(layer))
                .collect()
        };
        let layers = match (self, types) {
            (HfWindows::Never | HfWindows::Recurrent | HfWindows::All(_), _)
            | (HfWindows::Given | HfWindows::AllIfUsed(_), _)
            | (_, None) => by_rule(),
            (_, Some(types)) => types,
        };
        Ok(Windows { window, layers })
    }

    /// The window, and which layers have it where the file does not list them. `types` are those it lists.
    fn rule(self, text: &ConfigObject<'_>, types: Option<&[bool]>) -> Result<WindowRule, Error> {
        // `null` switches the window off, an absent key leaves the default on.
        let window = |default: usize| match text.map.get("sliding_window") {
            None => Ok(Some(default)),
            Some(_) => text.usize("sliding_window"),
        };
        let if_used = |default: usize| match text.bool("use_sliding_window")? {
            Some(true) => window(default),
            _ => Ok(None),
        };
        Ok(match self {
            HfWindows::Never => {
                if types.is_some_and(|types| types.contains(&true)) {
                    let feature = "`layer_types` with `sliding_attention`".into();
                    return Err(text.unsupported(feature, "`full_attention` in this family"));
                }
                (None, Box::new(|_| false))
            }
            HfWindows::Recurrent => (None, Box::new(|_| false)),
            HfWindows::BesideRecurrent(default) => (window(default)?, Box::new(|_| false)),
            HfWindows::All(default) => (window(default)?, Box::new(|_| true)),
            HfWindows::Chunks(default) => (chunk(text, default)?, Box::new(|_| true)),
            HfWindows::Given => (text.usize("sliding_window")?, Box::new(|_| true)),
            HfWindows::AllIfUsed(default) => (if_used(default)?, Box::new(|_| true)),
            HfWindows::EvenBefore {
                window: default,
                end,
            } => {
                let end = text.usize("max_window_layers")?.unwrap_or(end);
                let slides = move |layer: usize| layer.is_multiple_of(2) && layer < end;
                (if_used(default)?, Box::new(slides))
            }
            HfWindows::FromLayer {
                window: default,
                first,
            } => {
                let window = if_used(default)?;
                let first = text.usize("max_window_layers")?.unwrap_or(first);
                (window, Box::new(move |layer| layer >= first))
            }
            HfWindows::Pattern {
                window: default,
                pattern,
            } => {
                let window = window(default)?;
                // Without a window, or beside the types themselves, the pattern means nothing.
                let period = match window.is_some() && types.is_none() {
                    true => period(text, pattern)?,
                    false => vec![false],
                };
                (window, Box::new(move |layer| period[layer % period.len()]))
            }
            HfWindows::Local {
                window: default,
                every: default_every,
            } => local(text, default, default_every)?,
        })
    }
}

/// Tokens of a chunk; `null` for none.
fn chunk(text: &ConfigObject<'_>, default: usize) -> Result<Option<usize>, Error> {
    const KEY: &str = "attention_chunk_size";
    match text.map.get(KEY) {
        None => Ok(Some(default)),
        Some(_) => text.usize(KEY),
    }
}

/// The rule of encoders: one layer of a period attends to all.
fn local(text: &ConfigObject<'_>, window: usize, every: usize) -> Result<WindowRule, Error> {
    const EVERY: &str = "global_attn_every_n_layers";
    let window = text.usize("local_attention")?.unwrap_or(window);
    let every = text.usize(EVERY)?.unwrap_or(every);
    if every == 0 {
        return Err(text.bad(EVERY, &json!(0), "at least 1"));
    }
    Ok((Some(window), Box::new(move |layer| layer % every != 0)))
}

/// Which layers of a period slide. A number counts the layers of a period, of which the last is global. In a word
/// each letter is a layer, `L` for a local and `G` for a global one.
fn period(text: &ConfigObject<'_>, default: usize) -> Result<Vec<bool>, Error> {
    let keys = ["sliding_window_pattern", "_sliding_window_pattern"];
    let found = keys
        .iter()
        .find_map(|key| text.get(key).map(|value| (*key, value)));
    let Some((key, value)) = found else {
        return Ok((1..=default).map(|n| n < default).collect());
    };
    let bad = || text.bad(key, value, "at least 1, or letters L and G");
    if let Some(letters) = value.as_str() {
        let sizes = 1..=MAX_LAYERS;
        let known = letters.chars().all(|letter| matches!(letter, 'L' | 'G'));
        if !known || !sizes.contains(&letters.len()) {
            return Err(bad());
        }
        return Ok(letters.chars().map(|letter| letter == 'L').collect());
    }
    let length = text.usize(key)?.filter(|n| *n > 0).ok_or_else(bad)?;
    // Of a period longer than any model only the beginning is read.
    let length = length.min(MAX_LAYERS + 1);
    Ok((1..=length).map(|n| n < length).collect())
}

/// Which layers have a window, of types that a family's hook checks.
fn sliding_of_any(text: &ConfigObject<'_>) -> Result<Option<Vec<bool>>, Error> {
    let types = text.array("layer_types")?;
    let slides = |value: &Value| value.as_str() == Some("sliding_attention");
    Ok(types.map(|types| types.iter().map(slides).collect()))
}

/// Which layers are of the type `windowed`.
fn layer_types(text: &ConfigObject<'_>, windowed: &str) -> Result<Option<Vec<bool>>, Error> {
    let known = windowed;
    let Some(types) = text.array("layer_types")? else {
        return Ok(None);
    };
    let windowed = |value: &Value| match value.as_str() {
        Some("full_attention") => Ok(false),
        Some(name) if name == known => Ok(true),
        _ => {
            let feature = format!("layer type {value} (`layer_types`)");
            Err(text.unsupported(feature, &format!("full_attention, {known}")))
        }
    };
    types
        .iter()
        .map(windowed)
        .collect::<Result<Vec<bool>, Error>>()
        .map(Some)
}

//! Structs of settings.

use crate::cancel::CancelHandle;
use crate::guard::CallFailure;
use crate::memory::{optional_text_at, slice_at, text_at};
use millrace::{Device, Level, Options};
use std::ffi::c_char;
use std::ptr;

/// How a model is opened. Initialise it with millrace_open_options_init first.
#[repr(C)]
#[derive(Debug)]
pub struct OpenSettings {
    /// Size of this struct in bytes; millrace_open_options_init sets it. A program with an older header still works.
    pub size_bytes: usize,
    /// `cpu`, `xdna2`, …; NULL for the CPU.
    pub device: *const c_char,
    /// The CPU's instruction set by name; NULL for the best available.
    pub level: *const c_char,
    /// Threads to compute with; 0 for one per physical core.
    pub n_threads: usize,
    /// Tokens of a sequence; 0 for the model's trained context, at most 8,192.
    pub n_ctx: usize,
    /// Sequences alive at a time; 0 for 4.
    pub n_sequences: usize,
    /// Whether to stay off the network.
    pub offline: bool,
}

/// How text is sampled and when it ends. Initialise it with millrace_options_init first, which leaves everything to
/// the model's files.
#[repr(C)]
#[derive(Debug)]
pub struct TextSettings {
    /// Size of this struct in bytes; millrace_options_init sets it. A program with an older header still works.
    pub size_bytes: usize,
    /// Temperature; 0 always takes the likeliest token; below 0 it is unset.
    pub temperature: f32,
    /// Samples from this many of the likeliest tokens, 0 for all; below 0 it is unset.
    pub top_k: i64,
    /// Below 0 it is unset.
    pub top_p: f32,
    /// Below 0 it is unset.
    pub min_p: f32,
    /// 1 is off; below 0 it is unset.
    pub repetition_penalty: f32,
    /// The seed, if `has_seed`; else each call takes a new one.
    pub seed: u64,
    /// Whether `seed` is set.
    pub has_seed: bool,
    /// Whether to go on past the model's end-of-text tokens.
    pub ignore_end: bool,
    /// Maximum number of tokens to generate; below 0 it is unset.
    pub max_tokens: i64,
    /// Stop texts: the text ends before the first one. There are `n_stop` of them.
    pub stop: *const *const c_char,
    /// Number of stop texts.
    pub n_stop: usize,
    /// Handle that stops the work from another thread; may be NULL.
    pub cancel: *const CancelHandle,
}

/// Sets all fields to their defaults. NULL is ignored.
///
/// # Safety
/// `options` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_open_options_init(options: *mut OpenSettings) {
    if !options.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        unsafe { options.write(OpenSettings::default()) };
    }
}

/// Sets all fields to their defaults. NULL is ignored.
///
/// # Safety
/// `options` is NULL or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_options_init(options: *mut TextSettings) {
    if !options.is_null() {
        // SAFETY: not NULL, and as the caller promised.
        unsafe { options.write(TextSettings::default()) };
    }
}

impl Default for OpenSettings {
    fn default() -> OpenSettings {
        OpenSettings {
            size_bytes: size_of::<OpenSettings>(),
            device: ptr::null(),
            level: ptr::null(),
            n_threads: 0,
            n_ctx: 0,
            n_sequences: 0,
            offline: false,
        }
    }
}

impl Default for TextSettings {
    fn default() -> TextSettings {
        TextSettings {
            size_bytes: size_of::<TextSettings>(),
            temperature: -1.0,
            top_k: -1,
            top_p: -1.0,
            min_p: -1.0,
            repetition_penalty: -1.0,
            seed: 0,
            has_seed: false,
            ignore_end: false,
            max_tokens: -1,
            stop: ptr::null(),
            n_stop: 0,
            cancel: ptr::null(),
        }
    }
}

/// Refuses a struct that was not initialised by `…_init`.
fn check_size(found: usize, expected: usize, init: &str) -> Result<(), CallFailure> {
    match found == expected {
        true => Ok(()),
        false => Err(CallFailure::argument(format!(
            "`options.size_bytes` is {found}, expected {expected}; call {init} first"
        ))),
    }
}

impl OpenSettings {
    /// The device that these settings describe.
    ///
    /// # Safety
    /// Pointers are NULL or point to texts that end with a NUL.
    pub(crate) unsafe fn device(&self) -> Result<Device, CallFailure> {
        check_size(
            self.size_bytes,
            size_of::<OpenSettings>(),
            "millrace_open_options_init",
        )?;
        // SAFETY: as the caller promised.
        let name = unsafe { optional_text_at(self.device, "options.device") }?;
        // SAFETY: as the caller promised.
        let level = unsafe { optional_text_at(self.level, "options.level") }?;
        let mut device = Device::named(name.unwrap_or(millrace::CPU));
        if let Some(level) = level {
            let level = level.parse::<Level>();
            let level = level.map_err(|error| CallFailure::argument(error.to_string()));
            device = device.level(level?);
        }
        if self.n_threads > 0 {
            device = device.threads(self.n_threads);
        }
        if self.n_ctx > 0 {
            device = device.context(self.n_ctx);
        }
        if self.n_sequences > 0 {
            device = device.sequences(self.n_sequences);
        }
        Ok(device)
    }
}

impl TextSettings {
    /// The options that these settings describe.
    ///
    /// # Safety
    /// `stop` points to `n_stop` texts that end with a NUL; `cancel` is NULL or a handle that was not freed.
    pub(crate) unsafe fn options(&self) -> Result<Options, CallFailure> {
        check_size(
            self.size_bytes,
            size_of::<TextSettings>(),
            "millrace_options_init",
        )?;
        let mut options = Options::new().ignore_end(self.ignore_end);
        // NaN counts as set, and is refused.
        let is_set = |value: f32| value.is_nan() || value >= 0.0;
        if is_set(self.temperature) {
            options = options.temperature(self.temperature);
        }
        if is_set(self.top_p) {
            options = options.top_p(self.top_p);
        }
        if is_set(self.min_p) {
            options = options.min_p(self.min_p);
        }
        if is_set(self.repetition_penalty) {
            options = options.repetition_penalty(self.repetition_penalty);
        }
        if let Ok(k) = usize::try_from(self.top_k) {
            options = options.top_k(k);
        }
        if let Ok(n) = usize::try_from(self.max_tokens) {
            options = options.max_tokens(n);
        }
        if self.has_seed {
            options = options.seed(self.seed);
        }
        // SAFETY: as the caller promised.
        for stop in unsafe { slice_at(self.stop, self.n_stop, "options.stop") }? {
            // SAFETY: as the caller promised.
            options = options.stop(unsafe { text_at(*stop, "options.stop") }?);
        }
        // SAFETY: as the caller promised.
        if let Some(handle) = unsafe { self.cancel.as_ref() } {
            options = options.cancel(&handle.cancel);
        }
        Ok(options)
    }
}

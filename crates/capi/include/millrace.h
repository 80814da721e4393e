/* Millrace's C interface. Generated from crates/capi/src: change that, not this.
 *
 * Threads: every function may be called from any thread, and a model or a cancel handle from many at once. Calls on one
 * model take turns step by step. What a call returns belongs to its caller, who frees it once by the function named there.
 *
 * Errors: a function that can fail returns a millrace_status, and writes a text to `*error` if `error` is not NULL and the
 * status is not MILLRACE_STATUS_OK. The caller frees it by millrace_text_free. Nothing is written to the other outputs then.
 *
 * Texts are UTF-8 and end with a NUL. No panic crosses this boundary: it becomes MILLRACE_STATUS_PANIC. */


#ifndef MILLRACE_H
#define MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Outcome of a call.
typedef enum millrace_status {
    // The call succeeded.
    MILLRACE_STATUS_OK = 0,
    // A required pointer is NULL, a text is not UTF-8, or a value is outside its range.
    MILLRACE_STATUS_INVALID_ARGUMENT = 1,
    // No model has the given name.
    MILLRACE_STATUS_MODEL_NOT_FOUND = 2,
    // A model's file is damaged, or this version does not run the model.
    MILLRACE_STATUS_MODEL_FILE = 3,
    // A device does not exist, cannot run the model, or failed.
    MILLRACE_STATUS_DEVICE = 4,
    // A prompt does not fit the context.
    MILLRACE_STATUS_CONTEXT_OVERFLOW = 5,
    // The work was stopped before it had a result.
    MILLRACE_STATUS_CANCELLED = 6,
    // Any other failure; the text describes it.
    MILLRACE_STATUS_FAILED = 7,
    // A bug in the library. The model remains usable.
    MILLRACE_STATUS_PANIC = 8,
} millrace_status;

// Why a text ended.
typedef enum millrace_finish {
    // The model ended it.
    MILLRACE_FINISH_STOP = 0,
    // One of the stop texts appeared.
    MILLRACE_FINISH_STOP_TEXT = 1,
    // `max_tokens` were drawn.
    MILLRACE_FINISH_LENGTH = 2,
    // The context is full.
    MILLRACE_FINISH_CONTEXT_FULL = 3,
    // It was cancelled.
    MILLRACE_FINISH_CANCELLED = 4,
} millrace_finish;

// Stops the work that it was given to, from any thread.
typedef struct millrace_cancel millrace_cancel;

// A model on a device.
typedef struct millrace_model millrace_model;

// Tokens. Freed by millrace_tokens_free.
typedef struct millrace_tokens {
    // The tokens; NULL when there are none.
    uint32_t *data;
    // Number of tokens.
    size_t n;
} millrace_tokens;

// Rows of numbers, one after the other. Freed by millrace_floats_free.
typedef struct millrace_floats {
    // `n_rows` times `n_columns` numbers; NULL when there are none.
    float *data;
    // Number of rows.
    size_t n_rows;
    // Numbers in a row.
    size_t n_columns;
} millrace_floats;

// How a model is opened. Initialise it with millrace_open_options_init first.
typedef struct millrace_open_options {
    // Size of this struct in bytes; millrace_open_options_init sets it. A program with an older header still works.
    size_t size_bytes;
    // `cpu`, `xdna2`, …; NULL for the CPU.
    const char *device;
    // The CPU's instruction set by name; NULL for the best available.
    const char *level;
    // Threads to compute with; 0 for one per physical core.
    size_t n_threads;
    // Tokens of a sequence; 0 for the model's trained context, at most 8,192.
    size_t n_ctx;
    // Sequences alive at a time; 0 for 4.
    size_t n_sequences;
    // Whether to stay off the network.
    bool offline;
} millrace_open_options;

// How text is sampled and when it ends. Initialise it with millrace_options_init first, which leaves everything to
// the model's files.
typedef struct millrace_options {
    // Size of this struct in bytes; millrace_options_init sets it. A program with an older header still works.
    size_t size_bytes;
    // Temperature; 0 always takes the likeliest token; below 0 it is unset.
    float temperature;
    // Samples from this many of the likeliest tokens, 0 for all; below 0 it is unset.
    int64_t top_k;
    // Below 0 it is unset.
    float top_p;
    // Below 0 it is unset.
    float min_p;
    // 1 is off; below 0 it is unset.
    float repetition_penalty;
    // The seed, if `has_seed`; else each call takes a new one.
    uint64_t seed;
    // Whether `seed` is set.
    bool has_seed;
    // Whether to go on past the model's end-of-text tokens.
    bool ignore_end;
    // Maximum number of tokens to generate; below 0 it is unset.
    int64_t max_tokens;
    // Stop texts: the text ends before the first one. There are `n_stop` of them.
    const char *const *stop;
    // Number of stop texts.
    size_t n_stop;
    // Handle that stops the work from another thread; may be NULL.
    const struct millrace_cancel *cancel;
} millrace_options;

// A finished text. Freed by millrace_generation_free.
typedef struct millrace_generation {
    // The text, up to a stop text. A NUL that the model wrote is U+FFFD here.
    char *text;
    // Tokens drawn, without the one that ended the text.
    struct millrace_tokens tokens;
    // Why it ended.
    enum millrace_finish finish;
    // Tokens of the prompt, including those from the cache.
    size_t n_prompt_tokens;
    // Time of the prompt's passes, in seconds.
    double prefill_s;
    // Time of the passes after the first token, in seconds.
    double decode_s;
} millrace_generation;

// Gets a piece of text and `user`, on the thread of the call. The piece is `n_bytes` of UTF-8, followed by a NUL.
// Returning false ends the text. It may call this library, but must not close the model. It must leave only by
// returning.
typedef bool (*millrace_text_callback)(const char *text, size_t n_bytes, void *user);

// A message of a conversation.
typedef struct millrace_message {
    // `system`, `user` or `assistant`.
    const char *role;
    // The text of the message.
    const char *content;
} millrace_message;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as a static text.
const char *millrace_version(void);

// Makes a new handle. Freed by millrace_cancel_free.
struct millrace_cancel *millrace_cancel_new(void);

// Stops the work that has this handle, and all work that gets it before millrace_cancel_reset. NULL is ignored. It
// only sets a flag, so a signal handler may call it.
//
// # Safety
// `cancel` is NULL, or came from millrace_cancel_new and was not freed.
void millrace_cancel_stop(const struct millrace_cancel *cancel);

// Makes the handle usable for new work. NULL is ignored.
//
// # Safety
// As millrace_cancel_stop.
void millrace_cancel_reset(const struct millrace_cancel *cancel);

// Frees a handle. Work that has it continues. NULL is ignored.
//
// # Safety
// `cancel` is NULL, or came from millrace_cancel_new and was not freed; no other call has it.
void millrace_cancel_free(struct millrace_cancel *cancel);

// Frees a text that a call returned. NULL is ignored.
//
// # Safety
// `text` is NULL, or came from a call of this library and was not freed.
void millrace_text_free(char *text);

// Frees tokens that a call returned, and leaves the struct empty. NULL is ignored.
//
// # Safety
// `tokens` is NULL, or points to a struct that a call of this library filled.
void millrace_tokens_free(struct millrace_tokens *tokens);

// Frees numbers that a call returned, and leaves the struct empty. NULL is ignored.
//
// # Safety
// `floats` is NULL, or points to a struct that a call of this library filled.
void millrace_floats_free(struct millrace_floats *floats);

// Opens a model: `demo`, a file, a folder, or `hf:OWNER/REPO[:QUANT]`. It runs on the device of `options`, or on the
// CPU if that is NULL. Closed by millrace_close.
//
// # Safety
// Pointers are NULL or point to values of their types; texts end with a NUL.
enum millrace_status millrace_open(const char *name,
                                   const struct millrace_open_options *options,
                                   struct millrace_model **model,
                                   char **error);

// Closes a model. Calls of other threads that have begun continue; none may begin. NULL is ignored.
//
// # Safety
// `model` is NULL, or came from millrace_open and was not closed.
void millrace_close(struct millrace_model *model);

// Tokens of a sequence, prompt and answer together; 0 for NULL.
//
// # Safety
// `model` is NULL, or came from millrace_open and was not closed.
size_t millrace_n_ctx(const struct millrace_model *model);

// Tokens of the vocabulary; 0 for NULL.
//
// # Safety
// `model` is NULL, or came from millrace_open and was not closed.
size_t millrace_vocab_size(const struct millrace_model *model);

// Elements of an embedding; 0 for NULL.
//
// # Safety
// `model` is NULL, or came from millrace_open and was not closed.
size_t millrace_d_model(const struct millrace_model *model);

// Where the model runs, as in `cpu (avx512)`. Freed by millrace_text_free.
//
// # Safety
// Pointers are NULL or point to values of their types.
enum millrace_status millrace_device_name(const struct millrace_model *model,
                                          char **name,
                                          char **error);

// The tokens of a text. `add_special` adds the tokens that the model puts around every text; `parse_special` reads
// spelled-out control tokens as control tokens. Freed by millrace_tokens_free.
//
// # Safety
// Pointers are NULL or point to values of their types; texts end with a NUL.
enum millrace_status millrace_tokenize(const struct millrace_model *model,
                                       const char *text,
                                       bool add_special,
                                       bool parse_special,
                                       struct millrace_tokens *tokens,
                                       char **error);

// The text of tokens; with `show_special`, control tokens are shown. Freed by millrace_text_free.
//
// # Safety
// Pointers are NULL or point to values of their types: `tokens` to `n_tokens` of them.
enum millrace_status millrace_detokenize(const struct millrace_model *model,
                                         const uint32_t *tokens,
                                         size_t n_tokens,
                                         bool show_special,
                                         char **text,
                                         char **error);

// The embedding of a text: one row of length 1. Freed by millrace_floats_free.
//
// # Safety
// Pointers are NULL or point to values of their types; texts end with a NUL.
enum millrace_status millrace_embed(const struct millrace_model *model,
                                    const char *text,
                                    struct millrace_floats *embedding,
                                    char **error);

// The logits after every token of a prompt: a row for each token, a column for each token of the vocabulary. Freed
// by millrace_floats_free.
//
// # Safety
// Pointers are NULL or point to values of their types; texts end with a NUL.
enum millrace_status millrace_logits(const struct millrace_model *model,
                                     const char *prompt,
                                     struct millrace_floats *logits,
                                     char **error);

// Sets all fields to their defaults. NULL is ignored.
//
// # Safety
// `options` is NULL or points to memory for the struct.
void millrace_open_options_init(struct millrace_open_options *options);

// Sets all fields to their defaults. NULL is ignored.
//
// # Safety
// `options` is NULL or points to memory for the struct.
void millrace_options_init(struct millrace_options *options);

// Frees the buffers of a result, and leaves the struct empty. NULL is ignored.
//
// # Safety
// `generation` is NULL, or points to a struct that a call of this library filled.
void millrace_generation_free(struct millrace_generation *generation);

// Generates text after a prompt. `on_text`, if it is not NULL, gets it piece by piece with `user`. `generation` may
// be NULL. Freed by millrace_generation_free.
//
// # Safety
// Pointers are NULL or point to values of their types; texts end with a NUL.
enum millrace_status millrace_generate(const struct millrace_model *model,
                                       const char *prompt,
                                       const struct millrace_options *options,
                                       millrace_text_callback on_text,
                                       void *user,
                                       struct millrace_generation *generation,
                                       char **error);

// As millrace_generate, after `n_tokens` tokens.
//
// # Safety
// Pointers are NULL or point to values of their types: `tokens` to `n_tokens` of them.
enum millrace_status millrace_generate_tokens(const struct millrace_model *model,
                                              const uint32_t *tokens,
                                              size_t n_tokens,
                                              const struct millrace_options *options,
                                              millrace_text_callback on_text,
                                              void *user,
                                              struct millrace_generation *generation,
                                              char **error);

// The answer to messages in the model's chat template; else as millrace_generate. To continue a conversation, append
// the answer and the next message to the messages: their common beginning is not computed again.
//
// # Safety
// Pointers are NULL or point to values of their types: `messages` to `n_messages` of them.
enum millrace_status millrace_chat(const struct millrace_model *model,
                                   const struct millrace_message *messages,
                                   size_t n_messages,
                                   const struct millrace_options *options,
                                   millrace_text_callback on_text,
                                   void *user,
                                   struct millrace_generation *generation,
                                   char **error);

// Texts after `n_prompts` prompts, computed together. Each equals the text that millrace_generate gives for its
// prompt alone. `generations` has room for `n_prompts` results, each freed by millrace_generation_free. A failure
// fills none.
//
// # Safety
// Pointers are NULL or point to values of their types: `prompts` and `generations` to `n_prompts` of them.
enum millrace_status millrace_generate_batch(const struct millrace_model *model,
                                             const char *const *prompts,
                                             size_t n_prompts,
                                             const struct millrace_options *options,
                                             struct millrace_generation *generations,
                                             char **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MILLRACE_H */

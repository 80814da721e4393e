/* A story, piece by piece, a question, an embedding, and an error: `.ci/capi` compiles and runs this.
 *
 *     cargo build --release -p millrace-capi
 *     cc crates/capi/examples/hello.c -Icrates/capi/include -Ltarget/release -lmillrace_c -lm -o hello
 *     LD_LIBRARY_PATH=target/release ./hello
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "millrace.h"

static bool print(const char *text, size_t n_bytes, void *user) {
    fwrite(text, 1, n_bytes, stdout);
    *(size_t *)user += n_bytes;
    return true;
}

/* Ends the program where a call failed, with its text. */
static int failed(const char *call, char *error) {
    fprintf(stderr, "%s: %s\n", call, error == NULL ? "?" : error);
    millrace_text_free(error);
    return 1;
}

int main(int argc, char **argv) {
    char *error = NULL;
    millrace_model *model = NULL;
    millrace_open_options open;
    millrace_open_options_init(&open);
    open.n_ctx = 256;
    if (millrace_open(argc > 1 ? argv[1] : "demo", &open, &model, &error) != MILLRACE_STATUS_OK)
        return failed("millrace_open", error);

    millrace_options options;
    millrace_options_init(&options);
    options.temperature = 0;
    options.max_tokens = 24;
    size_t n_written = 0;
    millrace_generation story;
    if (millrace_generate(model, "Once upon a time", &options, print, &n_written, &story, &error) !=
        MILLRACE_STATUS_OK)
        return failed("millrace_generate", error);
    printf("\n%zu bytes, %zu tokens\n", n_written, story.tokens.n);
    if (strlen(story.text) != n_written || story.finish != MILLRACE_FINISH_LENGTH)
        return failed("the pieces are not the text", NULL);
    millrace_generation_free(&story);

    const millrace_message question = {"user", "What is 7 plus 5?"};
    millrace_generation answer;
    options.max_tokens = -1;
    if (millrace_chat(model, &question, 1, &options, NULL, NULL, &answer, &error) !=
        MILLRACE_STATUS_OK)
        return failed("millrace_chat", error);
    printf("%s\n", answer.text);
    millrace_generation_free(&answer);

    millrace_floats embedding;
    if (millrace_embed(model, "The dog saw a ball.", &embedding, &error) != MILLRACE_STATUS_OK)
        return failed("millrace_embed", error);
    double squares = 0;
    for (size_t i = 0; i < embedding.n_columns; i++)
        squares += (double)embedding.data[i] * embedding.data[i];
    printf("an embedding of %zu numbers, length %.3f\n", embedding.n_columns, sqrt(squares));
    millrace_floats_free(&embedding);

    millrace_model *none = NULL;
    if (millrace_open("dmeo", NULL, &none, &error) != MILLRACE_STATUS_MODEL_NOT_FOUND)
        return failed("a model that does not exist was opened", NULL);
    printf("%s\n", error);
    millrace_text_free(error);
    millrace_close(model);
    return 0;
}

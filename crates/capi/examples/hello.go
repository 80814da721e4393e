// A story, piece by piece, and a question, by Go through cgo: `.ci/capi` runs this where Go is installed.
//
//	cargo build --release -p millrace-capi
//	export CGO_CFLAGS=-I$PWD/crates/capi/include CGO_LDFLAGS="-L$PWD/target/release -lmillrace_c -lm"
//	LD_LIBRARY_PATH=target/release go run crates/capi/examples/hello.go
package main

/*
#include <stdlib.h>
#include "millrace.h"

// Go's functions have types of their own: the callback is passed as C sees it.
extern bool goPrint(char *text, size_t n_bytes, void *user);

static bool print(const char *text, size_t n_bytes, void *user) {
	return goPrint((char *)text, n_bytes, user);
}

static enum millrace_status generate(millrace_model *model, const char *prompt, const millrace_options *options,
	millrace_generation *out, char **error) {
	return millrace_generate(model, prompt, options, print, NULL, out, error);
}
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

var pieces strings.Builder

//export goPrint
func goPrint(text *C.char, nBytes C.size_t, _ unsafe.Pointer) C.bool {
	piece := C.GoStringN(text, C.int(nBytes))
	pieces.WriteString(piece)
	fmt.Print(piece)
	return true
}

// check ends the program where a call failed, with its text.
func check(call string, status C.enum_millrace_status, text *C.char) {
	if status == C.MILLRACE_STATUS_OK {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", call, C.GoString(text))
	C.millrace_text_free(text)
	os.Exit(1)
}

func main() {
	var failure *C.char
	var model *C.millrace_model
	name := C.CString("demo")
	defer C.free(unsafe.Pointer(name))
	check("millrace_open", C.millrace_open(name, nil, &model, &failure), failure)
	defer C.millrace_close(model)

	var options C.millrace_options
	C.millrace_options_init(&options)
	options.temperature = 0
	options.max_tokens = 24
	prompt := C.CString("Once upon a time")
	defer C.free(unsafe.Pointer(prompt))
	var story C.millrace_generation
	check("millrace_generate", C.generate(model, prompt, &options, &story, &failure), failure)
	if pieces.String() != C.GoString(story.text) || story.finish != C.MILLRACE_FINISH_LENGTH {
		fmt.Fprintln(os.Stderr, "the pieces are not the text")
		os.Exit(1)
	}
	fmt.Printf("\n%d bytes, %d tokens\n", pieces.Len(), story.tokens.n)
	C.millrace_generation_free(&story)

	// A message in C's memory: cgo passes no pointers to Go's memory that hold pointers.
	question := (*C.millrace_message)(C.calloc(1, C.sizeof_millrace_message))
	defer C.free(unsafe.Pointer(question))
	question.role, question.content = C.CString("user"), C.CString("What is 7 plus 5?")
	defer C.free(unsafe.Pointer(question.role))
	defer C.free(unsafe.Pointer(question.content))
	options.max_tokens = -1
	var answer C.millrace_generation
	check("millrace_chat", C.millrace_chat(model, question, 1, &options, nil, nil, &answer, &failure), failure)
	fmt.Println(C.GoString(answer.text))
	C.millrace_generation_free(&answer)

	missing := C.CString("dmeo")
	defer C.free(unsafe.Pointer(missing))
	var none *C.millrace_model
	if C.millrace_open(missing, nil, &none, &failure) == C.MILLRACE_STATUS_OK {
		fmt.Fprintln(os.Stderr, "a model that is not there was opened")
		os.Exit(1)
	}
	fmt.Println(C.GoString(failure))
	C.millrace_text_free(failure)
}

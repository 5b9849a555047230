/* What the Python package calls beside lenslet.h: cards, pictures and the command. Private to the package, which is of
 * the same build: nothing here stays. Errors, handles, structs and texts are as lenslet.h has them. */
#ifndef LENSLET_PYTHON_NATIVE_PYTHON_H_
#define LENSLET_PYTHON_NATIVE_PYTHON_H_

#include "lenslet/lenslet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arguments of lenslet_runner_run() in one struct, which the package keeps: ctypes takes 0.2 us to convert each. */
typedef struct lenslet_call {
  lenslet_runner* runner;
  const lenslet_tensor* inputs;
  size_t input_count;
  const lenslet_tensor* outputs;
  size_t output_count;
  const lenslet_run_options* options;
} lenslet_call;
LENSLET_C_API lenslet_status lenslet_python_run(const lenslet_call* call);

/* lenslet_runner_set_observer() for an observer of one argument, which a generator's send() is. */
typedef int32_t (*lenslet_python_observer)(const lenslet_event* event);
LENSLET_C_API lenslet_status lenslet_python_observe(lenslet_runner* runner, lenslet_python_observer observer);

/* lenslet/check.h: rows as JSON, a number that is not finite as text. `how` is JSON, {"seed", "outputs", "seconds"}. */
LENSLET_C_API lenslet_status lenslet_python_check_layers(lenslet_model* model, const lenslet_plan_options* options,
                                                         const lenslet_tensor* inputs, size_t input_count,
                                                         const char* how, char** json);
/* Of `options` device, precision, algorithm and threads count. `how` is {"op", "attributes", "inputs", "domain",
 * "opset", "run_inputs", "outputs", "seconds"}; an attribute may be {"tensor": i}, one of `inputs` behind the layer's
 * own. */
LENSLET_C_API lenslet_status lenslet_python_check_layer(const lenslet_plan_options* options,
                                                        const lenslet_tensor* inputs, size_t input_count,
                                                        const char* how, char** json);

/* A picture: a file, an encoded one in memory, or pixels. */
typedef struct lenslet_picture {
  size_t struct_size;
  const char* file;     /* or NULL; "-" is standard input */
  const uint8_t* bytes; /* encoded, or pixels where `height` > 0; read during the call only */
  size_t size;
  int64_t height, width; /* of pixels: 8 bits, rows without gaps; else 0 */
  int32_t channels;      /* of pixels: 1 or 3 */
  int32_t reserved;
} lenslet_picture;

/* ---- Model cards (docs/model-card.md) ---- */

typedef struct lenslet_card lenslet_card;

/* From a file, or, `json` not NULL, from that text, whose files lie beside `file`. */
LENSLET_C_API lenslet_status lenslet_card_read(const char* file, const char* json, lenslet_card** card);
/* The card that `lenslet classify` takes for the model in `model_file`, or else, that being NULL, for the one in
 * `bytes`; bound to it. */
LENSLET_C_API lenslet_status lenslet_card_of(lenslet_model* model, const char* model_file, const void* bytes,
                                             size_t size, lenslet_card** card);
/* The same card with what it leaves to the model filled in. LENSLET_INVALID_ARGUMENT where they do not fit. */
LENSLET_C_API lenslet_status lenslet_card_bound(lenslet_card* card, lenslet_model* model, lenslet_card** bound);
LENSLET_C_API lenslet_status lenslet_card_free(lenslet_card* card);
/* {"name", "input", "output", "labels_file" or null, "labels_assumed", "softmax" or null, "class_offset", "height",
 * "width", "channels", "nhwc", "preparation", "found_by" (FoundBy, "" where it is assumed), "file" or null,
 * "words" and "remark" (what the command says of where it comes from, and of its output.softmax; "": nothing), "json"
 * (the card without its files, which lenslet_card_read() takes)} as JSON. */
LENSLET_C_API lenslet_status lenslet_card_describe(lenslet_card* card, char** json);
/* `count` floats [C,H,W], or [H,W,C] of an nhwc card. */
LENSLET_C_API lenslet_status lenslet_card_prepare(lenslet_card* card, const lenslet_picture* picture, float* input,
                                                  size_t count);
/* The best classes of one image's output, best first: at most `room` of them, `*found` are there. `probs` are scores
 * where the card and the values say so. */
LENSLET_C_API lenslet_status lenslet_card_top(lenslet_card* card, const float* scores, size_t count, size_t room,
                                              int64_t* classes, float* probs, size_t* found);

/* One class name a line; exactly `classes` of them where that is not negative. As a JSON array. */
LENSLET_C_API lenslet_status lenslet_labels_read(const char* file, int64_t classes, char** json);
/* Where the default model lies; LENSLET_IO when it was not fetched. */
LENSLET_C_API lenslet_status lenslet_default_model(char** file);

/* ---- Pictures through a model ---- */

typedef struct lenslet_classifier lenslet_classifier;

/* `options->batch` pictures at once. `labels_file` NULL: the card's, if it names one. */
LENSLET_C_API lenslet_status lenslet_classifier_create(lenslet_model* model, lenslet_card* card,
                                                       const char* labels_file, const lenslet_plan_options* options,
                                                       lenslet_classifier** classifier);
LENSLET_C_API lenslet_status lenslet_classifier_free(lenslet_classifier* classifier);
/* {"batch", "classes", "device"} as JSON. */
LENSLET_C_API lenslet_status lenslet_classifier_describe(lenslet_classifier* classifier, char** json);
/* Into `slot` of the next batch. One thread at a time, as the rest. */
LENSLET_C_API lenslet_status lenslet_classifier_prepare(lenslet_classifier* classifier, const lenslet_picture* picture,
                                                        int64_t slot);
LENSLET_C_API lenslet_status lenslet_classifier_run(lenslet_classifier* classifier);
LENSLET_C_API lenslet_status lenslet_classifier_top(lenslet_classifier* classifier, int64_t slot, size_t room,
                                                    int64_t* classes, float* probs, size_t* found);

/* ---- The command ---- */

/* As the program's main(): its exit code. */
LENSLET_C_API int lenslet_command(int argc, char** argv);

#ifdef __cplusplus
}
#endif

#endif /* LENSLET_PYTHON_NATIVE_PYTHON_H_ */

/* What the Python package calls beside lenslet.h and lenslet_photos.h. Private to the package, which is of
 * the same build: nothing here stays. Errors, handles, structs and texts are as lenslet.h has them. */
#ifndef LENSLET_PYTHON_NATIVE_PYTHON_H_
#define LENSLET_PYTHON_NATIVE_PYTHON_H_

#include "lenslet/lenslet_photos.h"

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
LENSLET_C_API lenslet_status lenslet_classifier_top(lenslet_classifier* classifier, int64_t slot, size_t capacity,
                                                    int64_t* classes, float* probs, size_t* found);

/* lenslet_card_prepare() of a picture that is decoded whole, whatever the card says of drafts, with its size. */
LENSLET_C_API lenslet_status lenslet_python_prepare(lenslet_card* card, const lenslet_picture* picture, float* input,
                                                    size_t count, int64_t* height, int64_t* width);
/* read_boxes() (lenslet/detector.h): all outputs of the model for one image. Labels are "". */
LENSLET_C_API lenslet_status lenslet_python_boxes(lenslet_model* model, lenslet_card* card,
                                                  const lenslet_tensor* outputs, size_t output_count, int64_t height,
                                                  int64_t width, double threshold, double iou,
                                                  lenslet_detection* detections, size_t capacity, size_t* found);

/* ---- The command ---- */

/* As the program's main(): its exit code. */
LENSLET_C_API int lenslet_command(int argc, char** argv);

#ifdef __cplusplus
}
#endif

#endif /* LENSLET_PYTHON_NATIVE_PYTHON_H_ */

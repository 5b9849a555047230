/* lenslet in C (C99): load a network, plan it, run it on memory of your own. docs/c-api.md shows how.
 *
 * Errors. Every function that can fail returns a lenslet_status; on any but LENSLET_OK its results are NULL or
 * unchanged. lenslet_last_error() says why in one line. No C++ exception leaves the library. An exception or longjmp
 * out of one of your callbacks is undefined.
 *
 * Handles (lenslet_model*, lenslet_runner*, lenslet_cancel*) are numbers that are never reused. NULL, a freed handle or
 * one of another kind is LENSLET_INVALID_ARGUMENT in every function, except that free functions accept NULL. An object
 * freed while another thread uses it lives until that call returns.
 *
 * Undefined behaviour, which the library cannot detect: pointers to memory that is smaller than stated or freed,
 * unterminated strings, uninitialised structs, memory that another thread changes during a call, and results (names,
 * outputs) used beyond the lifetime that their comment states.
 *
 * Structs begin with `struct_size`, which you set to sizeof the struct, so that they can grow. Members that your struct
 * does not have count as 0; members that this library does not know must be 0 (else LENSLET_UNSUPPORTED). 0 is the
 * default of every member: `lenslet_plan_options o = {.struct_size = sizeof o};`. In arrays each element has the same
 * `struct_size`.
 *
 * Threads. Any function may be called from any thread. A model may be used by many at once, a runner by one at a time.
 * Any other call on a running runner, by another thread or from a callback of that run, is refused with
 * LENSLET_INVALID_ARGUMENT and has no effect, except lenslet_runner_free(). fork(): samples/README.md. */
#ifndef LENSLET_LENSLET_H_
#define LENSLET_LENSLET_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LENSLET_C_API __attribute__((visibility("default")))
#else
#define LENSLET_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---- */

/* Version of this interface, not of the library. Major: an incompatible change. Minor: an addition. */
#define LENSLET_API_MAJOR 1u
#define LENSLET_API_MINOR 1u

/* Kinds of errors, with the values and meanings of lenslet::ErrorKind (table in samples/README.md). */
typedef int32_t lenslet_status;
enum {
  LENSLET_OK = 0,
  LENSLET_INVALID_ARGUMENT = 1, /* you asked for something that makes no sense */
  LENSLET_INVALID_MODEL = 2,    /* a model file that is damaged or contradicts itself */
  LENSLET_UNSUPPORTED = 3,      /* well-formed, but not supported */
  LENSLET_INVALID_IMAGE = 4,
  LENSLET_IO = 5,       /* a file that cannot be read */
  LENSLET_LIMIT = 6,    /* a published limit is exceeded, or out of memory */
  LENSLET_DEVICE = 7,   /* an accelerator or its driver failed */
  LENSLET_INTERNAL = 8, /* a broken invariant of the library: please report it */
  LENSLET_CANCELLED = 9 /* you asked for the end of the run */
};

/* Call first, with LENSLET_API_MAJOR and LENSLET_API_MINOR: LENSLET_UNSUPPORTED if this library lacks anything that
 * your header declares. lenslet_api_version() gives the library's own version. */
LENSLET_C_API lenslet_status lenslet_negotiate(uint32_t api_major, uint32_t api_minor);
LENSLET_C_API void lenslet_api_version(uint32_t* api_major, uint32_t* api_minor); /* either may be NULL */
LENSLET_C_API const char* lenslet_version(void);                                  /* of the library: "0.1.0" */

LENSLET_C_API const char* lenslet_status_name(lenslet_status status); /* "invalid argument"; never NULL */
/* Message of the last failed call in this thread: one line, never NULL, valid until the next failure. */
LENSLET_C_API const char* lenslet_last_error(void);
/* The same, with a further line for each node if several are at fault. */
LENSLET_C_API const char* lenslet_last_error_details(void);

/* ---- Tensors ---- */

/* Element types. Elements of fewer than 8 bits take one byte each (lenslet/tensor.h). */
/* clang-format off */
enum {
  LENSLET_F32 = 0, LENSLET_F64 = 1, LENSLET_F16 = 2, LENSLET_BF16 = 3, LENSLET_I8 = 4, LENSLET_U8 = 5,
  LENSLET_I16 = 6, LENSLET_U16 = 7, LENSLET_I32 = 8, LENSLET_U32 = 9, LENSLET_I64 = 10, LENSLET_U64 = 11,
  LENSLET_BOOL = 12, LENSLET_F8E4M3FN = 13, LENSLET_F8E4M3FNUZ = 14, LENSLET_F8E5M2 = 15, LENSLET_F8E5M2FNUZ = 16,
  LENSLET_F8E8M0 = 17, LENSLET_F4E2M1 = 18, LENSLET_I4 = 19, LENSLET_U4 = 20, LENSLET_I2 = 21, LENSLET_U2 = 22
};
/* clang-format on */
LENSLET_C_API size_t lenslet_dtype_bytes(int32_t dtype);     /* of one element; 0 for no dtype */
LENSLET_C_API const char* lenslet_dtype_name(int32_t dtype); /* "float32"; "" for no dtype */

#define LENSLET_MAX_RANK 8

enum {
  LENSLET_ON_HOST = 0,
  LENSLET_ON_CUDA = 1 /* `data` is a CUDA device address, or managed memory */
};

/* A non-owning view of dense row-major elements in the order of the shape ([N,C,H,W]). */
typedef struct lenslet_tensor {
  size_t struct_size;
  void* data;   /* inputs: only read; outputs: NULL leaves the output in the runner's memory */
  size_t bytes; /* size of data: exactly that of the elements */
  int32_t dtype;
  int32_t memory; /* LENSLET_ON_HOST or LENSLET_ON_CUDA */
  int32_t rank;   /* 0: a scalar */
  int32_t reserved;
  int64_t dims[LENSLET_MAX_RANK]; /* `rank` of them */
} lenslet_tensor;

/* An input or an output. Names are UTF-8 as in the file, never NULL, and live as long as the handle that gave them. */
typedef struct lenslet_port {
  size_t struct_size;
  const char* name;
  int32_t dtype;
  int32_t rank;                            /* -1: not known before a run */
  int64_t dims[LENSLET_MAX_RANK];          /* -1: free */
  const char* dim_names[LENSLET_MAX_RANK]; /* of free dimensions ("N"), else "" */
  int32_t unread;                          /* 1: an input that no node reads; may be omitted */
  int32_t reserved;
} lenslet_port;

/* ---- Models: immutable, used by any number of threads and runners ---- */

typedef struct lenslet_model lenslet_model;

typedef struct lenslet_load_options {
  size_t struct_size;
  const char* external_data_dir; /* of external weights; NULL: the model file's own folder, none for bytes */
  const char* name;              /* name in messages when loaded from bytes; NULL: "model" */
  /* Since 1.1. Inputs for which the file has values of its own (initializers): these become inputs that a run must be
   * given, the others stay constants. */
  const char* const* overridden;
  size_t overridden_count;
} lenslet_load_options;

/* Reads and checks a whole ONNX file. `options` may be NULL here and in every function. */
LENSLET_C_API lenslet_status lenslet_model_load(const char* file, const lenslet_load_options* options,
                                                lenslet_model** model);
/* The same from memory, which may be freed afterwards. */
LENSLET_C_API lenslet_status lenslet_model_load_bytes(const void* data, size_t bytes,
                                                      const lenslet_load_options* options, lenslet_model** model);
/* Its runners stay valid. */
LENSLET_C_API lenslet_status lenslet_model_free(lenslet_model* model);

LENSLET_C_API lenslet_status lenslet_model_count(lenslet_model* model, size_t* inputs, size_t* outputs);
/* As the file declares them. */
LENSLET_C_API lenslet_status lenslet_model_input(lenslet_model* model, size_t index, lenslet_port* port);
LENSLET_C_API lenslet_status lenslet_model_output(lenslet_model* model, size_t index, lenslet_port* port);

/* ---- How a model is to be run ---- */

/* Shape of the input `name`. */
typedef struct lenslet_named_shape {
  size_t struct_size;
  const char* name;
  int32_t rank;
  int32_t reserved;
  int64_t dims[LENSLET_MAX_RANK];
} lenslet_named_shape;

/* The algorithm of one step, as lenslet_model_plan_json() lists them among its candidates. */
typedef struct lenslet_layer_algorithm {
  size_t struct_size;
  const char* layer;     /* name of the node */
  const char* algorithm; /* NULL or "": the rule chooses, despite conv_algorithm */
} lenslet_layer_algorithm;

/* Value of the input `name`, on the host. Copied. */
typedef struct lenslet_named_tensor {
  size_t struct_size;
  const char* name;
  const lenslet_tensor* tensor;
} lenslet_named_tensor;

/* Your thread pool, which runs the parallel loops. The struct is copied by lenslet_runner_create() and used until
 * release(), which is called once, when the runner no longer needs it. release() is not called if creation fails, nor
 * for a plan alone. */
typedef struct lenslet_executor {
  size_t struct_size;
  void* context;
  /* Calls task(task_context, i) once for each i in [0, tasks), in whatever threads, and returns when all have returned.
   * No task waits for another. Called in the thread that runs, some hundred times a run. */
  void (*run)(void* context, int32_t tasks, void (*task)(void* task_context, int32_t index), void* task_context);
  void (*release)(void* context); /* or NULL */
} lenslet_executor;

/* Allocator of a runner's values and workspaces, most of its memory. Not used for weights, which belong to the model,
 * or for small bookkeeping. Copied, used and released like an executor. */
typedef struct lenslet_allocator {
  size_t struct_size;
  void* context;
  /* `bytes` > 0 aligned to `alignment` (a power of two, at most 256), on the host or, LENSLET_ON_CUDA, on the CUDA
   * device that is current in the calling thread; NULL: there are none. */
  void* (*allocate)(void* context, size_t bytes, size_t alignment, int32_t memory);
  void (*deallocate)(void* context, void* data, size_t bytes, size_t alignment, int32_t memory);
  void (*release)(void* context); /* or NULL */
} lenslet_allocator;

/* Of lenslet_plan_options::flags. */
#define LENSLET_PLAN_ALGORITHM_WHERE_ACCEPTED                                                                \
  UINT64_C(1)                                    /* layers that refuse conv_algorithm keep the rule's choice \
                                                  */
#define LENSLET_PLAN_KEEP_ALL_VALUES UINT64_C(2) /* every value in its own memory, for observers */
#define LENSLET_PLAN_SYNC_EACH_STEP UINT64_C(4)  /* CUDA: wait after each step, so that errors name the node */
#define LENSLET_PLAN_FLUSH_DENORMALS UINT64_C(8) /* CPU: denormal numbers count as zero */

/* lenslet::PlanOptions (lenslet/model.h) says more of each. Strings are copied. */
typedef struct lenslet_plan_options {
  size_t struct_size;
  const char* device;         /* "cpu", "cuda", "cuda:1", "auto"; NULL: "auto" */
  const char* precision;      /* "fp32", "bf16"; on CUDA "tf32", "fp16" as well; NULL: fp32, or the file's own types */
  const char* conv_algorithm; /* one for all convolutions; NULL: the rule chooses */
  int64_t batch;              /* batch size; 0: 1 */
  int32_t threads;            /* the caller's included; 0: one per core of this process */
  int32_t reserved;
  uint64_t flags;
  uint64_t other_shapes;             /* number of further input shapes to keep plans for; 0: other shapes are refused */
  const lenslet_named_shape* shapes; /* of inputs with free dimensions besides the batch */
  size_t shape_count;
  const lenslet_executor* executor; /* CPU; NULL: threads of the runner's own */
  const lenslet_allocator* allocator;
  /* Since 1.1. */
  const lenslet_layer_algorithm* layer_algorithms; /* they override conv_algorithm; refusals likewise */
  size_t layer_algorithm_count;
  const char* const* disabled_passes; /* names of graph passes to disable ("fuse_residual") */
  size_t disabled_pass_count;
  /* Inputs such as are to come, on the host, one for each of the model's, of the runner's shapes; none: 0. Where values
   * are stored in float16 the network is computed on them in float32 first, and LENSLET_UNSUPPORTED names the step that
   * goes beyond float16's range. Copied, and gone when lenslet_runner_create() returns; of no use to a plan alone. */
  const lenslet_tensor* calibration;
  size_t calibration_count;
  /* Whole inputs for models whose shapes depend on what an input holds (the target of a Reshape). A run still takes
   * such an input in its place, and refuses any other value. */
  const lenslet_named_tensor* input_values;
  size_t input_value_count;
} lenslet_plan_options;

/* The plan of a runner with these options, as JSON; allocates no memory and packs no weights for it. Free `*json` with
 * lenslet_text_free(). */
LENSLET_C_API lenslet_status lenslet_model_plan_json(lenslet_model* model, const lenslet_plan_options* options,
                                                     char** json);
LENSLET_C_API lenslet_status lenslet_text_free(char* text);

/* ---- Runners: one thread at a time, any number per model ---- */

typedef struct lenslet_runner lenslet_runner;

/* Plans, packs weights and allocates memory. Later runs allocate none, except where lenslet/runner.h says so. */
LENSLET_C_API lenslet_status lenslet_runner_create(lenslet_model* model, const lenslet_plan_options* options,
                                                   lenslet_runner** runner);
/* Frees the runner at once or, during a run, when that call returns. */
LENSLET_C_API lenslet_status lenslet_runner_free(lenslet_runner* runner);
LENSLET_C_API lenslet_status lenslet_runner_plan_json(lenslet_runner* runner, char** json);
/* Ports as planned; an output whose shape depends on computed data, as of the last run. */
LENSLET_C_API lenslet_status lenslet_runner_input(lenslet_runner* runner, size_t index, lenslet_port* port);
LENSLET_C_API lenslet_status lenslet_runner_output(lenslet_runner* runner, size_t index, lenslet_port* port);

/* Cancels runs from any thread. One object serves any number of runs, also concurrent ones, and cannot be reset: make
 * one for each request. */
typedef struct lenslet_cancel lenslet_cancel;
LENSLET_C_API lenslet_status lenslet_cancel_create(lenslet_cancel** cancel);
/* All runs that were given it, now or later, end with LENSLET_CANCELLED before their next step. On CUDA a network is
 * one launch, which cannot be cancelled once made. */
LENSLET_C_API lenslet_status lenslet_cancel_request(lenslet_cancel* cancel);
LENSLET_C_API lenslet_status lenslet_cancel_free(lenslet_cancel* cancel); /* allowed during runs, which continue */

typedef struct lenslet_run_options {
  size_t struct_size;
  lenslet_cancel* cancel; /* or NULL */
  /* A cudaStream_t. The run begins behind what is queued there so far, and is done when the call returns. NULL is
   * CUDA's legacy default stream where a tensor is LENSLET_ON_CUDA, and else none. */
  void* cuda_stream;
} lenslet_run_options;

/* Inputs in the model's order, with dtype and shape as planned. An input that no node reads may be omitted: a struct
 * that is 0 except struct_size, or none at the end. `outputs`: NULL and 0, or one destination for each of the model's
 * outputs; they must not overlap. The CPU reads and writes in place if `data` is 16-byte aligned, inputs and outputs do
 * not overlap, and the plan neither overwrites the input nor returns it; else it copies. CUDA always copies: pinned and
 * device memory directly, other memory through pinned staging. After an error the outputs' contents are undefined. */
LENSLET_C_API lenslet_status lenslet_runner_run(lenslet_runner* runner, const lenslet_tensor* inputs,
                                                size_t input_count, const lenslet_tensor* outputs, size_t output_count,
                                                const lenslet_run_options* options);
/* An output of the last run: at the destination given, or in the runner's memory until its next run or load_image.
 * LENSLET_INVALID_ARGUMENT if there was no run, it failed, or an image was loaded since. */
LENSLET_C_API lenslet_status lenslet_runner_result(lenslet_runner* runner, size_t index, lenslet_tensor* result);

/* 8-bit pixels, height x width x channels (1: gray, 3: RGB), rows without gaps. */
typedef struct lenslet_image {
  size_t struct_size;
  const uint8_t* pixels;
  size_t bytes; /* height * width * channels */
  int64_t height, width;
  int32_t channels;
  int32_t reserved;
} lenslet_image;

enum { LENSLET_RESIZE_SHORTER_SIDE = 0, LENSLET_RESIZE_STRETCH = 1, LENSLET_RESIZE_NONE = 2 };
enum { LENSLET_RESIZE_LONGER_SIDE = 3, LENSLET_RESIZE_FIT = 4 }; /* lenslet/image.h has the formulas */
enum { LENSLET_FILTER_BILINEAR = 0, LENSLET_FILTER_NEAREST = 1, LENSLET_FILTER_BICUBIC = 2 };
enum { LENSLET_CROP_CENTER = 0, LENSLET_CROP_NONE = 1 };
enum { LENSLET_PAD_NONE = 0, LENSLET_PAD_CENTER = 1, LENSLET_PAD_TOP_LEFT = 2 };
enum { LENSLET_CHANNELS_RGB = 0, LENSLET_CHANNELS_BGR = 1, LENSLET_CHANNELS_GRAY = 2 };

/* How an image becomes an input: resized as by Pillow, cropped and padded, (pixel * scale - mean[c]) / std[c]. */
typedef struct lenslet_image_spec {
  size_t struct_size;
  int64_t height, width; /* of the network's input; 0: as planned */
  int64_t resize_size;   /* of the shorter or longer side before the crop; 0: 256 */
  int32_t channels, resize, filter, crop;
  int32_t nhwc;         /* not 0: the model's input is [N,H,W,C] */
  int32_t no_antialias; /* not 0: two or four taps at any reduction */
  double scale;         /* 0: 1 */
  double mean[3];       /* in the order of `channels`; gray: the first */
  double std[3];        /* 0: 1 */
  int32_t pad;          /* where the picture lies in the padding */
  int32_t round_down;   /* not 0: sides of LONGER_SIDE and FIT are rounded down, else to nearest */
  uint8_t pad_color[3]; /* R, G, B of the photo, normalised as its pixels are */
  uint8_t reserved[5];
} lenslet_image_spec;

/* Writes image `index` of the batch directly into the memory of input `input`; for a CUDA device, 8-bit pixels are
 * uploaded. `spec` NULL: all defaults. Invalidates the results of the last run. */
LENSLET_C_API lenslet_status lenslet_runner_load_image(lenslet_runner* runner, size_t input, const lenslet_image* image,
                                                       const lenslet_image_spec* spec, int64_t index);
/* Runs on the images loaded since the last run; images of the batch that were not loaded are zeros. */
LENSLET_C_API lenslet_status lenslet_runner_run_loaded(lenslet_runner* runner, const lenslet_tensor* outputs,
                                                       size_t output_count, const lenslet_run_options* options);

/* ---- Observers ---- */

typedef struct lenslet_event_values lenslet_event_values;

/* A completed step. Valid during the call only. */
typedef struct lenslet_event {
  size_t struct_size; /* set by the library: check it before reading members that a later header added */
  const char* name;   /* of the node */
  const char* op;
  const char* algorithm; /* "" where there is no choice */
  double ms;             /* time of the step alone, on its device */
  int32_t step;
  int32_t reserved;
  size_t inputs, outputs; /* counts */
  lenslet_event_values* values;
} lenslet_event;

/* Return other than 0 to end the run with LENSLET_CANCELLED. */
typedef int32_t (*lenslet_observer)(void* context, const lenslet_event* event);
/* Sets a function called after each step of later runs, in the running thread; NULL removes it. Bands of steps then run
 * step by step; on CUDA every step's values are copied to the host. */
LENSLET_C_API lenslet_status lenslet_runner_set_observer(lenslet_runner* runner, lenslet_observer observer,
                                                         void* context);
/* Host memory, row-major; a copy if the step's format differs. `data` NULL and `rank` -1 for an omitted optional
 * input. */
LENSLET_C_API lenslet_status lenslet_event_input(lenslet_event_values* values, size_t index, lenslet_tensor* tensor);
LENSLET_C_API lenslet_status lenslet_event_output(lenslet_event_values* values, size_t index, lenslet_tensor* tensor);

#ifdef __cplusplus
}
#endif

#endif /* LENSLET_LENSLET_H_ */

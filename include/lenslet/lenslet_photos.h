/* lenslet's photos in C (C99): model cards, pictures, and the classes of many photos. A component of the package:
 * find_package(lenslet COMPONENTS photos), target lenslet::photos; pkg-config lenslet_photos. docs/c-api.md shows how.
 *
 * Errors, handles, structs, texts and threads are as lenslet.h has them. The functions are in an archive, and so of
 * this header's version. */
#ifndef LENSLET_LENSLET_PHOTOS_H_
#define LENSLET_LENSLET_PHOTOS_H_

#include "lenslet/lenslet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Pictures ---- */

/* A file, an encoded picture in memory (JPEG, PNG, BMP, PNM, WebP), or pixels. Read during the call only. */
typedef struct lenslet_picture {
  size_t struct_size;
  const char* file;     /* or NULL; "-" is standard input */
  const uint8_t* bytes; /* encoded, or pixels where `height` > 0 */
  size_t size;
  int64_t height, width; /* of pixels: 8 bits, rows without gaps; else 0 */
  int32_t channels;      /* of pixels: 1 or 3 */
  int32_t reserved;
} lenslet_picture;

typedef struct lenslet_pixels lenslet_pixels;
/* Decodes to upright 8-bit pixels: [H,W,1] gray or [H,W,3] RGB. `image` (for lenslet_runner_load_image()) views the
 * memory of `*pixels`, until that is freed. LENSLET_INVALID_IMAGE for damaged, truncated or refused files,
 * LENSLET_LIMIT for large ones, LENSLET_IO for unreadable ones. */
LENSLET_C_API lenslet_status lenslet_picture_decode(const lenslet_picture* picture, lenslet_pixels** pixels,
                                                    lenslet_image* image);
LENSLET_C_API lenslet_status lenslet_pixels_free(lenslet_pixels* pixels);

/* A rectangle of whole pixels. */
typedef struct lenslet_rect {
  int64_t top, left, height, width;
} lenslet_rect;

/* Covers a large photo with tiles, row by row. Neighbours share `overlap` pixels, the last ones more: they end at the
 * photo's edge. Writes the first `capacity` tiles and sets `*count` to the number of all. LENSLET_INVALID_ARGUMENT
 * unless 0 <= overlap < both sides of a tile, LENSLET_LIMIT for more than a million. */
LENSLET_C_API lenslet_status lenslet_image_tiles(int64_t height, int64_t width, int64_t tile_height, int64_t tile_width,
                                                 int64_t overlap, lenslet_rect* tiles, size_t capacity, size_t* count);

/* ---- Model cards (docs/model-card.md): immutable, used by any number of threads ---- */

typedef struct lenslet_card lenslet_card;

/* From a file, or, if `json` is not NULL, from that text, whose files lie beside `file`. LENSLET_INVALID_ARGUMENT names
 * the field at fault. */
LENSLET_C_API lenslet_status lenslet_card_read(const char* file, const char* json, lenslet_card** card);
/* The card that `lenslet classify` takes for the model, bound to it: beside `model_file`, else by checksum or name,
 * else assumed. `model_file` NULL: a model loaded from `bytes`, by its checksum. */
LENSLET_C_API lenslet_status lenslet_card_of(lenslet_model* model, const char* model_file, const void* bytes,
                                             size_t size, lenslet_card** card);
/* The same card with the fields filled in that it leaves to the model. LENSLET_INVALID_ARGUMENT if they do not fit. */
LENSLET_C_API lenslet_status lenslet_card_bound(lenslet_card* card, lenslet_model* model, lenslet_card** bound);
LENSLET_C_API lenslet_status lenslet_card_free(lenslet_card* card);
/* JSON: {"name", "input", "output", "labels_file" or null, "labels_assumed", "softmax" or null, "class_offset",
 * "height", "width", "channels", "nhwc", "preparation", "found_by" ("option", "beside the model", "checksum", "name";
 * "": assumed), "file" or null, "words" and "remark" (the command's about the card's origin and its output.softmax; "":
 * none), "boxes" (whether it says how outputs hold boxes), "json" (for lenslet_card_read(); without file names)}. */
LENSLET_C_API lenslet_status lenslet_card_describe(lenslet_card* card, char** json);
/* Makes the input of one picture: `count` floats, [C,H,W], or [H,W,C] for an nhwc card. A JPEG is decoded reduced where
 * the card's resize.draft allows it. Errors as of lenslet_picture_decode(). */
LENSLET_C_API lenslet_status lenslet_card_prepare(lenslet_card* card, const lenslet_picture* picture, float* input,
                                                  size_t count);
/* Maps `count` boxes [left, top, right, bottom] from pixels of the card's input to pixels of the photo, of which `part`
 * was prepared (NULL: all of it). `in_photo` may be `in_input`. Boxes are not clipped to the photo. Each number is
 * mapped alone: NaN stays NaN. LENSLET_INVALID_ARGUMENT unless `part` lies inside the photo and the card can prepare
 * it. */
LENSLET_C_API lenslet_status lenslet_card_photo_boxes(lenslet_card* card, int64_t height, int64_t width,
                                                      const lenslet_rect* part, const float* in_input, size_t count,
                                                      float* in_photo);
/* The best classes of one image's output, best first: at most `capacity` numbers and probabilities (scores, if the card
 * and the values are such). Sets `*found` to their number. The card must be bound. */
LENSLET_C_API lenslet_status lenslet_card_top(lenslet_card* card, const float* scores, size_t count, size_t capacity,
                                              int64_t* classes, float* probs, size_t* found);

/* One class name a line, as a JSON array. LENSLET_INVALID_ARGUMENT unless there are `classes`, if not negative. */
LENSLET_C_API lenslet_status lenslet_labels_read(const char* file, int64_t classes, char** json);
/* Path of the default model. LENSLET_IO until it was fetched. */
LENSLET_C_API lenslet_status lenslet_default_model(char** file);

/* ---- Objects in a photo: lenslet::Detector (lenslet/detector.h) ---- */

/* A card with output.boxes (docs/model-card.md), its model and labels, planned for one photo or tile at a time. A call
 * of a second thread waits. */
typedef struct lenslet_detector lenslet_detector;

typedef struct lenslet_detection {
  double left, top, right, bottom; /* pixels of the photo, inside it */
  double score;
  int64_t index;     /* the class */
  const char* label; /* "" without labels; valid until lenslet_detector_free() */
} lenslet_detection;

/* `labels_file` NULL: the card's, if it names one. LENSLET_INVALID_ARGUMENT for a card without boxes, and for a card or
 * labels that do not fit the model, LENSLET_UNSUPPORTED for outputs that are not as the card says; errors of
 * lenslet_runner_create(). */
LENSLET_C_API lenslet_status lenslet_detector_create(lenslet_model* model, lenslet_card* card, const char* labels_file,
                                                     const lenslet_plan_options* options, lenslet_detector** detector);
LENSLET_C_API lenslet_status lenslet_detector_free(lenslet_detector* detector);
/* JSON: {"classes" (which labels must match; -1 where the network suppresses or a run gives the number), "device"}. */
LENSLET_C_API lenslet_status lenslet_detector_describe(lenslet_detector* detector, char** json);
/* Finds objects with scores above `threshold` (usual: 0.25); of two boxes of a class whose intersection over union is
 * more than `iou` (0 to 1; usual: 0.45) the better one stays. `tile_overlap`: pixels that tiles of the input's size
 * share, which cover the photo; -1: the photo is taken whole. Writes the best ones, at most `capacity`, best first, and
 * sets `*found` to their number. Errors of lenslet_picture_decode() and lenslet_image_tiles();
 * LENSLET_INVALID_ARGUMENT for a photo that the card cannot prepare. */
LENSLET_C_API lenslet_status lenslet_detector_detect(lenslet_detector* detector, const lenslet_picture* picture,
                                                     double threshold, double iou, int64_t tile_overlap,
                                                     lenslet_detection* detections, size_t capacity, size_t* found);

/* ---- Many photos: lenslet::PhotoClassifier (lenslet/photos.h) ---- */

/* Reads, decodes, prepares and runs photos in threads of its own, on every core and GPU. One thread at a time offers
 * and takes; a call of a second one is LENSLET_INVALID_ARGUMENT, as is any call in a fork()ed child. */
typedef struct lenslet_photos lenslet_photos;

typedef struct lenslet_photo_options {
  size_t struct_size;
  const char* const* devices; /* "auto", "cpu", "cuda:N", or "all"; none: "auto" */
  size_t device_count;
  const char* labels; /* a file of class names; NULL: the card's */
  int64_t batch;      /* photos in a run; 0: 1 on the CPU, 32 on a GPU. A batch fixed by the model is kept */
  int32_t threads;    /* for reading, decoding and CPU devices, in all; 0: one per core of this process */
  int32_t unordered;  /* 1: results as they are ready; 0: in the order of the photos */
  uint64_t top;       /* classes of each photo; 0: 5 */
  uint64_t count;     /* photos that will come, if known: a few need fewer threads. 0: unknown */
  const lenslet_plan_options* plan; /* the rest, or NULL; its device, batch and threads are not used */
  int32_t gpu_decode; /* 1: nvJPEG decodes JPEGs on the GPU that runs them (docs/photos.md); 0: the CPU decodes */
  int32_t reserved;
} lenslet_photo_options;

/* Copied by lenslet_photos_offer(). */
typedef struct lenslet_photo {
  size_t struct_size;
  const char* name;  /* a file, or a name for `bytes` in results and messages */
  const void* bytes; /* the encoded photo; NULL: the file `name` is read */
  size_t size;
} lenslet_photo;

typedef struct lenslet_photo_class {
  int64_t index;
  const char* label; /* "" without labels */
  float prob;
  int32_t reserved;
} lenslet_photo_class;

/* Pointers are valid until the next lenslet_photos_take() or lenslet_photos_free(). */
typedef struct lenslet_photo_result {
  size_t struct_size;
  uint64_t index; /* in the order of the photos, from 0 */
  const char* name;
  const char* device;                 /* "cpu", "cuda:0"; "" after an error */
  const lenslet_photo_class* classes; /* best first */
  size_t class_count;
  const char* error;     /* one line; "" without an error */
  lenslet_status status; /* kind of the error: the photo is missing, damaged or refused. Others are not affected */
  int32_t decoded_on_gpu;
  double decode_ms, prepare_ms;
  double run_ms; /* the network's time, divided by the photos of its batch */
} lenslet_photo_result;

/* Plans a runner for each device. LENSLET_INVALID_ARGUMENT for an unknown device and for a card or labels that do not
 * fit the model, LENSLET_UNSUPPORTED for a network that does not classify; errors of lenslet_runner_create(). */
LENSLET_C_API lenslet_status lenslet_photos_create(lenslet_model* model, lenslet_card* card,
                                                   const lenslet_photo_options* options, lenslet_photos** photos);
/* Abandons photos whose results were not taken, and waits for those being decoded or run. */
LENSLET_C_API lenslet_status lenslet_photos_free(lenslet_photos* photos);
/* JSON: {"devices": [{"device", "runners", "threads" (of each runner), "batch"}], "decoders" (threads that decode),
 * "gpu_decoder" (nvJPEG and what it runs on; "": none), "classes" (-1: a run gives the number)}. */
LENSLET_C_API lenslet_status lenslet_photos_describe(lenslet_photos* photos, char** json);
/* The most photos whose results have not been taken. */
LENSLET_C_API lenslet_status lenslet_photos_capacity(lenslet_photos* photos, size_t* capacity);
/* Queues a photo and sets `*accepted` to 1; 0 if lenslet_photos_capacity() photos are under way. */
LENSLET_C_API lenslet_status lenslet_photos_offer(lenslet_photos* photos, const lenslet_photo* photo,
                                                  int32_t* accepted);
/* The next result; `*taken` is 1. With `wait` 0 `*taken` is 0 if it is not ready; with `wait` 1 the call waits, and
 * `*taken` is 0 if no photo is under way. A status other than LENSLET_OK is no photo's (a device failed, memory is
 * short, only a run showed that the network does not classify): every later call then fails, too. */
LENSLET_C_API lenslet_status lenslet_photos_take(lenslet_photos* photos, int32_t wait, lenslet_photo_result* result,
                                                 int32_t* taken);

#ifdef __cplusplus
}
#endif

#endif /* LENSLET_LENSLET_PHOTOS_H_ */

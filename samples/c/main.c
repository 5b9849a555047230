/* classify MODEL.onnx PHOTO [LABELS.txt]: classifies a photo with EfficientNet-Lite0, using lenslet's C interface. */
#include <lenslet/lenslet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STB_IMAGE_IMPLEMENTATION
#define STBI_MAX_DIMENSIONS 16384 /* checked before anything is allocated */
#include <stb_image.h>

enum { top = 5 };

static int failed(const char* what) {
  fprintf(stderr, "classify: %s: %s\n", what, lenslet_last_error());
  return 1;
}

/* Line `row` of the file, or its number. */
static void print_label(const char* file, size_t row) {
  char line[256];
  FILE* labels = file == NULL ? NULL : fopen(file, "r");
  size_t at = 0;
  int found = 0;
  while (labels != NULL && !found && fgets(line, (int)sizeof line, labels) != NULL) found = at++ == row;
  if (labels != NULL) fclose(labels);
  line[strcspn(found ? line : "", "\r\n")] = '\0';
  if (found)
    printf("%s\n", line);
  else
    printf("%u\n", (unsigned)row);
}

/* The likeliest classes; scores are logits, and are gone afterwards. */
static void print_top(float* scores, size_t count, const char* labels) {
  double sum = 0, best = -HUGE_VAL;
  size_t i = 0;
  int rank = 0;
  for (i = 0; i < count; ++i) best = fmax(best, scores[i]);
  for (i = 0; i < count; ++i) sum += exp(scores[i] - best);
  for (rank = 0; rank < top && (size_t)rank < count; ++rank) {
    size_t first = 0;
    for (i = 1; i < count; ++i)
      if (scores[i] > scores[first]) first = i;
    printf("%5.1f%%  ", 100 * exp(scores[first] - best) / sum);
    print_label(labels, first);
    scores[first] = -HUGE_VALF;
  }
}

/* Resources that main() frees at its end, whatever their state. */
struct app {
  stbi_uc* pixels;
  lenslet_model* model;   /* immutable, shared by threads */
  lenslet_runner* runner; /* one per thread */
};

static int classify(struct app* app, const char* model, const char* photo, const char* labels) {
  lenslet_image image = {.struct_size = sizeof image, .channels = 3};
  /* How EfficientNet-Lite0 was trained: shorter side to 256, the centre of it, (pixel - 127) / 128. */
  lenslet_image_spec spec = {
      .struct_size = sizeof spec, .resize_size = 256, .mean = {127, 127, 127}, .std = {128, 128, 128}};
  lenslet_tensor scores = {.struct_size = sizeof scores};
  int width = 0, height = 0, channels = 0;

  if (lenslet_negotiate(LENSLET_API_MAJOR, LENSLET_API_MINOR) != LENSLET_OK) return failed("library");
  if (lenslet_model_load(model, NULL, &app->model) != LENSLET_OK) return failed("model");
  if (lenslet_runner_create(app->model, NULL, &app->runner) != LENSLET_OK) return failed("model");

  app->pixels = stbi_load(photo, &width, &height, &channels, 3);
  if (app->pixels == NULL) return fprintf(stderr, "classify: %s: %s\n", photo, stbi_failure_reason()), 1;
  image.pixels = app->pixels;
  image.width = width;
  image.height = height;
  image.bytes = (size_t)width * (size_t)height * 3;

  if (lenslet_runner_load_image(app->runner, 0, &image, &spec, 0) != LENSLET_OK) return failed(photo);
  if (lenslet_runner_run_loaded(app->runner, NULL, 0, NULL) != LENSLET_OK) return failed("run");
  if (lenslet_runner_result(app->runner, 0, &scores) != LENSLET_OK) return failed("result");
  if (scores.dtype != LENSLET_F32) return fprintf(stderr, "classify: %s gives no float32\n", model), 1;
  print_top(scores.data, scores.bytes / sizeof(float), labels); /* the runner's memory, ours until its next run */
  return 0;
}

int main(int argc, char** argv) {
  struct app app = {NULL, NULL, NULL};
  int status = 2;
  if (argc < 3)
    fprintf(stderr, "usage: classify MODEL.onnx PHOTO [LABELS.txt]\n");
  else
    status = classify(&app, argv[1], argv[2], argc > 3 ? argv[3] : NULL);
  lenslet_runner_free(app.runner);
  lenslet_model_free(app.model);
  stbi_image_free(app.pixels);
  return status;
}

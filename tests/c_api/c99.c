/* Uses lenslet.h from strict C99 and runs the model in argv[1], rgb.onnx of tests/install/tiny_model.py. */
#include <lenslet/lenslet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(lenslet_status status, const char* what) {
  if (status == LENSLET_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, lenslet_status_name(status), lenslet_last_error());
  exit(1);
}

static int32_t count_steps(void* context, const lenslet_event* event) {
  lenslet_tensor value = {.struct_size = sizeof value};
  must(lenslet_event_output(event->values, 0, &value), "event_output");
  if (value.data == NULL || event->op[0] == '\0') exit(1);
  ++*(int*)context;
  return 0;
}

int main(int argc, char** argv) {
  enum { side = 224, pixels = side * side };
  lenslet_plan_options options = {.struct_size = sizeof options};
  lenslet_tensor input = {.struct_size = sizeof input}, output = {.struct_size = sizeof output};
  lenslet_layer_algorithm layer = {.struct_size = sizeof layer, .layer = "gemm"}; /* the rule's own choice */
  const char* const passes[] = {"fold_pad"};
  lenslet_model* model = NULL;
  lenslet_runner* runner = NULL;
  float scores[3] = {0, 0, 0};
  float* image = NULL;
  char* json = NULL;
  int steps = 0, i = 0;
  if (argc < 2) return 2;
  must(lenslet_negotiate(LENSLET_API_MAJOR, LENSLET_API_MINOR), "negotiate");
  must(lenslet_model_load(argv[1], NULL, &model), "load");
  options.device = "cpu";
  options.threads = 1;
  options.layer_algorithms = &layer;
  options.layer_algorithm_count = 1;
  options.disabled_passes = passes;
  options.disabled_pass_count = 1;
  must(lenslet_runner_create(model, &options, &runner), "create");
  must(lenslet_model_free(model), "model_free");

  image = calloc(3 * pixels, sizeof *image);
  if (image == NULL) return 1;
  for (i = 0; i < pixels; ++i) image[pixels + i] = 1; /* green */
  input.data = image;
  input.bytes = 3 * pixels * sizeof *image;
  input.dtype = LENSLET_F32;
  input.rank = 4;
  input.dims[0] = 1;
  input.dims[1] = 3;
  input.dims[2] = input.dims[3] = side;
  output.data = scores;
  output.bytes = sizeof scores;
  output.dtype = LENSLET_F32;
  output.rank = 2;
  output.dims[0] = 1;
  output.dims[1] = 3;
  must(lenslet_runner_set_observer(runner, count_steps, &steps), "set_observer");
  must(lenslet_runner_run(runner, &input, 1, &output, 1, NULL), "run");
  must(lenslet_runner_plan_json(runner, &json), "plan_json");
  printf("%d steps, scores %g %g %g, plan of %s\n", steps, (double)scores[0], (double)scores[1], (double)scores[2],
         strncmp(json, "{\"device\":\"cpu\"", 15) == 0 ? "the cpu" : json);
  must(lenslet_text_free(json), "text_free");
  must(lenslet_runner_free(runner), "runner_free");
  free(image);
  return lenslet_runner_free(runner) == LENSLET_INVALID_ARGUMENT ? 0 : 1;
}

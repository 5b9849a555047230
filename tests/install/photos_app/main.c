/* in_c MODEL.onnx LABELS.txt PHOTO...: the card's file, and each photo's best class or error. */
#include <lenslet/lenslet_photos.h>
#include <stdio.h>
#include <string.h>

static int print_card(lenslet_card* card) {
  char* json = NULL;
  const char* file = NULL;
  if (lenslet_card_describe(card, &json) != LENSLET_OK) return 1;
  file = strstr(json, "\"file\":\"");
  if (file != NULL) printf("card %.*s\n", (int)strcspn(file + 8, "\""), file + 8);
  return lenslet_text_free(json) != LENSLET_OK;
}

static int classify(lenslet_photos* photos, char** files, int count) {
  int next = 0;
  for (;;) {
    lenslet_photo_result result = {.struct_size = sizeof result};
    int32_t accepted = 1, taken = 0;
    while (next < count && accepted) {
      lenslet_photo photo = {.struct_size = sizeof photo, .name = files[next]};
      if (lenslet_photos_offer(photos, &photo, &accepted) != LENSLET_OK) return 1;
      next += accepted;
    }
    if (lenslet_photos_take(photos, 1, &result, &taken) != LENSLET_OK) return 1;
    if (!taken) return 0;
    printf("%s: %s\n", result.name, result.status == LENSLET_OK ? result.classes[0].label : result.error);
  }
}

int main(int argc, char** argv) {
  const char* device = "cpu";
  lenslet_model* model = NULL;
  lenslet_card* card = NULL;
  lenslet_photos* photos = NULL;
  lenslet_photo_options options = {.struct_size = sizeof options, .devices = &device, .device_count = 1};
  int failed = 0;
  if (argc < 4) return 2;
  options.labels = argv[2];
  failed = lenslet_negotiate(LENSLET_API_MAJOR, LENSLET_API_MINOR) != LENSLET_OK ||
           lenslet_model_load(argv[1], NULL, &model) != LENSLET_OK ||
           lenslet_card_of(model, argv[1], NULL, 0, &card) != LENSLET_OK || print_card(card) ||
           lenslet_photos_create(model, card, &options, &photos) != LENSLET_OK || classify(photos, argv + 3, argc - 3);
  if (failed) fprintf(stderr, "%s\n", lenslet_last_error());
  lenslet_photos_free(photos);
  lenslet_card_free(card);
  lenslet_model_free(model);
  return failed;
}

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "c_api/structs.h"
#include "lenslet/c_api.h"
#include "lenslet/classifier.h"
#include "lenslet/image.h"
#include "photos/c_api/card.h"
#include "photos/c_api/picture.h"
#include "photos/cards/write_card.h"

using namespace lenslet;
using namespace lenslet::c_api;

namespace {

using Json = nlohmann::ordered_json;

// What is no UTF-8 in names becomes U+FFFD.
char* text_of(const Json& json) { return text_for_app(json.dump(-1, ' ', false, Json::error_handler_t::replace)); }

/// With what it leaves to the model filled in.
std::shared_ptr<CardObject> bound_object(const CardObject& object, const Model& model) {
  const BoundCard bound = bind_card(object.card, model);
  return std::make_shared<CardObject>(CardObject{bound_to(model, object.card), object.found_by, object.file,
                                                 object.words, assumed_labels(object.card, bound), bound.remark});
}

Json describe(const CardObject& object) {
  const Card& card = object.card;
  const auto& labels = card.labels ? card.labels : object.assumed_labels;
  const ImageSpec& spec = card.spec;
  return {{"name", card.name},
          {"input", card.input},
          {"output", card.output},
          {"labels_file", labels ? Json(labels->string()) : Json()},
          {"labels_assumed", object.assumed_labels.has_value()},
          {"softmax", card.softmax ? Json(*card.softmax) : Json()},
          {"class_offset", card.class_offset},
          {"height", spec.height},
          {"width", spec.width},
          {"channels", spec.channels == ImageSpec::Channels::gray ? 1 : 3},
          {"nhwc", spec.nhwc},
          {"preparation", describe(card)},
          {"found_by", to_string(object.found_by)},
          {"file", object.file.empty() ? Json() : Json(object.file.string())},
          {"words", object.words},
          {"remark", object.remark},
          {"boxes", card.boxes.has_value()},
          {"json", photos::card_json(card)}};
}

}  // namespace

void lenslet::c_api::prepare(const Card& card, const Picture& picture, float* input, std::size_t count) {
  const ImageSpec& spec = card.spec;
  const std::int64_t channels = spec.channels == ImageSpec::Channels::gray ? 1 : 3;
  const Shape shape =
      spec.nhwc ? Shape{1, spec.height, spec.width, channels} : Shape{1, channels, spec.height, spec.width};
  if (count != static_cast<std::size_t>(shape.elems()))
    throw Error(ErrorKind::invalid_argument, fmt::format("room for {} numbers where {} come", count, shape.elems()));
  check_given(input, "input");
  Tensor tensor = Tensor::view(DType::f32, shape, input);
  to_input(picture.view(), spec, tensor);
}

lenslet_status lenslet_card_read(const char* file, const char* json, lenslet_card** card) {
  return guarded([&] {
    check_given(card, "card");
    *card = nullptr;
    check_given(file, "file");
    const bool from_file = json == nullptr;
    *card = Cards::add(
        std::make_shared<CardObject>(CardObject{from_file ? read_card(file) : parse_card(json, file), FoundBy::option,
                                                from_file ? std::filesystem::path(file) : std::filesystem::path()}));
  });
}

lenslet_status lenslet_card_of(lenslet_model* model, const char* model_file, const void* bytes, size_t size,
                               lenslet_card** card) {
  return guarded([&] {
    check_given(card, "card");
    *card = nullptr;
    const Model of = model_of(model);
    if (model_file == nullptr) check_given(bytes, "the model's bytes");
    const std::filesystem::path file = model_file == nullptr ? "" : model_file;
    const FoundCard found =
        model_file != nullptr ? card_of(of, file) : card_of(of, {static_cast<const std::byte*>(bytes), size});
    *card = Cards::add(bound_object({found.card, found.found_by, found.file, source_words(found, file)}, of));
  });
}

lenslet_status lenslet_card_bound(lenslet_card* card, lenslet_model* model, lenslet_card** bound) {
  return guarded([&] {
    check_given(bound, "bound");
    *bound = nullptr;
    const auto object = Cards::get(card);
    *bound = Cards::add(bound_object(*object, model_of(model)));
  });
}

lenslet_status lenslet_card_free(lenslet_card* card) {
  return guarded([&] { Cards::free(card); });
}

lenslet_status lenslet_card_describe(lenslet_card* card, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    *json = text_of(describe(*Cards::get(card)));
  });
}

lenslet_status lenslet_card_prepare(lenslet_card* card, const lenslet_picture* picture, float* input, size_t count) {
  return guarded([&] {
    const auto object = Cards::get(card);
    prepare(object->card, picture_of(picture, &object->card), input, count);
  });
}

lenslet_status lenslet_card_photo_boxes(lenslet_card* card, int64_t height, int64_t width, const lenslet_rect* part,
                                        const float* in_input, size_t count, float* in_photo) {
  return guarded([&] {
    const auto object = Cards::get(card);
    const Rect of =
        part == nullptr ? Rect{0, 0, height, width} : Rect{part->top, part->left, part->height, part->width};
    if (!is_inside(of, height, width))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} x {} pixels at x = {}, y = {} are not inside a photo of {} x {}", of.width, of.height,
                              of.left, of.top, width, height));
    // Refuses what the card cannot prepare, without boxes, too.
    static_cast<void>(photo_box(object->card.spec, of, {}));
    if (count == 0) return;
    check_given(in_input, "in_input");
    check_given(in_photo, "in_photo");
    for (const float* const end = in_input + 4 * count; in_input != end; in_input += 4, in_photo += 4) {
      const Box box = photo_box(object->card.spec, of, {in_input[0], in_input[1], in_input[2], in_input[3]});
      in_photo[0] = static_cast<float>(box.left);
      in_photo[1] = static_cast<float>(box.top);
      in_photo[2] = static_cast<float>(box.right);
      in_photo[3] = static_cast<float>(box.bottom);
    }
  });
}

lenslet_status lenslet_image_tiles(int64_t height, int64_t width, int64_t tile_height, int64_t tile_width,
                                   int64_t overlap, lenslet_rect* tiles, size_t capacity, size_t* count) {
  return guarded([&] {
    check_given(count, "count");
    *count = 0;
    if (capacity > 0) check_given(tiles, "tiles");
    const std::vector<Rect> all = image_tiles(height, width, tile_height, tile_width, overlap);
    for (std::size_t i = 0; i < std::min(capacity, all.size()); ++i)
      tiles[i] = {all[i].top, all[i].left, all[i].height, all[i].width};
    *count = all.size();
  });
}

lenslet_status lenslet_card_top(lenslet_card* card, const float* scores, size_t count, size_t capacity,
                                int64_t* classes, float* probs, size_t* found) {
  return guarded([&] {
    const auto object = Cards::get(card);
    check_given(found, "found");
    check_given(scores, "scores");
    if (capacity > 0) check_given(classes, "classes");
    if (capacity > 0) check_given(probs, "probs");
    if (count == 0) throw Error(ErrorKind::invalid_argument, "no scores");
    if (object->card.class_offset >= static_cast<std::int64_t>(count))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("the card's output.class_offset is {}, and there are {} scores",
                              object->card.class_offset, count));
    *found = 0;
    for (const ClassResult& result : best_classes(object->card, {scores, scores + count}, capacity)) {
      classes[*found] = result.index;
      probs[(*found)++] = result.prob;
    }
  });
}

lenslet_status lenslet_labels_read(const char* file, int64_t classes, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    check_given(file, "file");
    *json = text_of(read_labels(file, classes));
  });
}

lenslet_status lenslet_default_model(char** file) {
  return guarded([&] {
    check_given(file, "file");
    *file = nullptr;
    *file = text_for_app(default_model().string());
  });
}

#include "photos/c_api/detector.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "c_api/structs.h"
#include "lenslet/c_api.h"
#include "photos/c_api/card.h"
#include "photos/c_api/picture.h"

namespace lenslet::c_api {

namespace {

struct DetectorObject {
  using Handle = lenslet_detector;
  static constexpr auto handle_name = "lenslet_detector";

  std::mutex mutex;
  Detector detector;
};

using Detectors = Handles<DetectorObject>;

}  // namespace

DetectOptions detect_options_of(double threshold, double iou, const lenslet_detection* detections, std::size_t capacity,
                                std::size_t* found) {
  check_given(found, "found");
  *found = 0;
  if (capacity > 0) check_given(detections, "detections");
  if (std::isnan(threshold)) throw Error(ErrorKind::invalid_argument, "threshold is NaN");
  if (!(iou >= 0 && iou <= 1))
    throw Error(ErrorKind::invalid_argument, fmt::format("iou is {}; it can be 0 to 1", iou));
  return {.threshold = threshold, .iou = iou, .top = capacity};
}

void give_detections(const std::vector<Detection>& found, const std::vector<std::string>& labels,
                     lenslet_detection* detections, std::size_t* count) {
  for (const auto& [box, index, label, score] : found)
    detections[(*count)++] = {box.left,
                              box.top,
                              box.right,
                              box.bottom,
                              score,
                              index,
                              label.empty() ? "" : labels[static_cast<std::size_t>(index)].c_str()};
}

}  // namespace lenslet::c_api

using namespace lenslet;
using namespace lenslet::c_api;

lenslet_status lenslet_detector_create(lenslet_model* model, lenslet_card* card, const char* labels_file,
                                       const lenslet_plan_options* options, lenslet_detector** detector) {
  return guarded([&] {
    check_given(detector, "detector");
    *detector = nullptr;
    std::optional<std::filesystem::path> labels;
    if (labels_file != nullptr) labels = labels_file;
    *detector = Detectors::add(std::shared_ptr<DetectorObject>(
        new DetectorObject{{}, {model_of(model), Cards::get(card)->card, labels, plan_options_of(options)}}));
  });
}

lenslet_status lenslet_detector_free(lenslet_detector* detector) {
  return guarded([&] { Detectors::free(detector); });
}

lenslet_status lenslet_detector_describe(lenslet_detector* detector, char** json) {
  return guarded([&] {
    check_given(json, "json");
    *json = nullptr;
    const auto object = Detectors::get(detector);
    const nlohmann::ordered_json made{{"classes", object->detector.classes()},
                                      {"device", object->detector.plan().device}};
    *json = text_for_app(made.dump());
  });
}

lenslet_status lenslet_detector_detect(lenslet_detector* detector, const lenslet_picture* picture, double threshold,
                                       double iou, int64_t tile_overlap, lenslet_detection* detections, size_t capacity,
                                       size_t* found) {
  return guarded([&] {
    const auto object = Detectors::get(detector);
    DetectOptions options = detect_options_of(threshold, iou, detections, capacity, found);
    if (tile_overlap != -1) options.tile_overlap = tile_overlap;
    const Picture pixels = picture_of(picture);  // whole: boxes are in the photo's own pixels
    const std::lock_guard lock(object->mutex);
    give_detections(object->detector.detect(pixels, options), object->detector.labels(), detections, found);
  });
}

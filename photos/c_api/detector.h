#pragma once
// Detections in C.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lenslet/detector.h"
#include "lenslet/lenslet_photos.h"

namespace lenslet::c_api {

/// Error(invalid_argument) for a threshold that is no number, an `iou` outside 0 to 1, and null.
DetectOptions detect_options_of(double threshold, double iou, const lenslet_detection* detections, std::size_t capacity,
                                std::size_t* found);
/// With labels that point into `labels`.
void give_detections(const std::vector<Detection>& found, const std::vector<std::string>& labels,
                     lenslet_detection* detections, std::size_t* count);

}  // namespace lenslet::c_api

#pragma once
// Finds objects in photos: the core of `lenslet detect`, without reading files and printing.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lenslet/card.h"
#include "lenslet/image.h"
#include "lenslet/model.h"
#include "lenslet/picture.h"
#include "lenslet/tensor.h"

namespace lenslet {

struct Detection {
  Box box;                 ///< in pixels of the photo
  std::int64_t index = 0;  ///< the class: as the output numbers it - class_offset
  std::string label;       ///< "" without labels
  double score = 0;
};

struct DetectOptions {
  double threshold = 0.25;                     ///< scores are above this
  double iou = 0.45;                           ///< of two boxes of a class that overlap by more, the better one stays
  std::size_t top = 100;                       ///< boxes at most, the best ones
  std::optional<std::int64_t> tile_overlap{};  ///< in pixels: the photo is covered with tiles of the input's size
};

/// Non-maximum suppression of each class, in double: of boxes whose intersection over union is more than `iou` the one
/// with the highest score stays, of equal ones the first. Indices of the boxes that stay, best first, `most` of them.
std::vector<std::size_t> suppress(std::span<const Detection> found, double iou, std::size_t most);

/// What Detector::detect() finds in a photo that was prepared whole, without labels: for outputs of your own Runner, in
/// the order of Model::outputs(), of one image. Its `tile_overlap` is not used. Errors as of Detector, and
/// Error(invalid_argument) for another number of outputs.
std::vector<Detection> read_boxes(const Model& model, const Card& card, std::span<const Tensor> outputs,
                                  std::int64_t height, std::int64_t width, const DetectOptions& options = {});

/// A model, its card and its labels. Not thread-safe.
class Detector {
 public:
  /// The best ones of a tile, and of all tiles together, that are compared with each other.
  static constexpr std::size_t most_candidates = 30'000;

  /// Runs one photo or tile at a time, whatever `plan.batch` is. Error(invalid_argument) for a card without boxes and
  /// as of bind_card and read_labels, Error(unsupported) for outputs that are not as the card says, and errors of
  /// Runner.
  Detector(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels, PlanOptions plan);
  ~Detector();
  Detector(Detector&&) noexcept;
  Detector& operator=(Detector&&) noexcept;

  const PlanInfo& plan() const;
  /// The number of classes, which labels must match. -1 where the graph suppresses or only a run gives it.
  std::int64_t classes() const;
  const std::vector<std::string>& labels() const;  ///< empty without labels
  /// Objects, best first. Boxes are clipped to the photo; those without area, and boxes and scores that are no finite
  /// numbers, are left out. Of yolov8 and yolov5 each box has its best class, of boxes_scores every class above the
  /// threshold. Boxes of a graph that has suppressed already are suppressed again only over several tiles.
  /// Error(invalid_argument) for a photo that the card cannot prepare, and for an overlap that image_tiles() refuses.
  /// Error(unsupported) for outputs whose shape only a run gives.
  std::vector<Detection> detect(const Picture& picture, const DetectOptions& options = {});

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace lenslet

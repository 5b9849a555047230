#include "lenslet/detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lenslet/error.h"
#include "photos/cards/image_runner.h"
#include "photos/dtype_convert.h"

namespace lenslet {

using namespace photos;

namespace {

using Form = BoxOutput::Form;

double intersection_over_union(const Box& a, const Box& b) {
  const auto area = [](const Box& box) { return (box.right - box.left) * (box.bottom - box.top); };
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  return width * height / (area(a) + area(b) - width * height);
}

/// Stable: equal scores stay in their order.
void keep_best(std::vector<Detection>& found, std::size_t most) {
  std::ranges::stable_sort(found, std::ranges::greater(), &Detection::score);
  if (found.size() > most) found.erase(found.begin() + static_cast<std::ptrdiff_t>(most), found.end());
}

/// Where an output's numbers are, by boxes and fields: coordinates, or scores of classes.
struct Table {
  std::size_t port = 0;
  std::int64_t first = 0, box_step = 0, field_step = 1;  // in elements; box_step 0: no such numbers
};

struct Layout {
  std::int64_t count = 0, classes = 0;  // boxes, and scores of each
  Table boxes, scores, objectness{}, labels{};
};

}  // namespace

std::vector<std::size_t> suppress(std::span<const Detection> found, double iou, std::size_t most) {
  std::vector<std::size_t> order(found.size()), kept;
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return found[i].score; });
  for (const std::size_t i : order) {
    if (kept.size() >= most) break;
    const auto hides = [&](std::size_t better) {
      return found[better].index == found[i].index && intersection_over_union(found[better].box, found[i].box) > iou;
    };
    if (std::ranges::none_of(kept, hides)) kept.push_back(i);
  }
  return kept;
}

namespace {

/// Reads boxes from one image's outputs.
class BoxReader {
 public:
  /// Error(invalid_argument) for a card without boxes, Error(unsupported) for outputs that are not floats.
  BoxReader(const Model& model, const Card& card)
      : model_(model), card_(checked(card)), bound_(bind_card(card, model)) {
    for (const std::size_t port : {bound_.boxes, bound_.output}) check_float(model, port);
  }

  const Card& card() const { return card_; }

  /// `shape_of(port)` is an output's shape.
  template <typename ShapeOf>
  Layout layout_of(const ShapeOf& shape_of) const {
    // The last dimensions, one or two; {-1, -1} for an output of others.
    const auto sizes = [&](std::size_t port, int rank) {
      const Shape shape = shape_of(port);
      const int ones = shape.rank() == rank + 1 && shape[0] == 1 ? 1 : 0;
      using Sizes = std::array<std::int64_t, 2>;
      return shape.rank() != rank + ones ? Sizes{-1, -1} : Sizes{shape[ones], shape[shape.rank() - 1]};
    };
    const auto check = [&](bool fits, std::size_t port, const char* wanted) {
      if (!fits) mismatch(port, shape_of(port), wanted);
    };
    const Form form = card_.boxes->form;
    const bool labels = form == Form::boxes_labels_scores;
    const std::size_t output = bound_.output;
    const auto [rows, columns] = sizes(output, labels ? 1 : 2);
    Layout layout{rows, columns, {bound_.boxes, 0, 4}, {output, 0, columns}};
    if (form == Form::yolov8) {
      check(rows > 4, output, "[1,4+classes,N]");
      layout = {columns, rows - 4, {output, 0, 1, columns}, {output, 4 * columns, 1, columns}};
    } else if (form == Form::yolov5) {
      check(columns > 5, output, "[1,N,5+classes]");
      layout = {rows, columns - 5, {output, 0, columns}, {output, 5, columns}, {output, 4, columns}};
    } else if (form == Form::end_to_end) {
      check(columns == 6, output, "[1,N,6]");
      layout = {rows, 1, {output, 0, 6}, {output, 4, 6}, {}, {output, 5, 6}};
    } else {
      const auto [boxes, coordinates] = sizes(bound_.boxes, 2);
      check(coordinates == 4, bound_.boxes, labels ? "[N,4]" : "[1,N,4]");
      check(rows == boxes, output, labels ? "[N], as many as boxes" : "[1,N,classes], as many as boxes");
      if (labels) check(sizes(bound_.labels, 1)[0] == boxes, bound_.labels, "[N], as many as boxes");
      if (labels) layout = {rows, 1, layout.boxes, {output, 0, 1}, {}, {bound_.labels, 0, 1}};
    }
    check(card_.boxes->is_suppressed() || layout.classes > card_.class_offset, output,
          "more classes than output.class_offset");
    return layout;
  }

  /// Appends what `outputs` hold to `found`.
  void read(std::span<const Tensor> outputs, const Picture& picture, const Rect& tile, double threshold,
            std::vector<Detection>& found) const {
    const Layout layout = layout_of([&](std::size_t port) { return outputs[port].shape(); });
    const auto named = static_cast<std::int64_t>(class_names.size()), classes = layout.classes - card_.class_offset;
    if (!card_.boxes->is_suppressed() && named > 0 && named != classes)
      throw Error(ErrorKind::unsupported, fmt::format("there are {} labels for {} classes", named, classes),
                  model_.name());
    if (layout.count == 0) return;
    std::vector<Tensor> doubles(outputs.size());
    std::vector<std::span<const double>> numbers(outputs.size());
    for (const Table& table : {layout.boxes, layout.scores, layout.labels})
      if (table.box_step > 0 && doubles[table.port].empty()) {
        doubles[table.port] = outputs[table.port].to_dtype(DType::f64);
        numbers[table.port] = std::as_const(doubles[table.port]).values<double>();
      }
    const auto at = [&](const Table& table, std::int64_t box, std::int64_t field) {
      const std::int64_t i = table.first + box * table.box_step + field * table.field_step;
      return numbers[table.port][static_cast<std::size_t>(i)];
    };
    const bool has_labels = layout.labels.box_step > 0, has_objectness = layout.objectness.box_step > 0;
    const bool one_class = card_.boxes->form == Form::yolov8 || card_.boxes->form == Form::yolov5;
    for (std::int64_t i = 0; i < layout.count; ++i) {
      const auto add = [&](double number, double score) {
        const std::array<double, 4> box{at(layout.boxes, i, 0), at(layout.boxes, i, 1), at(layout.boxes, i, 2),
                                        at(layout.boxes, i, 3)};
        append(box, number, score, picture, tile, found);
      };
      const double objectness = has_objectness ? at(layout.objectness, i, 0) : 1;
      double best = -1, least = threshold;
      for (std::int64_t c = has_labels ? 0 : std::max<std::int64_t>(card_.class_offset, 0); c < layout.classes; ++c) {
        const double score = objectness * at(layout.scores, i, c);
        if (!(score > least) || !std::isfinite(score)) continue;
        best = has_labels ? at(layout.labels, i, 0) : static_cast<double>(c);
        if (one_class)
          least = score;
        else
          add(best, score);
      }
      if (one_class && best >= 0) add(best, least);
    }
  }

  /// The best ones of `tiles` tiles together.
  std::vector<Detection> best(std::vector<Detection> found, std::size_t tiles, const DetectOptions& options) const {
    if (card_.boxes->is_suppressed() && tiles == 1) {
      keep_best(found, options.top);
    } else {
      std::vector<Detection> kept;
      for (const std::size_t i : suppress(found, options.iou, options.top)) kept.push_back(std::move(found[i]));
      found = std::move(kept);
    }
    for (Detection& detection : found)
      if (detection.index >= 0 && detection.index < static_cast<std::int64_t>(class_names.size()))
        detection.label = class_names[static_cast<std::size_t>(detection.index)];
    return found;
  }

  std::vector<std::string> class_names{};

 private:
  static const Card& checked(const Card& card) {
    if (!card.boxes)
      throw Error(ErrorKind::invalid_argument, "the card has no output.boxes, which say how the outputs hold boxes");
    return card;
  }

  [[noreturn]] void mismatch(std::size_t port, const Shape& shape, const char* wanted) const {
    throw Error(ErrorKind::unsupported,
                fmt::format("the output {} {} is not as the card's output.boxes say: wanted {}",
                            model_.outputs()[port].name, shape.str(), wanted),
                model_.name());
  }

  void append(const std::array<double, 4>& at, double number, double score, const Picture& picture, const Rect& tile,
              std::vector<Detection>& found) const {
    constexpr double most = 1e9;  // classes
    if (!std::ranges::all_of(at, [](double value) { return std::isfinite(value); }) || !(std::abs(number) < most))
      return;
    Box box{at[0], at[1], at[2], at[3]};
    if (card_.boxes->center) box = {at[0] - at[2] / 2, at[1] - at[3] / 2, at[0] + at[2] / 2, at[1] + at[3] / 2};
    const double x = card_.boxes->normalized ? static_cast<double>(card_.spec.width) : 1;
    const double y = card_.boxes->normalized ? static_cast<double>(card_.spec.height) : 1;
    box = photo_box(card_.spec, tile, {box.left * x, box.top * y, box.right * x, box.bottom * y});
    const auto clip = [&](double& value, std::int64_t size) {
      const auto reduction = static_cast<double>(picture.reduction);
      value = std::clamp(value * reduction, 0.0, static_cast<double>(size) * reduction);
    };
    clip(box.left, picture.width), clip(box.right, picture.width);
    clip(box.top, picture.height), clip(box.bottom, picture.height);
    const std::int64_t index = static_cast<std::int64_t>(number) - card_.class_offset;
    if (!(box.right > box.left && box.bottom > box.top) || (index < 0 && card_.class_offset > 0)) return;
    found.push_back({box, index, {}, score});
    if (found.size() >= 2 * Detector::most_candidates) keep_best(found, Detector::most_candidates);  // bounds memory
  }

  const Model model_;
  const Card card_;
  const BoundCard bound_;
};

}  // namespace

class Detector::Work {
 public:
  Work(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels, PlanOptions plan)
      : reader_(model, card), runner_(model, card, one_by_one(std::move(plan))) {
    if (const PlanInfo& planned = runner_.plan(); planned.late_outputs.empty()) {
      const Layout layout = reader_.layout_of([&](std::size_t port) { return planned.outputs[port].second; });
      if (!card.boxes->is_suppressed()) classes_ = layout.classes - card.class_offset;
    }
    const std::optional<std::filesystem::path> file = labels ? labels : card.labels;
    if (file) reader_.class_names = read_labels(*file, classes_);
  }

  const PlanInfo& plan() const { return runner_.plan(); }
  std::int64_t classes() const { return classes_; }
  const std::vector<std::string>& labels() const { return reader_.class_names; }

  std::vector<Detection> detect(const Picture& picture, const DetectOptions& options) {
    const ImageSpec& spec = reader_.card().spec;
    std::vector<Rect> tiles{{0, 0, picture.height, picture.width}};
    if (options.tile_overlap)
      tiles = image_tiles(picture.height, picture.width, spec.height, spec.width, *options.tile_overlap);
    std::vector<Detection> found;
    for (const Rect& tile : tiles) {
      runner_.prepare(part_of(picture.view(), tile), 0);
      reader_.read(runner_.run(), picture, tile, options.threshold, found);
      keep_best(found, most_candidates);
    }
    return reader_.best(std::move(found), tiles.size(), options);
  }

 private:
  static PlanOptions one_by_one(PlanOptions plan) {
    plan.batch = 1;
    return plan;
  }

  BoxReader reader_;
  ImageRunner runner_;
  std::int64_t classes_ = -1;
};

std::vector<Detection> read_boxes(const Model& model, const Card& card, std::span<const Tensor> outputs,
                                  std::int64_t height, std::int64_t width, const DetectOptions& options) {
  const BoxReader reader(model, card);
  if (outputs.size() != model.outputs().size())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} outputs are given, the model has {}", outputs.size(), model.outputs().size()));
  const Rect whole{0, 0, height, width};
  static_cast<void>(photo_box(card.spec, whole, {}));  // refuses what the card cannot prepare, without boxes, too
  std::vector<Detection> found;
  reader.read(outputs, {.pixels = {}, .height = height, .width = width}, whole, options.threshold, found);
  keep_best(found, Detector::most_candidates);
  return reader.best(std::move(found), 1, options);
}

Detector::Detector(const Model& model, const Card& card, const std::optional<std::filesystem::path>& labels,
                   PlanOptions plan)
    : work_(std::make_unique<Work>(model, card, labels, std::move(plan))) {}
Detector::~Detector() = default;
Detector::Detector(Detector&&) noexcept = default;
Detector& Detector::operator=(Detector&&) noexcept = default;
const PlanInfo& Detector::plan() const { return work_->plan(); }
std::int64_t Detector::classes() const { return work_->classes(); }
const std::vector<std::string>& Detector::labels() const { return work_->labels(); }
std::vector<Detection> Detector::detect(const Picture& picture, const DetectOptions& options) {
  return work_->detect(picture, options);
}

}  // namespace lenslet

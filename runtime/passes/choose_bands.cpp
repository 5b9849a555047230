// choose_bands: on the CPU, consecutive steps whose values between are larger than the cache are run together, some
// rows at a time (Band). A value of MobileNetV2's first block is 4.8 MB: written and read as a whole it goes through L3
// or memory; a strip of ten of its rows stays in L2. Rows that two bands read are kept, but computed twice where two
// threads meet.
//
// A chain is split into bands so that the fewest bytes leave the cache: a value between two bands counts fully, one
// inside a band by the share of its rows that are moved from one piece to the next.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/core/row_kernel.h"
#include "runtime/passes/edit.h"
#include "runtime/passes/passes.h"

namespace lenslet {
namespace {

/// Shares of a core's L2: the maximum for a band's values, and the minimum for a thread's part of a value. MobileNetV2
/// and EfficientNet-Lite0, batch 1 and 8, 1 and 2 threads, 1 MiB of L2: 0.25 to 0.5 and 0.3 to 0.5 are alike.
constexpr double strips_share = 0.4, least_share = 0.5;
/// Minimum rows per piece; fewer do not repay the calls.
constexpr std::int64_t few_rows = 2;
/// Minimum pieces per thread, for load balance.
constexpr int pieces_a_thread = 4;
/// Maximum nodes of a band; bounds the search.
constexpr std::size_t most_nodes = 8;
/// Cost of a byte between two steps of a band, relative to one that leaves the cache: it is written and read in cache,
/// and moved if its row is kept for the next piece.
constexpr double byte_in_cache = 0.1, byte_moved = 0.5;

/// A node that can compute rows, or none.
struct Stage {
  std::shared_ptr<const BoundKernel> bound;
  const RowKernel* rows = nullptr;

  double bytes() const { return 4.0 * static_cast<double>(rows->y_shape().floats()); }
};

class BandChooser {
 public:
  BandChooser(Graph& graph, const DeviceProfile& device)
      : graph_(graph), edit_(graph), device_(device), l2_(static_cast<double>(device.l2_bytes)) {}

  void run() {
    for (const Node& node : graph_.nodes) stages_.push_back(stage_of(node));
    for (std::size_t first = 0; first < stages_.size();) {
      std::size_t last = first;
      while (last + 1 < stages_.size() && meet(last)) ++last;
      if (last > first) cut(first, last);
      first = last + 1;
    }
  }

 private:
  Stage stage_of(const Node& node) const {
    Stage stage;
    if (node.choice == nullptr || node.outputs.size() != 1 || node.outputs[0] == no_id) return stage;
    const Value& y = graph_.value(node.outputs[0]);
    Format format = y.format;
    format.pixel_pitch = 0;
    if (y.shape.rank() != 4 || y.dtype != DType::f32 || format != formats::nhwc || y.shape.elems() == 0) return stage;
    const Problem problem(node.op, graph_.input_infos(node), graph_.output_types(node));
    stage.bound = node.choice->kernel->bind({problem, node.choice->candidate, device_});
    stage.rows = row_kernel_of(*stage.bound, y.shape, y.format);
    return stage;
  }

  /// Whether node n + 1 is the only reader of node n's output and reads it by rows.
  bool meet(std::size_t n) const {
    const RowKernel *from = stages_[n].rows, *to = stages_[n + 1].rows;
    if (from == nullptr || to == nullptr || !(from->y_shape() == to->x_shape())) return false;
    const ValueId value = graph_.nodes[n].outputs[0];
    return edit_.merges(value) && graph_.nodes[n + 1].inputs[to->row_input()] == value;
  }

  /// Splits the chain of nodes [first, last] into bands and single nodes of least total cost.
  void cut(std::size_t first, std::size_t last) {
    struct Best {
      double cost = std::numeric_limits<double>::infinity();
      std::size_t begin = 0;  // of the last part
      std::optional<Band> band;
    };
    std::vector<Best> best(last - first + 2);  // by number of nodes
    best[0].cost = 0;
    for (std::size_t end = first + 1; end <= last + 1; ++end) {
      Best& here = best[end - first];
      for (std::size_t begin = end; begin-- > first && end - begin <= most_nodes;) {
        const double before = best[begin - first].cost + (begin == first ? 0 : apart(begin - 1));
        std::optional<Band> band;
        if (end - begin > 1 && !(band = band_of(begin, end - 1))) break;  // longer bands need even more
        const double cost = before + (band ? moved(*band) : 0);
        if (cost < here.cost) here = {cost, begin, std::move(band)};
      }
    }
    std::vector<Band> bands;
    for (std::size_t end = last + 1; end > first; end = best[end - first].begin)
      if (Best& part = best[end - first]; part.band) bands.push_back(std::move(*part.band));
    std::move(bands.rbegin(), bands.rend(), std::back_inserter(graph_.bands));
  }

  /// Bytes through slow memory if node n's output is written as a whole.
  double apart(std::size_t n) const {
    const double bytes = stages_[n].bytes();
    return bytes > least_share * l2_ * device_.units ? bytes : 0;
  }

  /// A band's cost within the cache, in equivalent bytes.
  double moved(const Band& band) const {
    double bytes = 0;
    const RowShape& y = stages_[static_cast<std::size_t>(band.last)].rows->y_shape();
    for (std::size_t i = 0; i < band.strips.size(); ++i) {
      const Stage& stage = stages_[static_cast<std::size_t>(band.first) + i];
      const double height = static_cast<double>(stage.rows->y_shape().rows);
      const double fresh = height * static_cast<double>(band.rows) / static_cast<double>(y.rows);
      const double kept = std::max(0.0, static_cast<double>(band.strips[i]) - fresh);
      bytes += stage.bytes() * (byte_in_cache + byte_moved * kept / std::max(fresh, 1.0));
    }
    return bytes;
  }

  /// By node except the last: the most rows needed for that many rows of the last one, with none kept from before.
  std::vector<std::int64_t> strips(std::size_t first, std::size_t last, std::int64_t rows) const {
    std::vector<std::int64_t> most(last - first, 0);
    const std::int64_t height = stages_[last].rows->y_shape().rows;
    for (std::int64_t begin = 0; begin < height; begin += rows) {
      Rows wanted{begin, std::min(begin + rows, height)};
      for (std::size_t n = last; n > first; --n) {
        wanted = stages_[n].rows->reads(wanted);
        most[n - 1 - first] = std::max(most[n - 1 - first], wanted.count());
      }
    }
    return most;
  }

  double strip_bytes(std::size_t first, const std::vector<std::int64_t>& strips) const {
    double bytes = 0;
    for (std::size_t i = 0; i < strips.size(); ++i)
      bytes += 4.0 * static_cast<double>(strips[i] * stages_[first + i].rows->y_shape().row_floats);
    return bytes;
  }

  /// nullopt if even a few rows need strips larger than the cache.
  std::optional<Band> band_of(std::size_t first, std::size_t last) const {
    const RowShape y = stages_[last].rows->y_shape();
    const std::int64_t pieces = pieces_a_thread * device_.units, least = std::min(few_rows, y.rows);
    for (std::int64_t rows = std::clamp((y.images * y.rows + pieces - 1) / pieces, least, y.rows); rows >= least;
         rows = rows * 3 / 4) {
      if (rows != y.rows && rows > 2) rows -= rows % 2;  // kernels process rows in pairs
      std::vector<std::int64_t> wanted = strips(first, last, rows);
      const double bytes = strip_bytes(first, wanted);
      if (bytes > strips_share * l2_) continue;
      double whole = 0;
      for (std::size_t n = first; n < last; ++n) whole += stages_[n].bytes();
      return Band{.first = static_cast<NodeId>(first),
                  .last = static_cast<NodeId>(last),
                  .rows = rows,
                  .strips = std::move(wanted),
                  .reason = fmt::format("{} rows at a time: {:.0f} KiB between the steps, not {:.0f}", rows,
                                        bytes / 1024, whole / 1024)};
    }
    return std::nullopt;
  }

  Graph& graph_;
  GraphEdit edit_;
  const DeviceProfile& device_;
  const double l2_;
  std::vector<Stage> stages_;
};

}  // namespace

void choose_bands(Graph& graph, const PassContext& context) {
  if (context.target.device.kind == DeviceKind::cpu) BandChooser(graph, context.target.device).run();
}

}  // namespace lenslet

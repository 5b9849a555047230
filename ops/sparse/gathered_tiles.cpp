// SparseConv in one pass over blocks of outputs. A block's accumulators stay in L2 while all taps' pairs for it are
// multiplied, a register tile of pairs at a time. Rows of x are read in place, not gathered into a buffer, and the tile
// is added to the accumulators directly. Each output belongs to one block and gets its taps in order: its bits depend
// on neither blocks nor threads.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/simd/targets.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/sparse_conv.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sparse/gathered_tiles.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h:
#include <hwy/highway.h>

#include "ops/core/simd/activation-inl.h"
#include "ops/core/simd/over_channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace {

// As in gemm() (ops/gemm/gemm_kernel-inl.h): a register tile of rows of A times two vectors of columns.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
constexpr int tile_rows = 6;
#else
constexpr int tile_rows = 12;
#endif

/// Pairs of one tap against one panel of its filters.
struct Tile {
  const float* x = nullptr;              ///< [inputs, channels]
  const float* b = nullptr;              ///< [channels][Vectors*lanes]
  float* sums = nullptr;                 ///< of output `first`, the panel's first column
  std::int64_t channels = 0, pitch = 0;  ///< floats between outputs
  std::int64_t first = 0;
};

template <int Rows, int Vectors>
HWY_INLINE void add_tile(const Tile& t, const std::int32_t* in, const std::int32_t* out) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* a[Rows];
  V acc[Rows][Vectors];
  HWY_UNROLL(16)
  for (int i = 0; i < Rows; ++i) {
    a[i] = t.x + in[i] * t.channels;
    HWY_UNROLL(16)
    for (int v = 0; v < Vectors; ++v) acc[i][v] = hn::Zero(d);
  }
  const float* HWY_RESTRICT b = t.b;
  for (std::int64_t c = 0; c < t.channels; ++c, b += Vectors * lanes) {
    V bv[Vectors];
    HWY_UNROLL(16)
    for (int v = 0; v < Vectors; ++v) bv[v] = hn::LoadU(d, b + v * lanes);
    HWY_UNROLL(16)
    for (int i = 0; i < Rows; ++i) {
      const V av = hn::Set(d, a[i][c]);
      HWY_UNROLL(16)
      for (int v = 0; v < Vectors; ++v) acc[i][v] = hn::MulAdd(av, bv[v], acc[i][v]);
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < Rows; ++i) {
    float* const y = t.sums + (out[i] - t.first) * t.pitch;
    HWY_UNROLL(16)
    for (int v = 0; v < Vectors; ++v) hn::Store(hn::Add(hn::Load(d, y + v * lanes), acc[i][v]), d, y + v * lanes);
  }
}

/// Rows pairs times all panels of equal width: their rows of x are in L1 from the second panel on.
template <int Rows>
HWY_INLINE void add_rows(Tile tile, std::int64_t columns, const std::int32_t* in, const std::int32_t* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::int64_t j = 0;
  for (; j + 2 * lanes <= columns; j += 2 * lanes) {
    add_tile<Rows, 2>(tile, in, out);
    tile.b += tile.channels * 2 * lanes;
    tile.sums += 2 * lanes;
  }
  if (j < columns) add_tile<Rows, 1>(tile, in, out);
}

void add_pairs(const Tile& tile, std::int64_t columns, const std::int32_t* in, const std::int32_t* out,
               std::int64_t count) {
  std::int64_t i = 0;
  for (; i + tile_rows <= count; i += tile_rows) {
    // Prefetches the next tile's rows, which come from L2 or beyond.
    if (i + 2 * tile_rows <= count)
      for (int r = 0; r < tile_rows; ++r) {
        const float* const next = tile.x + in[i + tile_rows + r] * tile.channels;
        for (std::int64_t c = 0; c < tile.channels; c += 16) __builtin_prefetch(next + c, 0, 3);
      }
    add_rows<tile_rows>(tile, columns, in + i, out + i);
  }
  const std::int64_t rest = count - i;
  in += i;
  out += i;
  // The remainder in at most three tiles: one with few rows waits for its accumulators.
  const auto part = [&]<int Rows>(std::integral_constant<int, Rows>) HWY_ATTR {
    add_rows<Rows>(tile, columns, in, out);
    in += Rows;
    out += Rows;
  };
  if constexpr (tile_rows > 8)
    if ((rest & 8) != 0) part(std::integral_constant<int, 8>());
  if ((rest & 4) != 0) part(std::integral_constant<int, 4>());
  if ((rest & 2) != 0) part(std::integral_constant<int, 2>());
  if ((rest & 1) != 0) part(std::integral_constant<int, 1>());
}

/// All of a tap's pairs; `filters` packed by pack_b.
void add_tap(const float* x, std::int64_t channels, const float* filters, std::int64_t columns, float* sums,
             std::int64_t first, const std::int32_t* in, const std::int32_t* out, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  // Panels at a time: 16 KiB of filters stay in L1.
  const std::int64_t at_once = std::max<std::int64_t>(1, (16 << 10) / (channels * 2 * lanes * 4)) * 2 * lanes;
  Tile tile{.x = x, .b = filters, .sums = sums, .channels = channels, .pitch = columns, .first = first};
  for (std::int64_t j = 0; j < columns; j += at_once) {
    add_pairs(tile, std::min(at_once, columns - j), in, out, count);
    tile.b += channels * at_once;
    tile.sums += at_once;
  }
}

/// Epilogue: rows of accumulators to y, with bias, residual (or null) and activation.
void finish(const float* sums, std::int64_t pitch, std::int64_t rows, std::int64_t filters, const float* bias,
            const float* residual, const Activation& activation, float* y) {
  const hn::ScalableTag<float> d;
  with_activation(activation, [&](auto act) HWY_ATTR {
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const from = sums + i * pitch;
      const std::int64_t at = i * filters;
      over_channels(d, 0, filters, [&](auto dv, std::int64_t k) HWY_ATTR {
        auto sum = hn::LoadU(dv, from + k);
        if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(dv, bias + k));
        if (residual != nullptr) sum = hn::Add(sum, hn::LoadU(dv, residual + at + k));
        hn::StoreU(act(dv, sum), dv, y + at + k);
      });
    }
  });
}

std::int64_t float_lanes() { return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>())); }

}  // namespace
}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

namespace {

HWY_EXPORT(add_tap);
HWY_EXPORT(finish);
HWY_EXPORT(float_lanes);

// A block's accumulators: a quarter of the smallest L2 of known machines; filters and gathered rows need the rest.
constexpr std::int64_t block_bytes = 128 << 10, most_rows = 1024;

std::int64_t columns_of(std::int64_t filters) {
  const std::int64_t lanes = HWY_DYNAMIC_DISPATCH(float_lanes)();
  return (filters + lanes - 1) / lanes * lanes;
}

class BoundGatheredTiles final : public BoundKernel {
 public:
  BoundGatheredTiles(const SparseConvProblem& problem, std::int64_t rows, int threads)
      : p_(problem),
        threads_(threads),
        rows_(rows),
        columns_(columns_of(problem.filters)),
        packed_(packed_b_floats(problem.channels, problem.filters)) {}

  std::size_t workspace_bytes() const override {
    return static_cast<std::size_t>(threads_ * own_floats()) * sizeof(float);
  }

  void run(const KernelRun& run) const override {
    const SparseConvRun r(p_, run);
    const auto* const filters = r.filter<float>();
    auto* const workspace = reinterpret_cast<float*>(run.workspace.data());
    r.for_each_block(rows_, *run.pool, [&](std::int64_t first, std::int64_t last, int worker) {
      float* const sums = workspace + worker * own_floats();
      auto* const same = reinterpret_cast<std::int32_t*>(sums + rows_ * columns_);
      std::memset(sums, 0, static_cast<std::size_t>((last - first) * columns_) * sizeof(float));
      for (std::int64_t tap = 0; tap < p_.taps; ++tap) {
        const TapPairs pairs = r.rulebook.pairs(tap);
        const std::int64_t begin = first_pair(pairs, first);
        const std::int64_t end = end_of_pairs(pairs, begin, first, last, r.rulebook.inputs());
        const std::int32_t *in = same, *out = same;
        if (pairs.identity)  // which has no lists
          for (std::int64_t i = begin; i < end; ++i) same[i - begin] = static_cast<std::int32_t>(i);
        else
          in = pairs.in + begin, out = pairs.out + begin;
        HWY_DYNAMIC_DISPATCH(add_tap)
        (r.x<float>(), p_.channels, filters + tap * packed_, columns_, sums, first, in, out, end - begin);
      }
      HWY_DYNAMIC_DISPATCH(finish)
      (sums, columns_, last - first, p_.filters, r.bias<float>(),
       r.residual<float>() == nullptr ? nullptr : r.residual<float>() + first * p_.filters, p_.activation,
       r.y<float>() + first * p_.filters);
    });
    clear_rows(r.y<float>(), r.rulebook.outputs(), p_.max_outputs, p_.filters, *run.pool);
  }

 private:
  /// Floats per thread: accumulators [rows, columns], then as many site numbers.
  std::int64_t own_floats() const { return (rows_ * columns_ + rows_ + 15) / 16 * 16; }

  SparseConvProblem p_;
  int threads_;
  std::int64_t rows_, columns_, packed_;
};

class GatheredTiles final : public Kernel {
 public:
  std::string_view name() const override { return "gathered_tiles"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<float>>; }

  Offer offer(const Problem& node, const Target& target) const override {
    if (auto why = refuse_types(node, DType::f32)) return Offer::refuse(std::move(*why));
    const SparseConvProblem p = node.as<SparseConvOp>().problem(node.inputs());
    if (!p.weights_known) return Offer::refuse("its filters are computed by the network");
    const std::int64_t columns = columns_of(p.filters);
    // Small problems are split so that all threads get some blocks.
    const std::int64_t share = (p.max_outputs + 8 * target.device.units - 1) / (8 * target.device.units);
    const std::int64_t rows = std::clamp<std::int64_t>(std::min(share, block_bytes / (columns * 4)), 16, most_rows);
    Candidate candidate;
    candidate.config = ConfigWriter().add("rows", rows).str();
    candidate.inputs.resize(node.inputs().size());
    candidate.outputs.resize(1);
    candidate.workspace_bytes = BoundGatheredTiles(p, rows, target.device.units).workspace_bytes();
    // Vectors are padded; reading and writing a pair's accumulators costs as much as about 8 channels.
    const double issued = 2.0 * static_cast<double>(p.max_pairs) * static_cast<double>((p.channels + 8) * columns);
    candidate.estimated_us = issued / target.device.fp32_flops_per_us;
    candidate.tolerance = sum_tolerance(p.channels * p.taps);
    candidate.in_place = p.residual ? input_bit(SparseConvOp::residual) : no_inputs;
    candidate.reads = all_inputs & ~input_bit(SparseConvOp::filter);
    return candidate;
  }

  std::optional<BlobSpec> blob(const Problem& node, const Candidate&) const override {
    const SparseConvProblem p = node.as<SparseConvOp>().problem(node.inputs());
    const auto scale = node.as<SparseConvOp>().scale();
    BlobSpec spec;
    spec.bytes = static_cast<std::size_t>(p.taps * packed_b_floats(p.channels, p.filters)) * sizeof(float);
    spec.key = fmt::format("columns={} ", gemm_tile_cols());
    spec.key.append(reinterpret_cast<const char*>(scale.data()), scale.size() * sizeof(float));
    return spec;
  }

  void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) const override {
    const auto& op = node.as<SparseConvOp>();
    const SparseConvProblem p = op.problem(node.inputs());
    const float* const w = node.inputs()[SparseConvOp::filter].constant->values<float>().data();
    auto* to = reinterpret_cast<float*>(blob.data());
    std::vector<float> of_tap(static_cast<std::size_t>(p.channels * p.filters));  // [C,K]
    for (std::int64_t tap = 0; tap < p.taps; ++tap, to += packed_b_floats(p.channels, p.filters)) {
      for (std::int64_t k = 0; k < p.filters; ++k)
        for (std::int64_t c = 0; c < p.channels; ++c)
          of_tap[static_cast<std::size_t>(c * p.filters + k)] = op.scaled(w[(k * p.channels + c) * p.taps + tap], k);
      pack_b(of_tap.data(), p.filters, 1, p.channels, p.filters, to);
    }
  }

  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    ConfigReader config(binding.candidate.config);
    const std::int64_t rows = config.integer("rows", 1, most_rows);
    config.finish();
    return std::make_unique<BoundGatheredTiles>(binding.op<SparseConvOp>().problem(binding.problem.inputs()), rows,
                                                binding.threads());
  }
};

}  // namespace

const Kernel& sparse_conv_gathered_tiles() {
  static const GatheredTiles kernel;
  return kernel;
}

}  // namespace lenslet
#endif  // HWY_ONCE

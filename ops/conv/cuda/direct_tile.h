#pragma once
// Plain C++.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ops/conv/algorithm.h"
#include "ops/conv/cuda/direct_mappings.h"

namespace lenslet::cuda {

namespace direct_tile_sizes {

inline constexpr int warp_rows = 4, warp_columns = 32;  ///< outputs of one filter a warp
inline constexpr int max_warps = 8, max_threads = 32 * max_warps;
/// Shared memory of a block with all channels, and double-buffered in two chunks: three and two blocks a multiprocessor
/// of an H200. Compute capability 8.6, 8.9 and 12.0 allow 99 KiB a block.
inline constexpr std::int64_t whole_bytes = 72 << 10, chunked_bytes = 96 << 10;

/// Filter widths and strides with kernels of their own. Size 0, the last: all others.
struct DirectWindow {
  int size, stride;
};
inline constexpr std::array<DirectWindow, 8> direct_windows{
    {{3, 1}, {5, 1}, {6, 1}, {7, 1}, {3, 2}, {5, 2}, {7, 2}, {0, 1}}};

/// Index in direct_windows.
inline std::size_t window_for(const ConvProblem& p) {
  std::size_t at = 0;
  while (direct_windows[at].size != 0 &&
         (p.s != direct_windows[at].size || p.stride_w != direct_windows[at].stride || p.dilation_w != 1))
    ++at;
  return at;
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// The tile configuration.
struct Tiling {
  std::int64_t filters = 8;  ///< a group, 6 or 8
  std::int64_t warps_p = 1, warps_k = 1;
  std::int64_t chunk = 0;  ///< below C: double-buffered chunks

  int vector() const { return filters == 8 ? 4 : 2; }
  std::int64_t tiles(const ConvProblem& p) const {
    return p.n * group_count(p.p, warps_p * warp_rows) * group_count(p.q, warp_columns);
  }
  std::int64_t blocks_k(const ConvProblem& p) const { return group_count(group_count(p.k, filters), warps_k); }
  std::int64_t blocks(const ConvProblem& p) const { return tiles(p) * blocks_k(p); }
  std::string str() const {
    return ConfigWriter()
        .add("filters", filters)
        .add("warps_p", warps_p)
        .add("warps_k", warps_k)
        .add("chunk", chunk)
        .str();
  }
};

/// A block's input tile in shared memory.
struct InputTile {
  std::int64_t rows, columns, phase_pitch, pitch;
  double channel_floats;  ///< with a channel's filters; double, because it may overflow with large strides

  InputTile(const ConvProblem& p, const Tiling& t) {
    rows = (t.warps_p * warp_rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
    columns = (warp_columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1;
    phase_pitch = round_up((columns + p.stride_w - 1) / p.stride_w, 4);
    pitch = p.stride_w * phase_pitch;
    // The four rows of a warp, 8 floats each, must be in different banks.
    if (direct_windows[window_for(p)].size == 0)
      for (int more = 0; more < 32; ++more)
        if (const std::int64_t banks = p.stride_h * (pitch + more) % 32; banks == 8 || banks == 24) {
          pitch += more;
          break;
        }
    channel_floats = static_cast<double>(rows) * static_cast<double>(pitch) +
                     static_cast<double>(p.r * p.s * t.warps_k * group_floats);
  }
  /// Channels that fit into `bytes`, rounding to whole quads included.
  std::int64_t channels_in(std::int64_t bytes) const {
    return static_cast<std::int64_t>((static_cast<double>(bytes) / sizeof(float) - 8) / channel_floats);
  }
};

}  // namespace direct_tile_sizes

std::unique_ptr<const BoundKernel> bind_direct_tile(const ConvProblem& problem,
                                                    const direct_tile_sizes::Tiling& tiling);

/// The algorithm direct_tile; direct_tile_padded (ladder/direct_tile_padded.cpp) is the same on explicitly padded
/// input.
class DirectTile : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "direct_tile"; }
  DeviceKind device() const final { return DeviceKind::cuda; }

 protected:
  std::optional<std::string> refuse(const ConvProblem& problem, const Target& target) const override;
  virtual ConvCandidate candidate_of(const ConvProblem& problem, const direct_tile_sizes::Tiling& tiling,
                                     const Target& target) const;
  ConvCandidate candidate(const ConvProblem& problem, const Target& target) const final;
  std::vector<ConvCandidate> candidates(const ConvProblem& problem, const Target& target) const final;
  FilterForm filter_form(const ConvProblem& problem, std::string_view config) const final;
  void transform(const ConvProblem& problem, std::string_view config, const ConvFilter& filter,
                 std::span<std::byte> bytes) const final;
  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& problem, std::string_view config,
                                               const DeviceProfile& device) const final;
};

}  // namespace lenslet::cuda

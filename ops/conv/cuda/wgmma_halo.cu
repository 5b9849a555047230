// wgmma_halo: convolutions with overlapping windows, stride 1, on Hopper's tensor cores: 16 bits, or float32 as TF32
// where the network allows it. The halo tile of 64 outputs is loaded into shared memory once, not once a tap. fp32
// accumulators in the order r, s, c by groups of channels, whatever the tile. Kernels: wgmma_halo.cuh; cluster split-K
// for few tiles: wgmma_halo_split_k.cuh; tiles: wgmma_halo_plan.cpp and wgmma_halo_split_k_plan.cpp;
// refusals: wgmma_halo.cpp.

#include "ops/conv/cuda/wgmma_halo.cuh"

#include <algorithm>
#include <array>

#include "base/aligned_format.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/wgmma_halo_split_k.h"
#include "ops/conv/cuda/wgmma_maps.cuh"

namespace lenslet::cuda {

template <>
WgmmaHaloKernel wgmma_halo_kernel_for<Float16>(const WgmmaHaloPlan& plan);
template <>
WgmmaHaloKernel wgmma_halo_kernel_for<BFloat16>(const WgmmaHaloPlan& plan);
template <>
WgmmaHaloKernel wgmma_halo_kernel_for<float>(const WgmmaHaloPlan& plan);

namespace {

using HaloTypes = Types<Float16, BFloat16, float>;

bool is_tf32(const ConvProblem& p) { return p.storage == DType::f32; }
/// Alignment in bytes of addresses in a tensor map.
constexpr std::int64_t map_vector = 16;

class BoundWgmmaHalo final : public BoundKernel {
 public:
  BoundWgmmaHalo(const ConvProblem& p, const WgmmaHaloPlan& plan)
      : problem_(p),
        set_(halo_set(p, plan.together)),
        plan_(plan),
        filters_(halo_filters(p, plan.together)),
        kernel_(dispatch(p.storage, HaloTypes(),
                         [&]<typename T>(std::type_identity<T>) { return wgmma_halo_kernel_for<T>(plan); })) {
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.walk = UnitWalk(set_, plan.unit);
    call_.activation = DeviceActivation(p.activation);
    call_.units = narrow(plan.units);
    call_.p = narrow(set_.p);
    call_.k = narrow(aligned_channels(p.k, p.storage));
    call_.biases = narrow(p.k);
    call_.pad_top = narrow(p.pad_top);
    call_.pad_left = narrow(p.pad_left);
    call_.tiles = narrow(plan.tiles_m * plan.beside());
    call_.tiles_n = narrow(plan.beside());
    call_.set_tiles = narrow(plan.tiles_n);
    call_.set_k = narrow(plan.sets == 1 ? aligned_channels(p.k, p.storage) : set_.k);
    call_.set_filters = narrow(filters_.filters);
    call_.x_set = narrow(vectors(set_.c));
    call_.y_set = narrow(vectors(set_.k));
    call_.k_groups = narrow(plan.k_groups);
    call_.r = narrow(p.r);
    call_.s = narrow(p.s);
    call_.line_offset = narrow(p.dilation_h) * plan.columns * plan.row_bytes;
    call_.tap_offset = narrow(p.dilation_w) * plan.row_bytes;
    call_.wide = plan.unit.wide;
    call_.eights = plan.unit.eights();
    call_.halo_box = plan.lines * plan.columns * plan.row_bytes;
    call_.halo_bytes = plan.halo_bytes;
    call_.halo_stages = plan.halo_stages;
    call_.filter_stages = plan.filter_stages;
    call_.resident = plan.resident ? 1 : 0;
    call_.filters_at = plan.filters_at;
    call_.staging_at = plan.staging_at;
    call_.barriers_at = plan.barriers_at;
  }

  void run(const KernelRun& run) const override {
    const ConvProblem& p = set_;
    const auto side = [](int value) { return static_cast<std::uint32_t>(value); };
    const MapElement element = is_tf32(p) ? MapElement::tf32 : MapElement::half;
    const int channels = plan_.row_bytes / static_cast<int>(dtype_bytes(p.storage));
    const std::int64_t x_pixel = map_pitch(problem_.c, element), y = y_pixel(call_.k, run);
    WgmmaHalo call = call_;
    call.halo_tiles = set_map(run.in<void>(ConvOp::input), {p.c, p.w, p.h}, x_pixel,
                              {side(channels), side(plan_.columns), side(plan_.lines), 1U}, element);
    call.filters = filter_operand(problem_, filters_, run.blob, plan_.tile.filters, channels, element);
    call.bias = run.in<float>(ConvOp::bias);
    call.results = parts(run.out<void>(), y, plan_.unit.part_columns());
    if (const void* residual = run.in<void>(ConvOp::residual); residual != nullptr) {
      // A whole box of pixels: its barrier waits for that many bytes.
      call.residuals = parts(residual, call.k, staged_rows / plan_.unit.part_lines());
      call.adds_residual = 1;
    }
    if (plan_.sets > 1) {
      call.x_image = static_cast<int>(vectors(p.h * p.w * x_pixel));
      call.y_image = static_cast<int>(vectors(p.p * p.q * y));
    }
    const auto shared_bytes = static_cast<std::size_t>(plan_.total);
    // Blocks that keep their filters take tiles of those only.
    const int multiprocessors = run.cuda->multiprocessors,
              even = std::max(multiprocessors / call.tiles_n, 1) * call.tiles_n;
    allow_shared_bytes(kernel_, shared_bytes);
    launch(*run.cuda, kernel_, static_cast<unsigned>(std::min(call.tiles, plan_.resident ? even : multiprocessors)),
           wgmma_threads(wgmma_consumers), shared_bytes, call);
  }

 private:
  /// 16-byte vectors of `elements`.
  std::int64_t vectors(std::int64_t elements) const {
    return elements * static_cast<std::int64_t>(dtype_bytes(problem_.storage)) / map_vector;
  }
  /// Map of channels, columns and lines of a set, `pitch` elements from pixel to pixel. The last axis is images or, for
  /// several sets, vectors, so that boxes may begin at any set of any image.
  CUtensorMap set_map(const void* tensor, const std::array<std::int64_t, 3>& sizes, std::int64_t pitch,
                      const std::array<std::uint32_t, 4>& box, MapElement element) const {
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const auto& [channels, columns, lines] = sizes;
    const std::int64_t last =
        plan_.sets == 1 ? set_.n
                        : (set_.n - 1) * vectors(lines * columns * pitch) + (plan_.sets - 1) * vectors(channels) + 1;
    const std::array vector{std::uint64_t{map_vector}};
    return tiled_map(tensor, std::array{size(channels), size(columns), size(lines), size(last)}, box, element,
                     size(pitch), std::span(vector).first(plan_.sets == 1 ? 0 : 1));
  }
  /// Map of boxes of `columns` columns of a part.
  CUtensorMap parts(const void* y, std::int64_t pitch, int columns) const {
    const int filters = is_tf32(set_) ? tf32_staged_filters : staged_filters(plan_.tile.filters);
    return set_map(y, {call_.set_k, set_.q, set_.p}, pitch,
                   {static_cast<std::uint32_t>(filters), static_cast<std::uint32_t>(columns),
                    static_cast<std::uint32_t>(plan_.unit.part_lines()), 1U},
                   is_tf32(set_) ? MapElement::f32 : MapElement::half);
  }

  ConvProblem problem_, set_;
  WgmmaHaloPlan plan_;
  WgmmaFilters filters_;
  WgmmaHaloKernel kernel_;
  WgmmaHalo call_;  // lacks what depends on addresses
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_wgmma_halo(const ConvProblem& p, const WgmmaHaloPlan& plan) {
  return std::make_unique<BoundWgmmaHalo>(p, plan);
}

}  // namespace lenslet::cuda

// mma_gemm: convolution as one GEMM per group on tensor cores, windows gathered from the input in the main loop: 16-bit
// elements, and TF32 where the network allows it. Kernel: mma_gemm.cuh; tiles and split-K: mma_gemm_plan.cpp. Groups
// too small for vectors are merged: an infinity times a zero across groups gives NaN, as in Winograd.

#include "ops/conv/cuda/mma_gemm.cuh"

#include <cstring>

#include "base/tf32.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/implicit_gemm_plan.h"
#include "ops/core/sum_tolerance.h"

namespace lenslet::cuda {
namespace {

struct TileKernel {
  void (*kernel)(MmaGemm) = nullptr;
  std::size_t shared_bytes = 0;
};

template <typename T, MmaAccess access>
TileKernel kernel_for(MmaTile wanted) {
  TileKernel found;
  MmaTilesFor<access>::with(wanted, [&]<MmaTile tile>() {
    found = {mma_gemm_kernel<MmaTraits<tile>, T, access>, mma_shared_bytes<MmaTraits<tile>>()};
  });
  return found;
}

template <typename T>
TileKernel kernel_for(MmaTile tile, MmaAccess access) {
  if (access == MmaAccess::vectors) return kernel_for<T, MmaAccess::vectors>(tile);
  if constexpr (sizeof(T) == 2)
    if (access == MmaAccess::halves) return kernel_for<T, MmaAccess::halves>(tile);
  return kernel_for<T, MmaAccess::words>(tile);
}

TileKernel kernel_for(const ConvProblem& p, MmaTile tile) {
  const MmaAccess access = mma_access(p);
  if (p.storage == DType::f16) return kernel_for<Float16>(tile, access);
  if (p.storage == DType::bf16) return kernel_for<BFloat16>(tile, access);
  return kernel_for<float>(tile, access);
}

class BoundMmaGemm final : public BoundKernel {
 public:
  BoundMmaGemm(const ConvProblem& p, const MmaGemmPlan& plan, const DeviceProfile& device)
      : plan_(plan), groups_(static_cast<unsigned>(p.groups)), kernel_(kernel_for(p, plan.tile)), call_(p) {
    kernel_.shared_bytes = shared_bytes_for(kernel_.shared_bytes, plan.resident, device);
    const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
    call_.steps = narrow(plan.steps);
    call_.steps_a_slice = narrow(plan.steps_a_slice);
    call_.tiles_n = narrow(plan.tiles_n);
    call_.slices = narrow(plan.slices);
    call_.pixels = narrow(p.n * p.p * p.q);
    call_.pq = narrow(p.p * p.q);
    call_.group_c = narrow(p.group_c());
    call_.group_k = narrow(p.group_k());
    call_.filter_pitch = narrow(mma_filter_pitch(p));
    call_.window_h = narrow(p.r * p.dilation_h);
    call_.window_w = narrow(p.s * p.dilation_w);
    call_.x_image = p.c * p.h * p.w;
    call_.store_vectors = p.group_k() * static_cast<std::int64_t>(dtype_bytes(p.storage)) % 16 == 0;
  }

  void run(const KernelRun& run) const override {
    MmaGemm call = call_;
    call.x = run.in<void>(ConvOp::input);
    call.w = run.blob;
    call.bias = run.in<float>(ConvOp::bias);
    call.residual = run.in<void>(ConvOp::residual);
    call.y = run.out<void>();
    call.y_pixel = static_cast<int>(y_pixel(call.k, run));
    allow_shared_bytes(kernel_.kernel, kernel_.shared_bytes);
    const auto slices = static_cast<unsigned>(plan_.slices);
    launch_clusters(*run.cuda, kernel_.kernel,
                    dim3(static_cast<unsigned>(plan_.tiles_m * plan_.tiles_n), slices, groups_),
                    static_cast<unsigned>(shape_of(plan_.tile).threads()), dim3(1, slices), kernel_.shared_bytes, call);
  }

 private:
  MmaGemmPlan plan_;
  unsigned groups_;
  TileKernel kernel_;
  MmaGemm call_;
};

/// The largest tile's.
constexpr std::size_t most_shared_bytes = mma_shared_bytes<MmaTraits<MmaTile::t128x128>>();

class MmaGemmConv final : public ConvAlgorithm {
 public:
  std::string_view name() const override { return "mma_gemm"; }
  DeviceKind device() const override { return DeviceKind::cuda; }
  DTypeSet types() const override { return dtypes<Types<float, Float16, BFloat16>>; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (p.storage == DType::f32 && target.numerics.multiply != Numerics::Multiply::tf32)
      return "tensor cores would round float32 to TF32, which was not asked for";
    if (target.device.capability < 80) return "it needs tensor cores of compute capability 8.0";
    if (auto reason = target.device.refuse_shared(most_shared_bytes)) return reason;
    if (p.groups > 65535) return "more than 65535 groups";
    // The kernel uses 32-bit indices within an image, a window, and over output pixels.
    constexpr std::int64_t limit = 1 << 30;
    const std::int64_t step = mma_step_terms(p);
    const std::int64_t window_h = (p.r + step) * p.dilation_h, window_w = (p.s + step) * p.dilation_w;
    if (p.c > limit / p.h / p.w || p.k > limit / p.p / p.q || window_h > limit / p.w / p.c || window_w > limit / p.c)
      return "an image or a window has more than 2^30 elements";
    if (p.h + p.pad_top + p.pad_bottom > limit || p.w + p.pad_left + p.pad_right > limit)
      return "a padded image has more than 2^30 lines or columns";
    if (p.n > limit / p.p / p.q) return "more than 2^30 output pixels";
    const ConvProblem merged = with_merged_groups(p);
    if (merged.group_k() > limit / mma_filter_pitch(merged)) return "more than 2^30 weights in a group";
    return std::nullopt;
  }

  Plan plan(const ConvProblem& p, const Target& target) const override {
    const ConvProblem merged = with_merged_groups(p);
    MmaGemmPlan cut = plan_mma_gemm(merged, target.device.clusters);
    if (cut.slices > 1) cut.resident = even_resident(merged, cut, target.device);
    const std::int64_t terms = p.group_c() * p.r * p.s;
    return {.format = formats::nhwc,
            .pitched = true,
            .config = cut.str(),
            .estimated_us = mma_gemm_us(merged, cut, target.device),
            .tolerance = p.storage == DType::f32 ? tf32_sum_tolerance(terms) + sum_tolerance(terms)
                                                 : half_sum_tolerance(p.storage, terms)};
  }

  FilterForm filter_form(const ConvProblem& p, std::string_view) const override {
    return {.floats = p.k * mma_filter_pitch(with_merged_groups(p)),
            .form = std::string(to_string(p.storage)),
            .element_bytes = dtype_bytes(p.storage)};
  }

  void transform_bytes(const ConvProblem& p, std::string_view, const ConvFilter& filter,
                       std::span<std::byte> to) const override {
    std::memset(to.data(), 0, to.size());
    const ConvProblem merged = with_merged_groups(p);
    const std::int64_t taps = p.r * p.s, c = p.group_c(), merged_c = merged.group_c(), pitch = mma_filter_pitch(merged);
    const auto write = [&]<typename T>(T* first, const auto& rounded) {
      for (std::int64_t k = 0; k < p.k; ++k) {
        const std::int64_t first_c = k / p.group_k() * c % merged_c;  // its group within the merged ones
        for (std::int64_t in = 0; in < c; ++in)
          for (std::int64_t tap = 0; tap < taps; ++tap)
            first[k * pitch + tap * merged_c + first_c + in] = rounded(filter.exact_weight(k, in * taps + tap));
      }
    };
    if (p.storage == DType::f16)
      write(reinterpret_cast<std::uint16_t*>(to.data()), f16_from_f64);
    else if (p.storage == DType::bf16)
      write(reinterpret_cast<std::uint16_t*>(to.data()), bf16_from_f64);
    else
      write(reinterpret_cast<float*>(to.data()), tf32_from_f64);
  }

  std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& p, std::string_view config,
                                               const DeviceProfile& device) const override {
    const ConvProblem merged = with_merged_groups(p);
    return std::make_unique<BoundMmaGemm>(merged, read_mma_gemm_plan(merged, config, device.clusters), device);
  }
};

}  // namespace

const Kernel& conv_mma_gemm() {
  static const MmaGemmConv algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda

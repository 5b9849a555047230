#include "base/convert.h"
#include "base/cuda/launch.h"
#include "ops/core/radix.cuh"
#include "ops/movement/one_hot.h"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

struct Extents {
  Radix depth, inner;
  std::int64_t elems;
};

__device__ std::int64_t load_index(DType type, const void* indices, std::int64_t i) {
  switch (type) {
    case DType::i64:
      return static_cast<const std::int64_t*>(indices)[i];
    case DType::i32:
      return static_cast<const std::int32_t*>(indices)[i];
    case DType::f32:
      return convert<std::int64_t>(static_cast<const float*>(indices)[i]);
    case DType::f64:
      return convert<std::int64_t>(static_cast<const double*>(indices)[i]);
    case DType::i8:
      return static_cast<const std::int8_t*>(indices)[i];
    case DType::i16:
      return static_cast<const std::int16_t*>(indices)[i];
    case DType::u16:
      return static_cast<const std::uint16_t*>(indices)[i];
    default:  // of OneHotIndexTypes, u8
      return static_cast<const std::uint8_t*>(indices)[i];
  }
}

/// Without `values`, off and on are constants.
template <typename T>
__global__ void __launch_bounds__(threads) compare_index(DType type, const void* indices, const T* values, T off, T on,
                                                         T* y, const __grid_constant__ Extents extents) {
  wait_for_previous();
  const std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= extents.elems) return;
  const bool narrow = extents.elems < Radix::narrow_end;
  std::int64_t outer = at;
  const std::int64_t i = take_digit(outer, extents.inner, narrow), position = take_digit(outer, extents.depth, narrow);
  std::int64_t index = load_index(type, indices, outer * extents.inner.value + i);
  if (index < 0) index += extents.depth.value;
  const bool named = index == position;
  y[at] = values != nullptr ? values[named ? 1 : 0] : named ? on : off;
}

}  // namespace

void one_hot(const Context& context, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, const void* values, std::uint64_t off, std::uint64_t on, void* y) {
  const std::int64_t elems = shape.outer * shape.depth * shape.inner;
  if (elems == 0) return;
  const Extents extents{Radix(shape.depth), Radix(shape.inner), elems};
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    launch(context, compare_index<T>, blocks_for(elems, threads), threads, 0, index_type, indices,
           static_cast<const T*>(values), static_cast<T>(off), static_cast<T>(on), static_cast<T*>(y), extents);
  });
}

}  // namespace lenslet::cuda

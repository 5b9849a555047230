#include "ops/core/transpose_block.h"

#include "base/dtypes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/core/transpose_block.cpp"
// foreach_target.h must come before highway.h.
// clang-format off
#include "base/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lenslet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
void transpose(const T* from, std::int64_t from_step, T* to, std::int64_t to_step, std::int64_t rows,
               std::int64_t columns) {
  std::int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(wide));
  if (rows == 2 && to_step == 2)
    for (; columns >= lanes; columns -= lanes, from += lanes, to += 2 * lanes)
      hn::StoreInterleaved2(hn::LoadU(wide, from), hn::LoadU(wide, from + from_step), wide, to);
  if (columns == 2 && from_step == 2)
    for (; rows >= lanes; rows -= lanes, from += 2 * lanes, to += lanes) {
      hn::Vec<decltype(wide)> first, second;
      hn::LoadInterleaved2(wide, from, first, second);
      hn::StoreU(first, wide, to);
      hn::StoreU(second, wide, to + to_step);
    }
  // Square blocks in registers: one 16-byte vector per line.
  constexpr std::int64_t size = 16 / sizeof(T);
  const hn::FixedTag<T, size> d;
  whole_rows = rows / size * size, whole_columns = columns / size * size;
  for (std::int64_t j = 0; j < whole_columns; j += size)
    for (std::int64_t i = 0; i < whole_rows; i += size) {
      hn::Vec<decltype(d)> lines[size], shuffled[size];
      for (std::int64_t k = 0; k < size; ++k) lines[k] = hn::LoadU(d, from + (i + k) * from_step + j);
      // Each step moves the highest bit of the line number to the lowest bit of the element number.
      for (std::int64_t step = 1; step < size; step *= 2) {
        for (std::int64_t k = 0; k < size / 2; ++k) {
          shuffled[2 * k] = hn::InterleaveLower(d, lines[k], lines[k + size / 2]);
          shuffled[2 * k + 1] = hn::InterleaveUpper(d, lines[k], lines[k + size / 2]);
        }
        for (std::int64_t k = 0; k < size; ++k) lines[k] = shuffled[k];
      }
      for (std::int64_t k = 0; k < size; ++k) hn::StoreU(lines[k], d, to + (j + k) * to_step + i);
    }
#endif
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i)
      to[j * to_step + i] = from[i * from_step + j];
}

void transpose_kernel(std::size_t element_bytes, const void* from, std::int64_t from_step, void* to,
                      std::int64_t to_step, std::int64_t rows, std::int64_t columns) {
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    transpose(static_cast<const T*>(from), from_step, static_cast<T*>(to), to_step, rows, columns);
  });
}

}  // namespace lenslet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lenslet {

HWY_EXPORT(transpose_kernel);

void transpose_block(std::size_t element_bytes, const void* from, std::int64_t from_step, void* to,
                     std::int64_t to_step, std::int64_t rows, std::int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_kernel)(element_bytes, from, from_step, to, to_step, rows, columns);
}

}  // namespace lenslet
#endif

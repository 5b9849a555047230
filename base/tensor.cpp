#include "lenslet/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/boundary.h"
#include "base/convert.h"
#include "base/dtypes.h"
#include "base/format.h"
#include "lenslet/error.h"

namespace lenslet {

namespace {

// Whole cache lines, enough for AVX-512. From two huge pages' size on, aligned to and advised to use huge pages.
constexpr std::size_t tensor_alignment = 64, huge_page = std::size_t{2} << 20;
std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes < 2 * huge_page ? tensor_alignment : huge_page};
}

struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeRow dtype_rows[] = {
    {DType::f32, "float32", 4},
    {DType::f64, "float64", 8},
    {DType::f16, "float16", 2},
    {DType::bf16, "bfloat16", 2},
    {DType::i8, "int8", 1},
    {DType::u8, "uint8", 1},
    {DType::i16, "int16", 2},
    {DType::u16, "uint16", 2},
    {DType::i32, "int32", 4},
    {DType::u32, "uint32", 4},
    {DType::i64, "int64", 8},
    {DType::u64, "uint64", 8},
    {DType::boolean, "bool", 1},
    {DType::f8e4m3fn, "float8e4m3fn", 1},
    {DType::f8e4m3fnuz, "float8e4m3fnuz", 1},
    {DType::f8e5m2, "float8e5m2", 1},
    {DType::f8e5m2fnuz, "float8e5m2fnuz", 1},
    {DType::f8e8m0, "float8e8m0", 1},
    {DType::f4e2m1, "float4e2m1", 1},
    {DType::i4, "int4", 1},
    {DType::u4, "uint4", 1},
    {DType::i2, "int2", 1},
    {DType::u2, "uint2", 1},
};
static_assert(std::size(dtype_rows) == dtype_count);
static_assert(std::ranges::is_sorted(dtype_rows, {}, &DTypeRow::dtype), "rows are found by number");

std::shared_ptr<void> allocate(std::size_t bytes) {
  // The nothrow form: a throwing one would abort under sanitizers.
  const std::align_val_t alignment = alignment_of(bytes);
  void* const memory = ::operator new(bytes, alignment, std::nothrow);
#ifdef MADV_HUGEPAGE
  // Only a hint; failure is harmless. 64 MiB were mapped in 6 to 9 ms instead of 32 to 47, and strided reads have fewer
  // TLB misses.
  if (memory != nullptr && alignment == std::align_val_t{huge_page})
    (void)madvise(memory, bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
  return with_errors([&] {
    if (memory == nullptr)
      throw Error(ErrorKind::limit, "no memory for a tensor of " + std::to_string(bytes) + " bytes");
    return std::shared_ptr<void>(memory, [alignment](void* p) { ::operator delete(p, alignment); });
  });
}

// Element by element over the 4-D index, as defined: only weights and test data come this way (the LayoutConvert op
// does it fast).
template <typename T>
void copy_elements(const T* from, const Strides& of_from, T* to, const Strides& of_to, const Shape& shape) {
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t c = 0; c < shape[1]; ++c)
      for (std::int64_t h = 0; h < shape[2]; ++h)
        for (std::int64_t w = 0; w < shape[3]; ++w) to[of_to.at(n, c, h, w)] = from[of_from.at(n, c, h, w)];
}

}  // namespace

std::size_t dtype_bytes(DType dtype) noexcept { return dtype_rows[static_cast<std::size_t>(dtype)].bytes; }

std::string_view to_string(DType dtype) noexcept { return dtype_rows[static_cast<std::size_t>(dtype)].name; }

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) {
  with_errors([&] {
    if (dims.size() > static_cast<std::size_t>(max_rank))
      throw Error(ErrorKind::limit, "a tensor of rank " + std::to_string(dims.size()) + "; at most " +
                                        std::to_string(max_rank) + " is supported");
    for (const std::int64_t dim : dims) {
      if (dim < 0) throw Error(ErrorKind::invalid_argument, "a negative dimension: " + std::to_string(dim));
      dims_[static_cast<std::size_t>(rank_++)] = dim;
    }
  });
}

Shape Shape::with(int axis, std::int64_t dim) const {
  return at_boundary([&] {
    if (axis < 0 || axis >= rank_ || dim < 0)
      throw Error(ErrorKind::invalid_argument,
                  "dimension " + std::to_string(axis) + " of " + str() + " cannot become " + std::to_string(dim));
    Shape result = *this;
    result.dims_[static_cast<std::size_t>(axis)] = dim;
    return result;
  });
}

std::int64_t Shape::elems() const {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  std::int64_t product = 1;
  bool none = false;
  for (const std::int64_t dim : dims()) {
    if (dim == 0) {
      none = true;
      continue;
    }
    if (product > most / dim)
      throw Error(ErrorKind::limit, "a tensor of shape " + str() + " has more than 2^40 elements");
    product *= dim;
  }
  return none ? 0 : product;
}

std::string Shape::str() const {
  return with_errors([&] {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) {
      if (i > 0) text += ',';
      text += std::to_string((*this)[i]);
    }
    return text + "]";
  });
}

Tensor::Tensor(DType dtype, Shape shape, const Format& format)
    : elems_(shape.elems()),
      stored_(Strides(format, shape).stored),
      shape_(shape),
      dtype_(dtype),
      format_(format),
      allocated_(true) {
  auto memory = allocate(bytes());
  data_ = memory.get();
  owner_ = std::move(memory);
}

void Tensor::swap(Tensor& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(data_, other.data_);
  std::swap(elems_, other.elems_);
  std::swap(stored_, other.stored_);
  std::swap(shape_, other.shape_);
  std::swap(dtype_, other.dtype_);
  std::swap(format_, other.format_);
  std::swap(allocated_, other.allocated_);
}

Tensor Tensor::view(DType dtype, Shape shape, void* data, const Format& format) {
  Tensor tensor;
  if (data == nullptr && shape.elems() > 0)
    throw Error(ErrorKind::invalid_argument, "a tensor of shape " + shape.str() + " at address null");
  tensor.elems_ = shape.elems();
  tensor.stored_ = Strides(format, shape).stored;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.format_ = format;
  tensor.data_ = data;
  tensor.allocated_ = true;
  return tensor;
}

Tensor Tensor::share(DType dtype, Shape shape, std::shared_ptr<const void> owner, const void* data,
                     const Format& format) {
  // The const_cast is safe: constants are only read, through `const Tensor&`.
  Tensor tensor = view(dtype, shape, const_cast<void*>(data), format);
  tensor.owner_ = std::move(owner);
  return tensor;
}

template <typename T>
Tensor Tensor::of(Shape shape, std::span<const T> values) {
  Tensor tensor(dtype_of<T>::value, shape);
  if (static_cast<std::size_t>(tensor.elems()) != values.size())
    throw Error(ErrorKind::invalid_argument,
                std::to_string(values.size()) + " values for a tensor of shape " + shape.str());
  if (!values.empty()) std::memcpy(tensor.data_, values.data(), tensor.bytes());
  return tensor;
}

template Tensor Tensor::of<float>(Shape, std::span<const float>);
template Tensor Tensor::of<double>(Shape, std::span<const double>);
template Tensor Tensor::of<std::int32_t>(Shape, std::span<const std::int32_t>);
template Tensor Tensor::of<std::int64_t>(Shape, std::span<const std::int64_t>);
template Tensor Tensor::of<std::uint8_t>(Shape, std::span<const std::uint8_t>);

void Tensor::check_dtype(DType wanted) const {
  if (wanted != dtype_)
    throw Error(ErrorKind::invalid_argument,
                "a " + std::string(to_string(dtype_)) + " tensor was read as " + std::string(to_string(wanted)));
}

Tensor Tensor::reshaped(Shape shape) const {
  if (shape.elems() != elems_)
    throw Error(ErrorKind::invalid_argument, "cannot reshape " + shape_.str() + " to " + shape.str());
  Tensor result = *this;
  result.shape_ = shape;
  result.format_ = formats::nchw;
  return result;
}

Tensor Tensor::relabelled(const Format& format) const {
  Tensor result = *this;
  result.format_ = format;
  return result;
}

Tensor Tensor::clone() const {
  if (empty()) return {};
  Tensor result(dtype_, shape_, format_);
  if (bytes() > 0) std::memcpy(result.data_, data_, bytes());
  return result;
}

Tensor Tensor::to_format(const Format& format) const {
  if (empty() || same_bytes(format_, format, shape_)) return clone().relabelled(format);
  Tensor result(dtype_, shape_, format);
  std::memset(result.data_, 0, result.bytes());
  const Strides of_from(format_, shape_), of_to(format, shape_);
  const auto copy = [&]<typename T>(T) {
    copy_elements(static_cast<const T*>(data_), of_from, static_cast<T*>(result.data_), of_to, shape_);
  };
  switch (dtype_bytes(dtype_)) {
    case 1:
      copy(std::uint8_t{});
      break;
    case 2:
      copy(std::uint16_t{});
      break;
    case 4:
      copy(std::uint32_t{});
      break;
    default:
      copy(std::uint64_t{});
      break;
  }
  return result;
}

Tensor Tensor::to_dtype(DType dtype) const {
  if (empty()) return {};
  Tensor result(dtype, shape_, format_);
  convert_elements(dtype_, data_, dtype, result.data_, stored_);
  return result;
}

}  // namespace lenslet

#pragma once
// Shapes, element types, formats and the tensor that carries them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lenslet/export.h"

namespace lenslet {

/// Element types. Floats are computed in f32 or, where Numerics allows it, in 16 bits; integers in their own type.
/// Types from f8e4m3fn on are only moved and converted. Elements of fewer than 8 bits take one byte each in memory
/// (files pack them): i4 and i2 are stored as int8, u4 and u2 as uint8, f4e2m1 in the low 4 bits with the others 0.
// clang-format off
enum class DType : std::uint8_t {
  f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, boolean,
  f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1, i4, u4, i2, u2,
};
// clang-format on

/// Bytes of one element in memory.
LENSLET_API std::size_t dtype_bytes(DType dtype) noexcept;
/// ONNX's spelling: "float32", "int64", "bool" ...
LENSLET_API std::string_view to_string(DType dtype) noexcept;

/// The DType of a C++ type; float -> f32, bool -> boolean ... (f16 and bf16 have no C++ type here).
template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct dtype_of<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct dtype_of<std::int8_t> : std::integral_constant<DType, DType::i8> {};
template <>
struct dtype_of<std::uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct dtype_of<std::int16_t> : std::integral_constant<DType, DType::i16> {};
template <>
struct dtype_of<std::uint16_t> : std::integral_constant<DType, DType::u16> {};
template <>
struct dtype_of<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct dtype_of<std::uint32_t> : std::integral_constant<DType, DType::u32> {};
template <>
struct dtype_of<std::int64_t> : std::integral_constant<DType, DType::i64> {};
template <>
struct dtype_of<std::uint64_t> : std::integral_constant<DType, DType::u64> {};
template <>
struct dtype_of<bool> : std::integral_constant<DType, DType::boolean> {};

/// The memory layout of a 4-D tensor. Shapes are ALWAYS in N C H W order, in every format: a format only says where
/// element (n,c,h,w) is stored. An application's tensors and a run's outputs are nchw; observers see other formats,
/// which Tensor::to_format(formats::nchw) converts. Tensors of another rank are row-major in every format.
struct Format {
  enum class Order : std::uint8_t {
    row_major,      ///< the order of the shape
    channels_last,  ///< N, H, W, C
  };
  /// Elements of padding stored around each image; the step that writes them defines their contents.
  struct Halo {
    std::int64_t top = 0, left = 0, bottom = 0, right = 0;
    friend bool operator==(const Halo&, const Halo&) = default;
  };
  static constexpr std::int32_t max_channel_block = 1024;

  Order order = Order::row_major;
  /// Channels stored side by side as the innermost axis: nchw8c is [N][C/8][H][W][8], nhwc4c [N][H][W][C/4][4]. The
  /// last block is padded to its full length; the padding's contents are undefined.
  std::int32_t channel_block = 1;
  Halo halo{};
  /// Pixel pitch with channels last: elements from one pixel to the next, for a tensor that is some channels of a
  /// larger one. The elements between belong to other tensors; bytes() and values() span them. 0: dense.
  std::int64_t pixel_pitch = 0;

  friend bool operator==(const Format&, const Format&) = default;
};
namespace formats {
inline constexpr Format nchw{}, nhwc{.order = Format::Order::channels_last};
}
/// "nchw", "nhwc", "nchw8c", "nhwc+1,1,1,1" with a halo (top, left, bottom, right), "nhwc/256" with a pixel pitch.
LENSLET_API std::string to_string(const Format& format);

/// Dimensions of a tensor, outermost first; at most `max_rank`, each >= 0; rank 0 is a scalar.
class LENSLET_API Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  /// Error(limit) above max_rank, Error(invalid_argument) on a negative dimension.
  Shape(std::initializer_list<std::int64_t> dims);
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const noexcept { return rank_; }
  /// `axis` in [0, rank).
  std::int64_t operator[](int axis) const noexcept { return dims_[static_cast<std::size_t>(axis)]; }
  std::span<const std::int64_t> dims() const noexcept { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// A copy with one dimension replaced. Error(invalid_argument) for an axis out of range or a negative dimension.
  Shape with(int axis, std::int64_t dim) const;
  /// Product of the dimensions (1 for a scalar). Error(limit) when the product of the non-zero ones exceeds 2^40.
  std::int64_t elems() const;
  /// "[1,3,224,224]"
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, max_rank> dims_{};
  int rank_ = 0;
};

/// Host memory with a type, a shape and a format. Copying a Tensor shares the memory (reference-counted when owned);
/// `clone` copies the elements. A view refers to memory owned elsewhere, which must outlive it.
class LENSLET_API Tensor {
 public:
  /// No tensor: `empty()` is true.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor& operator=(const Tensor&) = default;
  /// The moved-from tensor is empty().
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() = default;
  void swap(Tensor& other) noexcept;
  /// Owning, 64-byte aligned, elements NOT initialised. Error(limit) for too many elements or out of memory.
  Tensor(DType dtype, Shape shape, const Format& format = formats::nchw);

  /// Non-owning view of `data`, which holds shape.elems() elements. Error(invalid_argument) for null, unless the shape
  /// has no elements.
  static Tensor view(DType dtype, Shape shape, void* data, const Format& format = formats::nchw);
  /// Read-only memory kept alive by `owner` (a mapped file, another tensor's storage). Null as for view().
  static Tensor share(DType dtype, Shape shape, std::shared_ptr<const void> owner, const void* data,
                      const Format& format = formats::nchw);
  /// Owning copy of `values`; Error(invalid_argument) when the count does not fit the shape.
  template <typename T>
  static Tensor of(Shape shape, std::span<const T> values);
  template <typename T>
  static Tensor of(Shape shape, std::initializer_list<T> values) {
    return of<T>(shape, std::span<const T>(values.begin(), values.size()));
  }

  bool empty() const noexcept { return data_ == nullptr && !allocated_; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  const Format& format() const noexcept { return format_; }
  std::int64_t elems() const noexcept { return elems_; }  ///< of the shape
  /// As stored: padded blocks and halo included.
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(stored_) * dtype_bytes(dtype_); }

  void* data() noexcept { return data_; }
  const void* data() const noexcept { return data_; }
  /// Typed elements in memory order; Error(invalid_argument) when T is not the element type.
  template <typename T>
  std::span<T> values();
  template <typename T>
  std::span<const T> values() const;

  /// The same memory with another shape of equal element count, else Error(invalid_argument). Meaningful for nchw only.
  Tensor reshaped(Shape shape) const;
  /// The same memory labelled with another format; the caller guarantees that the bytes match it.
  Tensor relabelled(const Format& format) const;
  /// Owning deep copy.
  Tensor clone() const;
  /// Owning copy stored in `format` (any dtype); a plain clone if no element moves. Padding (blocks, halo) is zero.
  Tensor to_format(const Format& format) const;
  /// Owning copy with another element type, in the same format, converted as by ONNX's Cast. To a float: round to
  /// nearest even, overflow to infinity; to a float of 8 bits or fewer: saturating (f8e8m0: up to a power of two,
  /// without the sign). From a float to an integer: towards zero, saturating, NaN to 0. From an integer to a smaller
  /// one, and always to 2 or 4 bits: the low bits. To bool: x != 0. Models with float16 ports take
  /// `f32.to_dtype(DType::f16)`; `outputs[0].to_dtype(DType::f32)` reads their outputs.
  Tensor to_dtype(DType dtype) const;

 private:
  void check_dtype(DType wanted) const;

  std::shared_ptr<const void> owner_;
  void* data_ = nullptr;
  std::int64_t elems_ = 0, stored_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
  Format format_;
  bool allocated_ = false;
};

extern template LENSLET_API Tensor Tensor::of<float>(Shape, std::span<const float>);
extern template LENSLET_API Tensor Tensor::of<double>(Shape, std::span<const double>);
extern template LENSLET_API Tensor Tensor::of<std::int32_t>(Shape, std::span<const std::int32_t>);
extern template LENSLET_API Tensor Tensor::of<std::int64_t>(Shape, std::span<const std::int64_t>);
extern template LENSLET_API Tensor Tensor::of<std::uint8_t>(Shape, std::span<const std::uint8_t>);

template <typename T>
std::span<T> Tensor::values() {
  check_dtype(dtype_of<T>::value);
  return {static_cast<T*>(data_), static_cast<std::size_t>(stored_)};
}
template <typename T>
std::span<const T> Tensor::values() const {
  check_dtype(dtype_of<T>::value);
  return {static_cast<const T*>(data_), static_cast<std::size_t>(stored_)};
}

}  // namespace lenslet

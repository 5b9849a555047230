#pragma once
// Shared by the files of this folder: the table entries of each family, and access to attributes and inputs.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/oracle.h"

namespace lenslet::oracle {

using Inputs = std::span<const Array>;
using Reference = std::vector<Array> (*)(const AttributeList& attributes, Inputs inputs);

struct Entry {
  std::string_view op;
  Reference run = nullptr;
};

// One table a family; oracle.cpp lists them. A new family: a file here, its declaration, a line in oracle.cpp.
std::span<const Entry> elementwise_entries();    // elementwise.cpp
std::span<const Entry> normalization_entries();  // normalization.cpp
std::span<const Entry> pool_entries();           // pool.cpp
std::span<const Entry> matmul_entries();         // matmul.cpp
std::span<const Entry> shape_entries();          // shapes.cpp
std::span<const Entry> indexing_entries();       // indexing.cpp
std::span<const Entry> reduction_entries();      // reductions.cpp
std::span<const Entry> pad_entries();            // pad.cpp
std::span<const Entry> conv_entries();           // conv.cpp
std::span<const Entry> quantized_entries();      // quantized.cpp
std::span<const Entry> resize_entries();         // resize.cpp
std::span<const Entry> grid_entries();           // grids.cpp
std::span<const Entry> sparse_entries();         // sparse.cpp
std::span<const Entry> recurrent_entries();      // recurrent.cpp

/// A running sum and the sum of its terms' squared magnitudes.
struct Sum {
  double value = 0, squares = 0;
  void add(double term, double size) {
    value += term;
    squares += size * size;
  }
  void add(double term) { add(term, term); }
  double scale() const { return std::max(std::fabs(value), std::sqrt(squares)); }
};
/// A result and its Array::scale.
struct Scaled {
  double value = 0, scale = 0;
};
/// f(value), where `scale` measures the errors of `value`. The result's scale is its magnitude, or `scale` times the
/// function's steepest slope nearby if that is larger.
Scaled through(const std::function<double(double)>& f, double value, double scale);
/// zeros() with a scale of zeros.
Array sums(const Shape& shape, DType dtype);
/// Sets element i and its scale.
void put(Array& y, std::size_t i, const Scaled& result);
inline void put(Array& y, std::size_t i, const Sum& sum) { put(y, i, Scaled{sum.value, sum.scale()}); }

/// The activation named by the attributes activation, activation_alpha and activation_beta (conv.cpp); empty if none.
std::function<double(double)> fused_activation(const AttributeList& attributes);

/// Attributes with multipliers, of an operator whose sums are integers (Epilogue::requantize): the sums as stored
/// codes.
Array requantized(const AttributeList& attributes, Array sums, int channel_axis);

/// A missing attribute gives the fallback; a wrong kind throws Error(invalid_argument).
std::int64_t integer(const AttributeList& attributes, std::string_view name, std::int64_t fallback);
double real(const AttributeList& attributes, std::string_view name, double fallback);
std::string text(const AttributeList& attributes, std::string_view name, std::string_view fallback);
std::vector<std::int64_t> integers(const AttributeList& attributes, std::string_view name,
                                   std::vector<std::int64_t> fallback = {});
std::vector<double> reals(const AttributeList& attributes, std::string_view name);
bool has(const AttributeList& attributes, std::string_view name);

/// Whether input i was given.
bool has(Inputs inputs, std::size_t i);
/// Input i; Error(invalid_argument) when it was left out.
const Array& at(Inputs inputs, std::size_t i);
/// The integers that an input holds, clamped to int64.
std::vector<std::int64_t> as_integers(const Array& array);

/// A float of 8 or 4 bits.
bool is_small_float(DType dtype);
/// Casts `value` to such a type; the result may be an infinity or NaN. `mode` of float8e8m0: "up", "down" or "nearest".
double round_small(double value, DType dtype, bool saturate, std::string_view mode);
/// Whether it is an integer type.
bool is_integer(DType dtype);
/// Bits and sign of an integer type.
struct IntegerType {
  int bits = 0;
  bool is_signed = false;
};
IntegerType integer_type(DType dtype);
/// From ONNX's number of the element type (TensorProto.DataType).
DType dtype_of_number(std::int64_t number);

/// An array of zeros.
Array zeros(const Shape& shape, DType dtype);
/// Row-major strides in elements.
std::vector<std::int64_t> strides_of(const Shape& shape);
/// A multi-dimensional index without allocation: references make one for each element, and it was half their time.
class Index {
 public:
  Index() = default;
  explicit Index(std::size_t size) : size_(size) {}
  Index(std::initializer_list<std::int64_t> list) : Index(list.begin(), list.end()) {}
  Index(const std::int64_t* first, const std::int64_t* last) { append(first, last); }
  std::size_t size() const { return size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return begin() + size_; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return begin() + size_; }
  std::int64_t& operator[](std::size_t i) { return values_[i]; }
  std::int64_t operator[](std::size_t i) const { return values_[i]; }
  std::int64_t& back() { return values_[size_ - 1]; }
  std::int64_t back() const { return values_[size_ - 1]; }
  void push_back(std::int64_t value) { values_.at(size_) = value, ++size_; }
  void append(const std::int64_t* first, const std::int64_t* last) {
    for (; first != last; ++first) push_back(*first);
  }
  void erase(std::size_t i) { std::copy(begin() + i + 1, end(), begin() + i), --size_; }

 private:
  std::array<std::int64_t, Shape::max_rank> values_{};
  std::size_t size_ = 0;
};
/// Multi-dimensional index of element `flat`.
Index index_of(const Shape& shape, std::int64_t flat);
std::int64_t flat_of(const Shape& shape, std::span<const std::int64_t> index);
/// A negative axis counted from the end; Error(invalid_argument) outside [-rank, rank).
int axis_of(std::int64_t axis, int rank);

}  // namespace lenslet::oracle

#include "lenslet/tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/boundary.h"
#include "lenslet/error.h"
#include "models/input_file.h"
#include "models/limits.h"
#include "models/npy_header.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"
#include "models/write_file.h"

namespace lenslet {

namespace {

// Elements whose first index runs fastest, into row-major order.
void from_fortran_order(const std::byte* from, Tensor& tensor) {
  const auto dims = tensor.shape().dims();
  const std::size_t element = dtype_bytes(tensor.dtype());
  auto* to = static_cast<std::byte*>(tensor.data());
  std::array<std::int64_t, Shape::max_rank> index{}, stride{};
  std::exclusive_scan(dims.begin(), dims.end(), stride.begin(), std::int64_t{1}, std::multiplies());
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < tensor.elems(); ++i, to += element) {
    std::memcpy(to, from + static_cast<std::size_t>(at) * element, element);
    for (std::size_t axis = dims.size(); axis-- > 0;) {
      at += stride[axis];
      if (++index[axis] < dims[axis]) break;
      at -= stride[axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

Tensor read_npy(const InputFile& file) {
  constexpr std::uint64_t most = limits::npy_header_bytes + 12;  // and magic, version and length
  std::vector<std::byte> begin(static_cast<std::size_t>(std::min(file.bytes(), most)));
  file.read(0, begin);
  const NpyHeader header = parse_npy_header(begin);
  const std::int64_t elems = header.shape.elems();
  if (elems > limits::tensor_elems)
    throw Error(ErrorKind::limit, fmt::format("a tensor of shape {} has more elements than the {} allowed",
                                              header.shape.str(), limits::tensor_elems));
  const std::uint64_t there = file.bytes() - header.data_offset;
  const std::uint64_t needed = static_cast<std::uint64_t>(elems) * dtype_bytes(header.dtype);
  if (there != needed)
    throw Error(ErrorKind::io, fmt::format("not a readable .npy file: {} elements of shape {} need {} bytes, it has {}",
                                           to_string(header.dtype), header.shape.str(), needed, there));
  Tensor tensor(header.dtype, header.shape);
  const std::span<std::byte> data{static_cast<std::byte*>(tensor.data()), tensor.bytes()};
  file.read(header.data_offset, data);
  if (header.dtype == DType::boolean)
    for (const std::byte b : data)
      if (b > std::byte{1}) throw Error(ErrorKind::io, "not a readable .npy file: a bool that is neither 0 nor 1");
  if (!header.fortran_order || data.empty()) return tensor;
  Tensor rows(header.dtype, header.shape);
  from_fortran_order(data.data(), rows);
  return rows;
}

}  // namespace

Tensor read_npy(const std::filesystem::path& file) {
  return at_boundary([&] {
    const InputFile input(file, limits::tensor_file_bytes);
    try {
      return read_npy(input);
    } catch (const Error& error) {
      throw error.within(file.string());
    }
  });
}

void write_npy(const std::filesystem::path& file, const Tensor& tensor) {
  at_boundary([&] {
    if (tensor.empty()) throw Error(ErrorKind::invalid_argument, "there is no tensor to write", file.string());
    std::string header;
    try {
      header = npy_header(tensor.dtype(), tensor.shape());
    } catch (const Error& error) {
      throw error.within(file.string());
    }
    const Tensor plain = tensor.format() == formats::nchw ? tensor : tensor.to_format(formats::nchw);
    write_file(file, {std::as_bytes(std::span(header)), {static_cast<const std::byte*>(plain.data()), plain.bytes()}});
  });
}

Tensor read_tensor_pb(const std::filesystem::path& file, std::string* name) {
  return at_boundary([&] {
    const Tensor bytes = read_file(file, limits::tensor_file_bytes);
    try {
      const OnnxTensor tensor = read_onnx_tensor({static_cast<const std::byte*>(bytes.data()), bytes.bytes()});
      if (name != nullptr) *name = std::string(tensor.name);
      return to_tensor(tensor, {});
    } catch (const Error& error) {
      throw error.within(file.string());
    }
  });
}

}  // namespace lenslet

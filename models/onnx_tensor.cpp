#include "models/onnx_tensor.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtypes.h"
#include "base/small_types.h"
#include "lenslet/error.h"
#include "models/limits.h"
#include "models/wire.h"
#include "ops/core/onnx_types.h"

namespace lenslet {

namespace {

using protozero::pbf_wire_type;

static_assert(std::endian::native == std::endian::little, "raw_data and .npy are read as little-endian");

// The field of TensorProto that holds elements of a type when raw_data does not.
std::uint32_t typed_field(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 10;
    case DType::i64:
      return 7;
    case DType::u32:
    case DType::u64:
      return 11;
    default:
      return 5;
  }
}

Shape checked_shape(const OnnxTensor& tensor) {
  if (tensor.dims.size() > static_cast<std::size_t>(limits::rank))
    throw Error(ErrorKind::limit, fmt::format("a tensor of rank above {}", limits::rank));
  for (const std::int64_t dim : tensor.dims)
    if (dim < 0) throw Error(ErrorKind::invalid_model, fmt::format("a tensor with dimension {}", dim));
  const Shape shape{std::span<const std::int64_t>(tensor.dims)};
  const std::int64_t elems = shape.elems();
  if (elems > limits::tensor_elems)
    throw Error(ErrorKind::limit, fmt::format("a tensor of shape {} has more elements than the {} allowed", shape.str(),
                                              limits::tensor_elems));
  return shape;
}

// What elements take in a file: those of 4 and 2 bits share bytes.
std::uint64_t file_bytes(DType dtype, const Shape& shape) {
  return (static_cast<std::uint64_t>(shape.elems()) * static_cast<std::uint64_t>(dtype_bits(dtype)) + 7) / 8;
}

// Elements of 4 or 2 bits, the first of each byte in its low bits; what is left of the last byte is not looked at.
Tensor unpack(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  const auto bits = static_cast<unsigned>(dtype_bits(dtype)), each = 8 / bits, mask = (1U << bits) - 1;
  const unsigned sign = stored_as(dtype) == DType::i8 ? 1U << (bits - 1) : 0;
  Tensor result(dtype, shape);
  auto* const to = static_cast<std::uint8_t*>(result.data());
  for (std::size_t i = 0; i < result.bytes(); ++i) {
    const unsigned element = (std::to_integer<unsigned>(bytes[i / each]) >> (i % each * bits)) & mask;
    to[i] = static_cast<std::uint8_t>((element ^ sign) - sign);
  }
  return result;
}

// Calls visit(chunk) for the packed bytes of each occurrence of `field`.
template <typename Visit>
void for_each_chunk(const OnnxTensor& tensor, std::uint32_t field, pbf_wire_type element, Visit&& visit) {
  WireMessage in(tensor.message, "TensorProto");
  while (in.next()) {
    if (in.field() == field)
      visit(in.numbers(element));
    else
      in.skip();
  }
}

[[noreturn]] void fail_count(std::uint64_t found, const Shape& shape) {
  throw Error(ErrorKind::invalid_model, fmt::format("a tensor of shape {} needs {} elements, its data has {}",
                                                    shape.str(), shape.elems(), found));
}

// float_data, double_data: elements lie as they are.
Tensor decode_fixed(const OnnxTensor& tensor, DType dtype, const Shape& shape) {
  const std::size_t element_bytes = dtype_bytes(dtype);
  const auto wire = element_bytes == 4 ? pbf_wire_type::fixed32 : pbf_wire_type::fixed64;
  const std::uint32_t field = typed_field(dtype);
  std::uint64_t bytes = 0;
  for_each_chunk(tensor, field, wire, [&](std::span<const std::byte> chunk) {
    if (chunk.size() % element_bytes != 0)
      throw Error(ErrorKind::invalid_model, "not a readable ONNX file: numbers cut off in TensorProto");
    bytes += chunk.size();
  });
  if (bytes != static_cast<std::uint64_t>(shape.elems()) * element_bytes) fail_count(bytes / element_bytes, shape);
  Tensor result(dtype, shape);
  auto* to = static_cast<std::byte*>(result.data());
  for_each_chunk(tensor, field, wire, [&to](std::span<const std::byte> chunk) {
    if (!chunk.empty()) std::memcpy(to, chunk.data(), chunk.size());
    to += chunk.size();
  });
  return result;
}

template <typename T>
void decode_varints_as(const OnnxTensor& tensor, std::uint32_t field, T* to) {
  for_each_chunk(tensor, field, pbf_wire_type::varint, [&to](std::span<const std::byte> chunk) {
    for_each_varint(chunk, [&to](std::uint64_t bits) {
      // A negative number is a 64-bit one; of 64 unsigned bits there is none.
      if constexpr (!std::is_same_v<T, std::uint64_t>)
        if (const auto value = static_cast<std::int64_t>(bits);
            value < static_cast<std::int64_t>(std::numeric_limits<T>::min()) ||
            value > static_cast<std::int64_t>(std::numeric_limits<T>::max()))
          throw Error(ErrorKind::invalid_model, fmt::format("element {} does not fit the tensor's type", value));
      *to++ = static_cast<T>(bits);
    });
  });
}

// int32_data, int64_data and uint64_data: varints, of which there must be exactly as many as elements.
Tensor decode_varints(const OnnxTensor& tensor, DType dtype, const Shape& shape) {
  if (dtype_bits(dtype) < 8) {  // as the integers of the bytes that they share
    const Shape packed{static_cast<std::int64_t>(file_bytes(dtype, shape))};
    const Tensor shared = decode_varints(tensor, DType::u8, packed);
    return unpack(dtype, shape, std::as_bytes(shared.values<std::uint8_t>()));
  }
  const std::uint32_t field = typed_field(dtype);
  std::uint64_t count = 0;
  for_each_chunk(tensor, field, pbf_wire_type::varint,
                 [&count](std::span<const std::byte> chunk) { count += count_varints(chunk); });
  if (count != static_cast<std::uint64_t>(shape.elems())) fail_count(count, shape);
  Tensor result(dtype, shape);
  void* const to = result.data();
  if (dtype == DType::f16 || dtype == DType::bf16)  // as the integers of their bits
    decode_varints_as(tensor, field, static_cast<std::uint16_t*>(to));
  else if (dtype == DType::boolean || is_small_float(dtype))  // the range of a bool is checked with raw data's
    decode_varints_as(tensor, field, static_cast<std::uint8_t*>(to));
  else
    dispatch(dtype,
             Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t>(),
             [&]<typename T>(std::type_identity<T>) { decode_varints_as(tensor, field, static_cast<T*>(to)); });
  return result;
}

// Shared when its bytes live on (and are aligned then) and hold an element each at least, else copied.
Tensor from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes,
                  const std::shared_ptr<const void>& owner) {
  if (dtype_bits(dtype) < 8) return unpack(dtype, shape, bytes);
  if (owner && !bytes.empty()) return Tensor::share(dtype, shape, owner, bytes.data());
  Tensor result(dtype, shape);
  if (!bytes.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

void check_booleans(const Tensor& tensor) {
  const auto* bytes = static_cast<const std::uint8_t*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.elems(); ++i)
    if (bytes[i] > 1) throw Error(ErrorKind::invalid_model, fmt::format("a bool tensor holds the byte {}", bytes[i]));
}

Tensor read_elements(const OnnxTensor& tensor, DType dtype, const Shape& shape, const TensorSource& source) {
  const std::uint64_t bytes = file_bytes(dtype, shape);
  if (tensor.external) {
    if (tensor.has_raw_data || tensor.typed_fields != 0)
      throw Error(ErrorKind::invalid_model, "a tensor with both external data and data of its own");
    if (source.external == nullptr) throw Error(ErrorKind::unsupported, "external data is not read here");
    const WeightMemory::Part part = source.external->read(tensor, bytes);
    return from_bytes(dtype, shape, part.bytes, part.owner);
  }
  if (tensor.has_raw_data) {
    if (tensor.typed_fields != 0) throw Error(ErrorKind::invalid_model, "a tensor with both raw_data and typed data");
    if (tensor.raw_data.size() != bytes)
      throw Error(ErrorKind::invalid_model, fmt::format("a {} tensor of shape {} needs {} bytes, raw_data has {}",
                                                        to_string(dtype), shape.str(), bytes, tensor.raw_data.size()));
    if (source.file != nullptr)
      if (const WeightMemory::Part part = source.file->read(tensor.raw_data); part.owner)
        return from_bytes(dtype, shape, part.bytes, part.owner);
    return from_bytes(dtype, shape, tensor.raw_data, nullptr);
  }
  if ((tensor.typed_fields & ~(1U << typed_field(dtype))) != 0)
    throw Error(ErrorKind::invalid_model,
                fmt::format("a {} tensor whose data sits in a field of another type", to_string(dtype)));
  if (dtype == DType::f32 || dtype == DType::f64) return decode_fixed(tensor, dtype, shape);
  return decode_varints(tensor, dtype, shape);
}

}  // namespace

Tensor to_tensor(const OnnxTensor& tensor, const TensorSource& source) {
  if (tensor.type == 0) throw Error(ErrorKind::invalid_model, "a tensor without an element type");
  const std::optional<DType> dtype = dtype_of_onnx(tensor.type);
  if (!dtype)
    throw Error(ErrorKind::unsupported, fmt::format("tensors of {} are not supported", onnx_type_name(tensor.type)));
  if (tensor.segmented) throw Error(ErrorKind::unsupported, "tensors in segments are not supported");
  const Shape shape = checked_shape(tensor);
  Tensor result = read_elements(tensor, *dtype, shape, source);
  if (*dtype == DType::boolean) check_booleans(result);
  return result;
}

}  // namespace lenslet

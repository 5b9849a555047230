#include "c_api/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "c_api/structs.h"
#include "lenslet/error.h"

namespace lenslet::c_api {

namespace {

// The numbers are fixed by lenslet.h, independent of the C++ enumerators.
static_assert(static_cast<int>(DType::f32) == LENSLET_F32 && static_cast<int>(DType::f64) == LENSLET_F64 &&
              static_cast<int>(DType::f16) == LENSLET_F16 && static_cast<int>(DType::bf16) == LENSLET_BF16 &&
              static_cast<int>(DType::i8) == LENSLET_I8 && static_cast<int>(DType::u8) == LENSLET_U8 &&
              static_cast<int>(DType::i16) == LENSLET_I16 && static_cast<int>(DType::u16) == LENSLET_U16 &&
              static_cast<int>(DType::i32) == LENSLET_I32 && static_cast<int>(DType::u32) == LENSLET_U32 &&
              static_cast<int>(DType::i64) == LENSLET_I64 && static_cast<int>(DType::u64) == LENSLET_U64 &&
              static_cast<int>(DType::boolean) == LENSLET_BOOL &&
              static_cast<int>(DType::f8e4m3fn) == LENSLET_F8E4M3FN &&
              static_cast<int>(DType::f8e4m3fnuz) == LENSLET_F8E4M3FNUZ &&
              static_cast<int>(DType::f8e5m2) == LENSLET_F8E5M2 &&
              static_cast<int>(DType::f8e5m2fnuz) == LENSLET_F8E5M2FNUZ &&
              static_cast<int>(DType::f8e8m0) == LENSLET_F8E8M0 && static_cast<int>(DType::f4e2m1) == LENSLET_F4E2M1 &&
              static_cast<int>(DType::i4) == LENSLET_I4 && static_cast<int>(DType::u4) == LENSLET_U4 &&
              static_cast<int>(DType::i2) == LENSLET_I2 && static_cast<int>(DType::u2) == LENSLET_U2);
static_assert(Shape::max_rank == LENSLET_MAX_RANK);

bool is_dtype(std::int32_t number) { return number >= LENSLET_F32 && number <= LENSLET_U2; }

[[noreturn]] void refuse(const char* name, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", name, why));
}

IoTensor io_tensor(const lenslet_tensor& given, bool optional, const char* name) {
  if (given.memory != LENSLET_ON_HOST && given.memory != LENSLET_ON_CUDA)
    refuse(name, fmt::format("memory is {}", given.memory));
  const bool nothing = given.data == nullptr && given.bytes == 0 && given.rank == 0 && given.dtype == 0;
  if (nothing || (given.data == nullptr && optional)) return {};
  if (!is_dtype(given.dtype)) refuse(name, fmt::format("dtype is {}", given.dtype));
  const auto dtype = static_cast<DType>(given.dtype);
  const Shape shape = shape_of(given.dims, given.rank, name);
  const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * dtype_bytes(dtype);
  if (given.bytes != bytes)
    refuse(name, fmt::format("{} bytes, but {}{} has {}", given.bytes, to_string(dtype), shape.str(), bytes));
  if (given.data == nullptr && bytes > 0) refuse(name, "data is NULL");
  return {Tensor::view(dtype, shape, given.data), given.memory == LENSLET_ON_CUDA};
}

}  // namespace

Shape shape_of(const std::int64_t* dims, std::int32_t rank, const char* name) {
  if (rank < 0 || rank > LENSLET_MAX_RANK) refuse(name, fmt::format("rank is {}, at most {}", rank, LENSLET_MAX_RANK));
  return Shape(std::span(dims, static_cast<std::size_t>(rank)));
}

void take_tensors(const lenslet_tensor* given, std::size_t count, bool optional, const char* name,
                  std::vector<IoTensor>& to) {
  to.clear();
  if (count > 0) check_given(given, name);
  for (std::size_t i = 0; i < count; ++i) to.push_back(io_tensor(taken_from(given, i, name), optional, name));
}

Tensor host_copy(const lenslet_tensor& given, const char* name) {
  const IoTensor tensor = io_tensor(given, false, name);
  if (tensor.tensor.empty()) refuse(name, "data is NULL");
  if (tensor.on_cuda) refuse(name, "lies on a CUDA device, and is read on the host");
  Tensor copy(tensor.tensor.dtype(), tensor.tensor.shape());
  if (copy.bytes() > 0) std::memcpy(copy.data(), tensor.tensor.data(), copy.bytes());
  return copy;
}

lenslet_tensor as_c(const Tensor& tensor) {
  lenslet_tensor made{};
  made.struct_size = sizeof(made);
  made.rank = -1;
  if (tensor.empty()) return made;
  made.data = const_cast<void*>(tensor.data());
  made.bytes = tensor.bytes();
  made.dtype = static_cast<std::int32_t>(tensor.dtype());
  made.rank = tensor.shape().rank();
  std::ranges::copy(tensor.shape().dims(), made.dims);
  return made;
}

lenslet_port as_c(const PortInfo& port) {
  lenslet_port made{};
  made.struct_size = sizeof(made);
  made.name = port.name.c_str();
  made.dtype = static_cast<std::int32_t>(port.dtype);
  if (port.dims.size() > LENSLET_MAX_RANK)
    throw Error(ErrorKind::limit, fmt::format("'{}' has {} dimensions", port.name, port.dims.size()));
  made.rank = static_cast<std::int32_t>(port.dims.size());
  made.unread = port.unread ? 1 : 0;
  for (std::size_t i = 0; i < LENSLET_MAX_RANK; ++i) {
    made.dims[i] = i < port.dims.size() ? port.dims[i] : 0;
    made.dim_names[i] = i < port.dims.size() && i < port.dim_names.size() ? port.dim_names[i].c_str() : "";
  }
  return made;
}

}  // namespace lenslet::c_api

size_t lenslet_dtype_bytes(int32_t dtype) {
  return lenslet::c_api::is_dtype(dtype) ? lenslet::dtype_bytes(static_cast<lenslet::DType>(dtype)) : 0;
}

const char* lenslet_dtype_name(int32_t dtype) {
  // Of a literal, which ends in 0.
  return lenslet::c_api::is_dtype(dtype) ? lenslet::to_string(static_cast<lenslet::DType>(dtype)).data() : "";
}

#include "ops/core/onnx_types.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>

#include "lenslet/error.h"

namespace lenslet {

namespace {

struct OnnxType {
  std::string_view name;
  std::optional<DType> dtype;
};

// By number.
constexpr std::array<OnnxType, 29> onnx_types{{
    {"no type", std::nullopt},
    {"float32", DType::f32},
    {"uint8", DType::u8},
    {"int8", DType::i8},
    {"uint16", DType::u16},
    {"int16", DType::i16},
    {"int32", DType::i32},
    {"int64", DType::i64},
    {"string", std::nullopt},
    {"bool", DType::boolean},
    {"float16", DType::f16},
    {"float64", DType::f64},
    {"uint32", DType::u32},
    {"uint64", DType::u64},
    {"complex64", std::nullopt},
    {"complex128", std::nullopt},
    {"bfloat16", DType::bf16},
    {"float8e4m3fn", DType::f8e4m3fn},
    {"float8e4m3fnuz", DType::f8e4m3fnuz},
    {"float8e5m2", DType::f8e5m2},
    {"float8e5m2fnuz", DType::f8e5m2fnuz},
    {"uint4", DType::u4},
    {"int4", DType::i4},
    {"float4e2m1", DType::f4e2m1},
    {"float8e8m0", DType::f8e8m0},
    {"uint2", DType::u2},
    {"int2", DType::i2},
    {"float6e2m3", std::nullopt},
    {"float6e3m2", std::nullopt},
}};

const OnnxType* find(std::int64_t data_type) noexcept {
  const bool defined = data_type >= 0 && data_type < static_cast<std::int64_t>(onnx_types.size());
  return defined ? &onnx_types[static_cast<std::size_t>(data_type)] : nullptr;
}

}  // namespace

std::optional<DType> dtype_of_onnx(std::int64_t data_type) noexcept {
  const OnnxType* type = find(data_type);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string onnx_type_name(std::int64_t data_type) {
  const OnnxType* type = find(data_type);
  return type == nullptr ? fmt::format("type {}", data_type) : std::string(type->name);
}

DType dtype_from_onnx(std::int64_t data_type) {
  if (const auto dtype = dtype_of_onnx(data_type)) return *dtype;
  if (data_type == 0 || find(data_type) == nullptr)
    throw Error(ErrorKind::invalid_model, fmt::format("{} is not an ONNX element type", data_type));
  throw Error(ErrorKind::unsupported, fmt::format("element type {} is not supported", onnx_type_name(data_type)));
}

std::int64_t dtype_to_onnx(DType dtype) noexcept {
  for (std::size_t i = 0; i < onnx_types.size(); ++i)
    if (onnx_types[i].dtype == dtype) return static_cast<std::int64_t>(i);
  return 0;
}

}  // namespace lenslet

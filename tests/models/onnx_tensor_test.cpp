// Initializers: every element type from every field that may hold it.

#include "models/onnx_tensor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "models/onnx_reader.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

Tensor read(const std::string& data) { return to_tensor(read_onnx_tensor(bytes_of(data)), {}); }

// Through int32_data, packed or element by element.
std::string int32_tensor(int type, const std::vector<std::int32_t>& values, bool packed) {
  return tensor("t", type, {static_cast<std::int64_t>(values.size())}, [&](pbf_writer& writer) {
    if (packed)
      writer.add_packed_int32(5, values.begin(), values.end());
    else
      for (const std::int32_t value : values) writer.add_int32(5, value);
  });
}

template <typename T>
void check_values(const Tensor& read_back, std::initializer_list<T> expected) {
  REQUIRE(read_back.elems() == static_cast<std::int64_t>(expected.size()));
  std::int64_t i = 0;
  for (const T value : expected) CHECK(static_cast<const T*>(read_back.data())[i++] == value);
}

}  // namespace

TEST_CASE("onnx_tensor/raw_data") {
  check_values<float>(read(raw_tensor<float>("t", f32, {2}, {1.5F, -2})), {1.5F, -2});
  check_values<double>(read(raw_tensor<double>("t", f64, {1}, {0.1})), {0.1});
  check_values<std::int8_t>(read(raw_tensor<std::int8_t>("t", i8, {2}, {-128, 127})), {-128, 127});
  check_values<std::uint8_t>(read(raw_tensor<std::uint8_t>("t", u8, {1}, {255})), {255});
  check_values<std::int16_t>(read(raw_tensor<std::int16_t>("t", i16, {1}, {-300})), {-300});
  check_values<std::uint16_t>(read(raw_tensor<std::uint16_t>("t", u16, {1}, {65535})), {65535});
  check_values<std::int32_t>(read(raw_tensor<std::int32_t>("t", i32, {1}, {-70000})), {-70000});
  check_values<std::int64_t>(read(raw_tensor<std::int64_t>("t", i64, {1}, {1LL << 40})), {1LL << 40});
  check_values<std::uint8_t>(read(raw_tensor<std::uint8_t>("t", boolean, {2}, {0, 1})), {0, 1});
  check_values<std::uint16_t>(read(raw_tensor<std::uint16_t>("t", f16, {1}, {0x3C00})), {0x3C00});
  check_values<std::uint16_t>(read(raw_tensor<std::uint16_t>("t", bf16, {1}, {0x3F80})), {0x3F80});
  const Tensor scalar = read(raw_tensor<float>("t", f32, {}, {7}));
  CHECK(scalar.shape().rank() == 0);
  CHECK(read(tensor("t", f32, {0, 3})).elems() == 0);
}

TEST_CASE("onnx_tensor/typed_fields") {
  for (const bool packed : {true, false}) {
    CAPTURE(packed);
    check_values<std::int8_t>(read(int32_tensor(i8, {-128, 127}, packed)), {-128, 127});
    check_values<std::uint8_t>(read(int32_tensor(u8, {0, 255}, packed)), {0, 255});
    check_values<std::int16_t>(read(int32_tensor(i16, {-32768, 32767}, packed)), {-32768, 32767});
    check_values<std::uint16_t>(read(int32_tensor(u16, {0, 65535}, packed)), {0, 65535});
    check_values<std::int32_t>(read(int32_tensor(i32, {-2147483647, 5}, packed)), {-2147483647, 5});
    check_values<std::uint8_t>(read(int32_tensor(boolean, {1, 0}, packed)), {1, 0});
    check_values<std::uint16_t>(read(int32_tensor(f16, {0xFC00}, packed)), {0xFC00});
    check_values<std::uint16_t>(read(int32_tensor(bf16, {0xFF80}, packed)), {0xFF80});
  }
  const std::vector<float> floats{1, 2};
  // A packed part and a single element after it belong to one list.
  check_values<float>(read(tensor("t", f32, {3},
                                  [&](pbf_writer& writer) {
                                    writer.add_packed_float(4, floats.begin(), floats.end());
                                    writer.add_float(4, 3);
                                  })),
                      {1, 2, 3});
  const std::vector<double> doubles{1e300};
  check_values<double>(
      read(tensor("t", f64, {1},
                  [&](pbf_writer& writer) { writer.add_packed_double(10, doubles.begin(), doubles.end()); })),
      {1e300});
  const std::vector<std::int64_t> longs{-1, 1LL << 50};
  check_values<std::int64_t>(
      read(tensor("t", i64, {2}, [&](pbf_writer& writer) { writer.add_packed_int64(7, longs.begin(), longs.end()); })),
      {-1, 1LL << 50});
}

TEST_CASE("onnx_tensor/unsigned_fields") {
  const auto unsigned_tensor = [](int type, const std::vector<std::uint64_t>& values) {
    return tensor("t", type, {static_cast<std::int64_t>(values.size())},
                  [&](pbf_writer& writer) { writer.add_packed_uint64(11, values.begin(), values.end()); });
  };
  const std::uint64_t most = ~std::uint64_t{0};
  check_values<std::uint32_t>(read(unsigned_tensor(u32, {0, 0xFFFFFFFF})), {0, 0xFFFFFFFF});
  check_values<std::uint64_t>(read(unsigned_tensor(13, {1, most})), {1, most});
  CHECK_ERROR(read(unsigned_tensor(u32, {0x100000000})), invalid_model, "does not fit");
  CHECK_ERROR(read(unsigned_tensor(u32, {most})), invalid_model, "does not fit");
  CHECK_ERROR(read(int32_tensor(u32, {1}, true)), invalid_model, "another type");
  check_values<std::uint32_t>(read(raw_tensor<std::uint32_t>("t", u32, {1}, {7})), {7});
}

TEST_CASE("onnx_tensor/data_in_the_field_of_another_type_is_refused") {
  struct Own {
    int type, field;
  };
  for (const Own own : {Own{f32, 4}, {i32, 5}, {i64, 7}, {f64, 10}, {13, 11}})
    for (const int other : {4, 5, 6, 7, 10, 11}) {
      CAPTURE(other);
      const auto with = [&](pbf_writer& writer) {
        writer.add_bytes(static_cast<protozero::pbf_tag_type>(other), std::string(8, 0));
      };
      if (other != own.field)
        CHECK_ERROR(read(tensor("t", own.type, {1}, with)), invalid_model, "sits in a field of another type");
      CHECK_ERROR(read(raw_tensor<double>("t", f64, {1}, {1}) + message(with)), invalid_model,
                  "both raw_data and typed");
    }
}

TEST_CASE("onnx_tensor/types_stay_as_they_are") {
  CHECK(read(raw_tensor<std::uint16_t>("t", f16, {2}, {0x3C00, 0xC000})).dtype() == DType::f16);
  CHECK(read(int32_tensor(bf16, {0x4049, 0xBF80}, true)).dtype() == DType::bf16);
  CHECK(read(raw_tensor<double>("t", f64, {1}, {0.1})).dtype() == DType::f64);
  CHECK(read(raw_tensor<std::int64_t>("t", i64, {1}, {3})).dtype() == DType::i64);
}

TEST_CASE("onnx_tensor/elements_that_share_bytes") {
  const auto raw = [](int type, std::int64_t count, const std::vector<std::uint8_t>& bytes) {
    return read(raw_tensor<std::uint8_t>("t", type, {count}, bytes));
  };
  const auto packed = [](int type, std::int64_t count, const std::vector<std::int32_t>& bytes) {
    return read(tensor("t", type, {count},
                       [&](pbf_writer& writer) { writer.add_packed_int32(5, bytes.begin(), bytes.end()); }));
  };
  // The first element is in the low bits; bits after the last are ignored.
  check_values<std::int8_t>(raw(i4, 3, {0x8F, 0xF7}), {-1, -8, 7});
  check_values<std::uint8_t>(raw(u4, 3, {0x8F, 0xF7}), {15, 8, 7});
  check_values<std::uint8_t>(raw(f4e2m1, 4, {0x8F, 0xF7}), {15, 8, 7, 15});
  check_values<std::int8_t>(raw(i2, 5, {0xE4, 0xFE}), {0, 1, -2, -1, -2});
  check_values<std::uint8_t>(raw(u2, 5, {0xE4, 0xFE}), {0, 1, 2, 3, 2});
  check_values<std::int8_t>(packed(i4, 3, {0x8F, 0xF7}), {-1, -8, 7});
  check_values<std::uint8_t>(packed(u2, 5, {0xE4, 0xFE}), {0, 1, 2, 3, 2});
  check_values<std::uint8_t>(raw(f8e4m3fn, 2, {0x7E, 0x80}), {0x7E, 0x80});
  check_values<std::uint8_t>(packed(f8e8m0, 2, {0, 255}), {0, 255});
  CHECK(raw(f8e5m2, 1, {1}).dtype() == DType::f8e5m2);
  CHECK(raw(i2, 0, {}).elems() == 0);

  CHECK_ERROR(raw(i4, 3, {1}), invalid_model, "needs 2 bytes, raw_data has 1");
  CHECK_ERROR(raw(i4, 3, {1, 2, 3}), invalid_model, "needs 2 bytes, raw_data has 3");
  CHECK_ERROR(raw(u2, 5, {1}), invalid_model, "needs 2 bytes");
  CHECK_ERROR(packed(u4, 3, {1}), invalid_model, "its data has 1");
  CHECK_ERROR(packed(i2, 4, {1, 2}), invalid_model, "its data has 2");
  CHECK_ERROR(packed(i4, 2, {256}), invalid_model, "256 does not fit");
  CHECK_ERROR(packed(i4, 2, {-1}), invalid_model, "-1 does not fit");
  CHECK_ERROR(packed(f8e4m3fn, 1, {256}), invalid_model, "256 does not fit");
}

TEST_CASE("onnx_tensor/alignment") {
  // The same bytes at every offset: copied to aligned memory.
  std::vector<std::byte> storage(64);
  for (std::size_t offset = 0; offset < 8; ++offset) {
    const float values[2] = {3, 4};
    std::memcpy(storage.data() + offset, values, sizeof values);
    OnnxTensor wanted;
    wanted.type = f32;
    wanted.dims = {2};
    wanted.has_raw_data = true;
    wanted.raw_data = std::span<const std::byte>(storage).subspan(offset, sizeof values);
    const Tensor result = to_tensor(wanted, {});
    CHECK(reinterpret_cast<std::uintptr_t>(result.data()) % alignof(float) == 0);
    check_values<float>(result, {3, 4});
    CHECK(result.data() != wanted.raw_data.data());
  }
}

TEST_CASE("onnx_tensor/refused") {
  CHECK_ERROR(read(raw_tensor<float>("t", f32, {3}, {1, 2})), invalid_model, "needs 12 bytes, raw_data has 8");
  CHECK_ERROR(read(raw_tensor<float>("t", f32, {1}, {1, 2})), invalid_model, "needs 4 bytes, raw_data has 8");
  const std::vector<float> two{1, 2};
  CHECK_ERROR(read(tensor("t", f32, {3}, [&](pbf_writer& w) { w.add_packed_float(4, two.begin(), two.end()); })),
              invalid_model, "needs 3 elements, its data has 2");
  for (const std::uint32_t own : {4U, 9U})
    CHECK_ERROR(read(tensor("t", f32, {1},
                            [&](pbf_writer& writer) {
                              writer.add_bytes(own, "1234");
                              writer.add_enum(14, 1);
                            })),
                invalid_model, "both external data and data of its own");
  CHECK_ERROR(read(tensor("t", f32, {2})), invalid_model, "needs 2 elements, its data has 0");
  CHECK_ERROR(read(int32_tensor(i8, {128}, true)), invalid_model, "128 does not fit");
  CHECK_ERROR(read(int32_tensor(u8, {-1}, true)), invalid_model, "-1 does not fit");
  CHECK_ERROR(read(int32_tensor(f16, {65536}, false)), invalid_model, "65536 does not fit");
  CHECK_ERROR(read(int32_tensor(boolean, {1, 2, 3}, true)), invalid_model, "a bool tensor holds the byte 2");
  CHECK_ERROR(read(int32_tensor(f32, {1}, true)), invalid_model, "field of another type");
  CHECK_ERROR(read(int32_tensor(i64, {1}, true)), invalid_model, "field of another type");
  CHECK_ERROR(read(tensor("t", text, {1}, [](pbf_writer& writer) { writer.add_bytes(6, "a"); })), unsupported,
              "string");
  CHECK_ERROR(read(raw_tensor<std::uint64_t>("t", 14, {1}, {1})), unsupported, "complex64");
  CHECK_ERROR(read(raw_tensor<std::uint8_t>("t", 27, {1}, {1})), unsupported, "float6e2m3");
  CHECK_ERROR(read(raw_tensor<std::uint8_t>("t", 99, {1}, {1})), unsupported, "type 99");
  CHECK_ERROR(read(tensor("t", 0, {1})), invalid_model, "element type");
  CHECK_ERROR(read(tensor("t", f32, {-1})), invalid_model, "dimension -1");
  CHECK_ERROR(read(tensor("t", f32, {1}, [](pbf_writer& writer) { writer.add_message(3, std::string("\x08\x01")); })),
              unsupported, "segments");
  CHECK_ERROR(read(raw_tensor<float>("t", f32, {1}, {1}) + message([](pbf_writer& writer) { writer.add_float(4, 1); })),
              invalid_model, "both raw_data and typed data");
  // A list truncated within a number.
  const std::string cut("\x80", 1);
  CHECK_ERROR(read(tensor("t", i64, {1}, [&](pbf_writer& writer) { writer.add_bytes(7, cut); })), invalid_model,
              "damaged number");
  CHECK_ERROR(read(tensor("t", f32, {1}, [&](pbf_writer& writer) { writer.add_bytes(4, "abc"); })), invalid_model,
              "cut off");
}

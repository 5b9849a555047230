#include "models/wire.h"

#include <fmt/format.h>

#include <limits>

#include "lenslet/error.h"

namespace lenslet {

namespace {

std::span<const std::byte> as_bytes(const char* begin, const char* end) {
  return {reinterpret_cast<const std::byte*>(begin), static_cast<std::size_t>(end - begin)};
}

}  // namespace

WireMessage::WireMessage(std::span<const std::byte> bytes, std::string_view kind)
    : reader_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), kind_(kind) {}

void WireMessage::fail(std::string_view what) const {
  throw Error(ErrorKind::invalid_model, fmt::format("not a readable ONNX file: {} in {}", what, kind_));
}

bool WireMessage::next() {
  if (!reader_) return false;
  const auto left = reader_.data();
  const char* position = left.data();
  try {
    if (protozero::decode_varint(&position, left.data() + left.size()) > std::numeric_limits<std::uint32_t>::max())
      fail("an over-long field tag");
    reader_.next();
  } catch (const protozero::varint_too_long_exception&) {
    fail("an over-long field tag");
  } catch (const protozero::end_of_buffer_exception&) {
    fail("a field cut off at its tag");
  } catch (const protozero::exception&) {
    fail("an impossible field tag");
  }
  if (reader_.wire_type() == protozero::pbf_wire_type::length_delimited) {
    const char* const end = left.data() + left.size();  // and `position` is behind the tag
    try {
      const std::uint64_t length = protozero::decode_varint(&position, end);
      if (length > static_cast<std::uint64_t>(end - position))
        fail(fmt::format("field {} claims {} bytes where {} are left", field(), length, end - position));
    } catch (const protozero::exception&) {
      fail(fmt::format("field {} with a damaged length", field()));
    }
  }
  return true;
}

void WireMessage::expect(protozero::pbf_wire_type type) const {
  if (reader_.wire_type() != type)
    fail(fmt::format("field {} of wire type {} where {} belongs", field(), static_cast<unsigned>(reader_.wire_type()),
                     static_cast<unsigned>(type)));
}

void WireMessage::skip() {
  const auto number = field();
  try {
    reader_.skip();
  } catch (const protozero::exception&) {
    fail(fmt::format("field {} cut off", number));
  }
}

std::int64_t WireMessage::integer() {
  expect(protozero::pbf_wire_type::varint);
  const auto number = field();
  try {
    return reader_.get_int64();
  } catch (const protozero::exception&) {
    fail(fmt::format("field {} with a damaged number", number));
  }
}

float WireMessage::real() {
  expect(protozero::pbf_wire_type::fixed32);
  const auto number = field();
  try {
    return reader_.get_float();
  } catch (const protozero::exception&) {
    fail(fmt::format("field {} cut off", number));
  }
}

std::span<const std::byte> WireMessage::bytes() {
  expect(protozero::pbf_wire_type::length_delimited);
  const auto view = reader_.get_view();  // next() has checked the length
  return as_bytes(view.data(), view.data() + view.size());
}

std::string_view WireMessage::text() {
  const auto content = bytes();
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

std::span<const std::byte> WireMessage::numbers(protozero::pbf_wire_type element) {
  if (reader_.wire_type() == protozero::pbf_wire_type::length_delimited) return bytes();
  expect(element);
  const char* const begin = reader_.data().data();
  skip();
  return as_bytes(begin, reader_.data().data());
}

std::size_t count_varints(std::span<const std::byte> packed) {
  std::size_t count = 0;
  for (const std::byte b : packed) count += (b & std::byte{0x80}) == std::byte{0} ? 1 : 0;
  if (!packed.empty() && (packed.back() & std::byte{0x80}) != std::byte{0}) fail_varint();
  return count;
}

void fail_varint() {
  throw Error(ErrorKind::invalid_model, "not a readable ONNX file: a damaged number in a packed list");
}

}  // namespace lenslet

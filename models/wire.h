#pragma once
// One protobuf message on the wire, read field by field without copying. A thin cover over protozero that checks what
// protozero lets pass (tags and lengths beyond 32 bits) and turns every fault into an Error. Nothing here recurses: how
// deep messages are followed is the caller's choice.

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string_view>
#include <vector>

namespace lenslet {

/// All members throw Error(invalid_model) that names the message's kind and the field at fault.
class WireMessage {
 public:
  /// `kind` is for messages ("NodeProto") and must outlive the reader, like `bytes`.
  WireMessage(std::span<const std::byte> bytes, std::string_view kind);

  /// Moves to the next field; false at the end. Each field must be consumed by exactly one of the members below.
  bool next();
  std::uint32_t field() const { return static_cast<std::uint32_t>(reader_.tag()); }
  void skip();

  std::int64_t integer();
  float real();
  std::span<const std::byte> bytes();
  std::string_view text();
  /// The current field as a message of `kind`.
  WireMessage message(std::string_view kind) { return {bytes(), kind}; }

  /// A repeated number: the bytes of the packed list, or of the single element in packed form.
  /// `element` is the wire type of one element.
  std::span<const std::byte> numbers(protozero::pbf_wire_type element);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void expect(protozero::pbf_wire_type type) const;

  protozero::pbf_reader reader_;
  std::string_view kind_;
};

/// Varints of a packed list: how many there are; Error(invalid_model) when the last one has no end.
std::size_t count_varints(std::span<const std::byte> packed);

/// Calls `sink(std::uint64_t)` for each varint of a packed list; Error(invalid_model) for a damaged one.
template <typename Sink>
void for_each_varint(std::span<const std::byte> packed, Sink&& sink);

/// Throws the Error for a damaged varint.
[[noreturn]] void fail_varint();

template <typename Sink>
void for_each_varint(std::span<const std::byte> packed, Sink&& sink) {
  const char* position = reinterpret_cast<const char*>(packed.data());
  const char* const end = position + packed.size();
  while (position != end) {
    std::uint64_t value = 0;
    try {
      value = protozero::decode_varint(&position, end);
    } catch (const protozero::exception&) {
      fail_varint();
    }
    sink(value);
  }
}

}  // namespace lenslet

#include "ops/quantized/codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "lenslet/error.h"

namespace lenslet {

void append_codes(AttributeList& list, std::string_view name, const Codes& codes) {
  list.emplace_back(fmt::format("{}_scale", name), static_cast<double>(codes.scale));
  list.emplace_back(fmt::format("{}_zero_point", name), std::int64_t{codes.zero_point});
}

void append_codes(AttributeList& list, const StoredCodes& y) {
  append_codes(list, "y", y);
  list.emplace_back("stored_type", std::string(to_string(y.type)));
  list.emplace_back("stored_range", std::vector<std::int64_t>{y.least, y.most});
}

Codes read_codes(AttributeReader& reader, std::string_view name) {
  const std::string scale = fmt::format("{}_scale", name), zero_point = fmt::format("{}_zero_point", name);
  Codes codes{.scale = static_cast<float>(reader.real(scale, 1))};
  if (!(codes.scale > 0) || std::isinf(codes.scale))
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is {}", scale, codes.scale));
  const std::int64_t zero = reader.integer(zero_point, 0);
  if (zero < -128 || zero > 255)
    throw Error(ErrorKind::invalid_model, fmt::format("attribute '{}' is {}", zero_point, zero));
  codes.zero_point = static_cast<std::int32_t>(zero);
  return codes;
}

DType read_stored_type(AttributeReader& reader) {
  const std::string type = reader.text("stored_type", to_string(DType::u8));
  for (const DType dtype : {DType::u8, DType::i8})
    if (type == to_string(dtype)) return dtype;
  throw Error(ErrorKind::invalid_model, fmt::format("attribute 'stored_type' is \"{}\"", type));
}

StoredCodes read_stored_codes(AttributeReader& reader) {
  StoredCodes codes{read_codes(reader, "y"), read_stored_type(reader)};
  const std::int64_t least = codes.type == DType::i8 ? -128 : 0, most = least + 255;
  std::vector<std::int64_t> range = reader.integers("stored_range");
  if (range.empty()) range = {least, most};
  if (range.size() != 2 || range[0] > range[1] || range[0] > most || range[1] < least)
    throw Error(ErrorKind::invalid_model, "attribute 'stored_range' has no code of 'stored_type'");
  codes.least = static_cast<std::int32_t>(std::max(range[0], least));
  codes.most = static_cast<std::int32_t>(std::min(range[1], most));
  return codes;
}

}  // namespace lenslet

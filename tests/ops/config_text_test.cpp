#include "ops/core/config_text.h"

#include <doctest/doctest.h>

#include "lenslet/error.h"
#include "tests/expect_error.h"

using namespace lenslet;

namespace {

const std::string written = ConfigWriter()
                                .add("tile", std::string_view("128x64"))
                                .add("split_k", std::int64_t{4})
                                .add("vectors", true)
                                .add("shift", std::int64_t{-3})
                                .str();

/// The refusal of `read(reader)`, or empty.
template <typename Read>
std::string refusal(std::string_view text, const Read& read) {
  ConfigReader reader(text);
  return test::refusal_of(ErrorKind::invalid_argument, [&] { read(reader); });
}

}  // namespace

TEST_CASE("config_text/former_names_are_read") {
  ConfigReader reader("slices=4 room=1 way=tiled");
  CHECK(reader.integer("split_k", 1, 64) == 4);
  CHECK(reader.integer("padding") == 1);
  CHECK(reader.word("kernel") == "tiled");
  CHECK_NOTHROW(reader.finish());
  CHECK(refusal("slice=4", [](ConfigReader& r) { r.integer("split_k"); }).find("'split_k=' expected") !=
        std::string::npos);
}

TEST_CASE("config_text/what_is_written_is_read") {
  CHECK(written == "tile=128x64 split_k=4 vectors=yes shift=-3");
  ConfigReader reader(written);
  CHECK(reader.word("tile") == "128x64");
  CHECK(reader.integer("split_k", 1, 64) == 4);
  CHECK(reader.flag("vectors"));
  CHECK(reader.integer("shift", -9, 9) == -3);
  CHECK_NOTHROW(reader.finish());
  CHECK(ConfigWriter().str().empty());
  CHECK_NOTHROW(ConfigReader("").finish());
  CHECK(ConfigWriter().add("vectors", false).str() == "vectors=no");
  CHECK_FALSE(ConfigReader("vectors=no").flag("vectors"));
}

TEST_CASE("config_text/refusals_show_the_text") {
  const auto split_k = [](ConfigReader& reader) {
    reader.integer("split_k", 1, 64);
    reader.finish();
  };
  CHECK(refusal("split_k=64", split_k).empty());
  CHECK(refusal("split_k=65", split_k) ==
        "configuration 'split_k=65': split_k is '65', a number from 1 to 64 expected");
  for (const char* text :
       {"split_k=0", "split_k=-1", "split_k=", "split_k=4x", "split_k= 4", "split_k=99999999999999999999"})
    CHECK_MESSAGE(refusal(text, split_k).find("a number from 1 to 64 expected") != std::string::npos, text);
  for (const char* text : {"", "split_k", "slice=4", "slicesx=4", "xslices=4", " split_k=4"})
    CHECK_MESSAGE(refusal(text, split_k).find("'split_k=' expected before") != std::string::npos, text);
  CHECK(refusal("split_k=4 x=1", split_k) == "configuration 'split_k=4 x=1': nothing expected where 'x=1' stands");
  CHECK(refusal("split_k=4 ", split_k) == "configuration 'split_k=4 ': nothing expected where ' ' stands");
  CHECK(refusal("vectors=1", [](ConfigReader& reader) { reader.flag("vectors"); }) ==
        "configuration 'vectors=1': vectors is '1', yes or no expected");
}

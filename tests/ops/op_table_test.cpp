// The table of operators: its rows make sense, and docs/ops.md says the same.

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "ops/core/op.h"
#include "tests/ops/ops_doc.h"

namespace lenslet::test {

TEST_CASE("op_table/rows") {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const OpRow& row : op_table()) {
    CAPTURE(std::string(row.name));
    CHECK(seen.insert({row.name, row.domain}).second);
    CHECK((row.make != nullptr));
    CHECK(row.min_opset >= 1);
    CHECK(row.min_inputs >= 0);
    CHECK((row.max_inputs == -1 || row.max_inputs >= row.min_inputs));
    CHECK(row.min_outputs >= 1);
    CHECK((row.max_outputs == -1 || row.max_outputs >= row.min_outputs));
    CHECK((find_op(row.name, row.domain) == &row));
    CHECK(row.notes.find('|') == std::string_view::npos);
  }
  CHECK((find_op("Identity", "") != nullptr));
  CHECK((find_op("Identity", "lenslet") == nullptr));
  CHECK((find_op("NoSuchOp", "") == nullptr));
}

TEST_CASE("op_table/docs_are_up_to_date") {
  std::ifstream file(LENSLET_SOURCE_DIR "/docs/ops.md", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  CHECK_MESSAGE(text == ops_doc(), "docs/ops.md does not match the op table: run `ninja update-ops-doc`");
}

}  // namespace lenslet::test

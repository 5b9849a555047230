#include "tests/random_seed.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <ostream>
#include <random>
#include <string>

namespace lenslet::test {
namespace {

std::optional<unsigned> seed_of_case;

/// Prints how to repeat a failed case.
class SeedListener final : public doctest::IReporter {
 public:
  explicit SeedListener(const doctest::ContextOptions& options) : options_(options) {}
  void test_case_start(const doctest::TestCaseData& data) override {
    name_ = data.m_name;
    seed_of_case.reset();
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (!stats.testCaseSuccess && seed_of_case)
      *options_.cout << "ERROR: drawn by LENSLET_TEST_SEED=" << *seed_of_case << ": set it and run --test-case='"
                     << name_ << "' to have the same again\n\n";
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  const doctest::ContextOptions& options_;
  std::string name_;
};
REGISTER_LISTENER("seed", 1, SeedListener);

}  // namespace

unsigned random_seed() {
  if (!seed_of_case) {
    const char* const given = std::getenv("LENSLET_TEST_SEED");
    seed_of_case = given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  }
  return *seed_of_case;
}

}  // namespace lenslet::test

// A Model computes with the original contents of its files, whatever happens to them later.

#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lenslet/runner.h"
#include "models/input_file.h"
#include "models/load_onnx.h"
#include "models/model_file.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"
#include "tests/models/temp_dir.h"

using namespace lenslet;
using namespace lenslet::test;
namespace fs = std::filesystem;

namespace {

std::vector<float> drawn(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

/// x [N,8,16,16] -> Conv 3x3, bias, Relu -> Flatten -> MatMul -> y [N,10]: weights that kernels pack, and others that
/// they read in place. `external`, if given, gets the two large ones.
std::string network(std::string* external) {
  const auto weight = [&](const char* name, const std::vector<std::int64_t>& dims, std::size_t count, unsigned seed) {
    const std::vector<float> values = drawn(count, seed);
    if (external == nullptr) return raw_tensor(name, f32, dims, values);
    const std::size_t offset = external->size();
    external->append(reinterpret_cast<const char*>(values.data()), count * sizeof(float));
    return tensor(name, f32, dims, [&](pbf_writer& writer) {
      for (const auto& [key, value] : {std::pair<const char*, std::string>("location", "net.onnx_data"),
                                       {"offset", std::to_string(offset)},
                                       {"length", std::to_string(count * sizeof(float))}}) {
        pbf_writer entry(writer, 13);
        entry.add_string(1, key);
        entry.add_string(2, value);
      }
      writer.add_enum(14, 1);
    });
  };
  ModelText model;
  model.inputs = {port("x", f32, {-1, 8, 16, 16})};
  model.outputs = {port("y", f32, {-1, 10})};
  model.nodes = {node("Conv", {"x", "w", "b"}, {"c"}, "conv",
                      [](pbf_writer& writer) {
                        attribute(writer, "pads", 7, [](pbf_writer& value) {
                          const std::int64_t pads[] = {1, 1, 1, 1};
                          value.add_packed_int64(8, std::begin(pads), std::end(pads));
                        });
                      }),
                 node("Relu", {"c"}, {"r"}, "relu"), node("Flatten", {"r"}, {"f"}, "flatten"),
                 node("MatMul", {"f", "m"}, {"y"}, "product")};
  model.initializers = {weight("w", {16, 8, 3, 3}, 1152, 1), raw_tensor("b", f32, {16}, drawn(16, 2)),
                        weight("m", {4096, 10}, 40960, 3)};
  return model.bytes();
}

using Bits = std::vector<std::byte>;

Bits result(Runner& runner, std::int64_t batch) {
  const Tensor y = runner
                       .run(Tensor::of<float>(Shape{batch, 8, 16, 16},
                                              std::span<const float>(drawn(static_cast<std::size_t>(batch) * 2048, 4))))
                       .front();
  const auto* const bytes = static_cast<const std::byte*>(y.data());
  return {bytes, bytes + y.bytes()};
}

std::vector<PlanOptions> ways() {
  std::vector<PlanOptions> options(4);
  for (PlanOptions& way : options) {
    way.device = "cpu";
    way.threads = 2;
  }
  options[1].batch = 3;
  options[2].conv_algorithm = "im2col";
  options[3].conv_algorithm = "direct";
  return options;
}

void overwrite(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const std::vector<float> other = drawn(fs::file_size(file) / sizeof(float), 5);
  stream.write(reinterpret_cast<const char*>(other.data()), static_cast<std::streamsize>(other.size() * sizeof(float)));
}

void replace(const fs::path& file) {
  const fs::path other = file.string() + ".new";
  fs::copy_file(file, other);
  overwrite(other);
  fs::rename(other, file);
}

}  // namespace

TEST_CASE("changed_file/a_model_stays_what_it_was") {
  using Change = std::pair<const char*, std::function<void(const fs::path&)>>;
  for (const bool external : {false, true})
    for (const Change& change :
         {Change("overwritten", overwrite), Change("emptied", [](const fs::path& f) { fs::resize_file(f, 0); }),
          Change("cut", [](const fs::path& f) { fs::resize_file(f, 5000); }),
          Change("removed", [](const fs::path& f) { fs::remove(f); }), Change("replaced", replace)}) {
      CAPTURE(external);
      CAPTURE(change.first);
      const TempDir folder;
      std::string data;
      const fs::path file = folder.write("net.onnx", network(external ? &data : nullptr));
      if (external) folder.write("net.onnx_data", data);
      std::vector<Bits> expected;
      const Model another = Model::load(file);
      for (const PlanOptions& way : ways()) {
        Runner runner(another, way);
        expected.push_back(result(runner, way.batch));
      }
      const Model model = Model::load(file);
      Runner before(model, ways()[0]);
      CHECK(result(before, 1) == expected[0]);
      change.second(file);
      if (external) change.second(folder / "net.onnx_data");
      CHECK(result(before, 1) == expected[0]);
      for (std::size_t i = 0; i < expected.size(); ++i) {  // the first uses the packed weights of `before`
        Runner after(model, ways()[i]);
        CHECK(result(after, ways()[i].batch) == expected[i]);
      }
    }
}

TEST_CASE("changed_file/while_it_is_read") {
  const TempDir folder;
  const fs::path path = folder.write("data", std::string(100000, 'a'));
  std::vector<std::byte> bytes(50000);
  const InputFile cut(path, 100000);
  cut.read(50000, bytes);
  CHECK(bytes.back() == std::byte{'a'});
  fs::resize_file(path, 60000);
  CHECK_ERROR(cut.read(50000, bytes), io, "was changed while it was read");
  errno = EINTR;  // left by an earlier call: the end of the file is no error
  CHECK_ERROR(cut.read(60000, bytes), io, "was changed while it was read");
  CHECK_ERROR(cut.read(std::uint64_t{1} << 63U, bytes), io, "cannot be read: Invalid argument");
  const InputFile same_length(path, 100000);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(1));
  CHECK_ERROR(same_length.read(0, bytes), io, "was changed while it was read");
}

TEST_CASE("changed_file/a_file_may_get_the_number_of_standard_input") {
  const TempDir folder;
  const fs::path path = folder.write("data", "abcd");
  const int kept = ::dup(0);
  ::close(0);
  char found[4] = {};
  {
    const InputFile file(path, 4);
    file.read(0, std::as_writable_bytes(std::span(found)));
  }
  if (kept >= 0) {
    ::dup2(kept, 0);
    ::close(kept);
  }
  CHECK(std::string_view(found, 4) == "abcd");
}

// Several threads read, if there are cores.
TEST_CASE("changed_file/large_reads") {
  const TempDir folder;
  std::mt19937 random(8);
  std::string content((std::size_t{20} << 20) + 77, '\0');
  for (std::size_t i = 0; i + 4 <= content.size(); i += 4) {
    const auto word = static_cast<std::uint32_t>(random());
    std::memcpy(content.data() + i, &word, sizeof word);
  }
  const fs::path path = folder.write("data", content);
  const InputFile file(path, content.size());
  std::string found(content.size() - 3, '\0');
  file.read(3, std::as_writable_bytes(std::span(found)));
  CHECK((found == content.substr(3)));
  fs::resize_file(path, std::size_t{5} << 20);  // later parts belong to other threads
  CHECK_ERROR(file.read(3, std::as_writable_bytes(std::span(found))), io, "was changed while it was read");
}

// Large ones are read separately: as initializers and in Constant nodes, of every type, at every address, with fields
// in any order, and in damaged files that end within them.
TEST_CASE("changed_file/weights_are_those_of_the_file") {
  const TempDir folder;
  std::mt19937 random(6);
  ModelText model = relu_model();
  for (const std::pair<int, std::size_t>& each :
       {std::pair<int, std::size_t>(f32, 4), {f16, 2}, {i64, 8}, {f64, 8}, {i32, 4}, {u8, 1}, {i4, 1}}) {
    const int type = each.first;  // clang 14 does not capture structured bindings
    const std::size_t bytes = each.second;
    for (const std::size_t elems : {std::size_t{1}, std::size_t{33}, std::size_t{5000}, std::size_t{40000}})
      for (std::size_t length = 1; length <= 4; ++length) {
        std::vector<std::uint8_t> values(elems * bytes);
        for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(random());
        const std::int64_t dim = static_cast<std::int64_t>(type == i4 ? 2 * elems : elems);
        const std::string name = std::to_string(type) + "_" + std::to_string(elems) + std::string(length, '_');
        const std::string weight = length == 4 ? message([&](pbf_writer& writer) {
          writer.add_string(12, "a remark before the data");
          writer.add_bytes(9, reinterpret_cast<const char*>(values.data()), values.size());
          writer.add_int32(2, type);
          writer.add_int64(1, dim);
          writer.add_string(8, name);
        })
                                               : raw_tensor(name, type, {dim}, values);
        std::string source = name;
        if (length == 3) {
          source += "c";
          model.nodes.push_back(node("Constant", {}, {source}, {}, [&](pbf_writer& writer) {
            attribute(writer, "value", 4, [&](pbf_writer& value) { value.add_message(5, weight); });
          }));
        } else {
          model.initializers.push_back(weight);
        }
        model.nodes.push_back(node("Identity", {source}, {"of_" + name}));
      }
  }
  const std::string text = model.bytes();
  const fs::path path = folder.write("net.onnx", text);
  const Graph copied = load_onnx(bytes_of(text), nullptr, {}, "test");
  ModelFile file(path);
  const Graph read = load_onnx(file.bytes(), &file, {}, "test");
  REQUIRE(read.values.size() == copied.values.size());
  int constants = 0;
  for (std::size_t i = 0; i < read.values.size(); ++i) {
    const Value &a = read.values[i], &b = copied.values[i];
    CAPTURE(a.name);
    REQUIRE(a.name == b.name);
    if (!a.is_constant()) continue;
    ++constants;
    REQUIRE(a.constant.bytes() == b.constant.bytes());
    CHECK(std::memcmp(a.constant.data(), b.constant.data(), a.constant.bytes()) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(a.constant.data()) % dtype_bytes(a.dtype) == 0);
  }
  CHECK(constants == 7 * 4 * 4);
  // Damage at any position gives the same Error, whether the file is in memory or read in parts.
  for (int i = 0; i < 200; ++i) {
    std::string damaged = text.substr(0, i % 2 == 0 ? text.size() : random() % text.size());
    for (auto changes = i % 2 == 0 ? 1 + random() % 3 : 0; changes > 0; --changes)
      damaged[i % 4 == 0 ? random() % damaged.size() : random() % 200] = static_cast<char>(random());
    const auto message_of = [](const std::function<void()>& load) {
      try {
        load();
      } catch (const Error& error) {
        return std::string(error.message());
      }
      return std::string();
    };
    folder.write("net.onnx", damaged);
    CHECK(message_of([&] { load_onnx(bytes_of(damaged), nullptr, {}, "test"); }) == message_of([&] {
            ModelFile part(path);
            load_onnx(part.bytes(), &part, {}, "test");
          }));
  }
}

// From 16 KiB on, also after fields of every wire type. All else is read at once, and so is a damaged file.
TEST_CASE("changed_file/large_raw_data_is_left_out_until_it_is_asked_for") {
  const TempDir folder;
  std::mt19937 random(7);
  const auto raw = [&](std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(1 + random() % 255);
    return values;
  };
  const std::vector<std::uint8_t> least = raw(16384), less = raw(16383), held = raw(20000);
  const auto weight = [](const std::vector<std::uint8_t>& values) {
    return raw_tensor("w", u8, {static_cast<std::int64_t>(values.size())}, values);
  };
  const auto unknown = [](pbf_writer& writer) {
    writer.add_int64(100, -1);
    writer.add_fixed64(101, ~std::uint64_t{0});
    writer.add_fixed32(102, 1);
    writer.add_bytes(103, "unknown");
  };
  const std::string text = message([&](pbf_writer& model) {
    unknown(model);
    pbf_writer graph(model, 7);
    unknown(graph);
    for (const auto& values : {least, less}) graph.add_message(5, weight(values));
    graph.add_message(1, node("Constant", {}, {"c"}, {}, [&](pbf_writer& writer) {
                        unknown(writer);
                        attribute(writer, "value", 4, [&](pbf_writer& value) {
                          unknown(value);
                          value.add_message(5, weight(held));
                        });
                      }));
    graph.add_bytes(9, std::string(17000, 'x'));  // not a tensor's
  });
  const auto at = [&](const std::vector<std::uint8_t>& values) {
    return text.find(std::string(values.begin(), values.end()));
  };
  for (const std::string& damage : {std::string(), std::string("\x0b"), std::string("\x80"), std::string("\x0a\x7f")}) {
    ModelFile file(folder.write("net", text + damage));
    REQUIRE(file.bytes().size() == text.size() + damage.size());
    std::string expected = text + damage, found(expected.size(), '\0');
    std::memcpy(found.data(), file.bytes().data(), found.size());
    for (const auto& values : {least, held}) {  // whose first block is in memory
      CHECK(found[at(values) + values.size() - 1] == '\0');
      for (std::string* const all : {&expected, &found}) all->replace(at(values), values.size(), values.size(), '\0');
    }
    CHECK((found == expected));
    CHECK(file.read(file.bytes().subspan(at(less), less.size())).owner == nullptr);
    for (const auto& values : {least, held}) {
      const WeightMemory::Part part = file.read(file.bytes().subspan(at(values), values.size()));
      REQUIRE(part.owner != nullptr);
      CHECK((std::memcmp(part.bytes.data(), values.data(), values.size()) == 0));
      CHECK(file.read(file.bytes().subspan(at(values), values.size() - 1)).owner == nullptr);
    }
  }
  // Truncation in a tag and in a number, a length beyond the end, an invalid wire type: the rest is read at once.
  for (const char* const damage : {"\x85", "\x08\x80", "\x0a\x05", "\x0b"}) {
    const std::string damaged = message([&](pbf_writer& model) {
      for (const std::string& part : {std::string(damage), weight(least)}) {
        pbf_writer graph(model, 7);
        graph.add_message(5, part);
      }
    });
    const ModelFile file(folder.write("net", damaged));
    CHECK((std::memcmp(file.bytes().data(), damaged.data(), damaged.size()) == 0));
  }
  // A length beyond the end, of a graph or within it.
  for (const std::size_t cut : {std::size_t{1}, std::size_t{5}}) {
    const std::string damaged = text.substr(0, text.size() - cut);
    const ModelFile file(folder.write("net", damaged));
    CHECK((std::memcmp(file.bytes().data(), damaged.data(), damaged.size()) == 0));
  }
}

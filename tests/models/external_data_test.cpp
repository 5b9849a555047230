// Allowed and forbidden locations of external weights.

#include "models/external_data.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "lenslet/model.h"
#include "models/limits.h"
#include "models/load_onnx.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"
#include "tests/models/temp_dir.h"

using namespace lenslet;
using namespace lenslet::test;
namespace fs = std::filesystem;

namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

// Adds to x a weight of four floats, located by the entries.
std::string external_model(const Entries& entries) {
  ModelText model = relu_model();
  model.inputs = {port("x", f32, {2, 4})};
  model.outputs = {port("y", f32, {2, 4})};
  model.nodes = {node("Add", {"x", "w"}, {"y"}, "add")};
  model.initializers = {tensor("w", f32, {4}, [&](pbf_writer& writer) {
    for (const auto& pair : entries)  // clang 14 does not capture structured bindings
      writer.add_message(13, message([&](pbf_writer& entry) {
                           entry.add_string(1, pair.first);
                           entry.add_string(2, pair.second);
                         }));
    writer.add_enum(14, 1);
  })};
  return model.bytes();
}

std::string floats(std::initializer_list<float> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)};
}

std::vector<float> weight(const fs::path& folder, const Entries& entries) {
  const std::string data = external_model(entries);
  const Graph graph = load_onnx(bytes_of(data), nullptr, {.external_data_dir = folder}, "test");
  for (const Value& value : graph.values)
    if (value.name == "w") {
      const auto span = value.constant.values<float>();
      return {span.begin(), span.end()};
    }
  return {};
}

}  // namespace

TEST_CASE("external_data/read") {
  const TempDir folder;
  folder.write("w.bin", floats({1, 2, 3, 4}));
  fs::create_directory(folder / "sub");
  folder.write("sub/w.bin", "abc" + floats({5, 6, 7, 8}) + "tail");
  const std::vector<float> first{1, 2, 3, 4}, second{5, 6, 7, 8};
  CHECK(weight(folder.path(), {{"location", "w.bin"}}) == first);
  CHECK(weight(folder.path(), {{"location", "./w.bin"}, {"offset", "0"}, {"length", "16"}, {"checksum", "?"}}) ==
        first);
  // Offset 3: not aligned in the file.
  CHECK(weight(folder.path(), {{"location", "sub/w.bin"}, {"offset", "3"}, {"length", "16"}}) == second);
  fs::create_symlink(folder / "w.bin", folder / "inside.bin");
  CHECK(weight(folder.path(), {{"location", "inside.bin"}}) == first);
}

TEST_CASE("external_data/stays_in_the_folder") {
  const TempDir outer;
  outer.write("secret.bin", floats({9, 9, 9, 9}));
  const fs::path folder = outer / "model";
  fs::create_directory(folder);
  fs::create_directory(outer / "model2");
  outer.write("model2/secret.bin", floats({9, 9, 9, 9}));
  fs::create_symlink("../model2", folder / "linked_folder");
  for (const std::string location : {"../secret.bin", "sub/../../secret.bin", "..", "a/.."})
    CHECK_ERROR(weight(folder, {{"location", location}}), invalid_model, "'..'");
  CHECK_ERROR(weight(folder, {{"location", (outer / "secret.bin").string()}}), invalid_model, "absolute");
  CHECK_ERROR(weight(folder, {{"location", "linked_folder/secret.bin"}}), invalid_model, "symlink");
  CHECK_ERROR(weight(folder, {{"location", "..\\secret.bin"}}), invalid_model, "backslash");
  CHECK_ERROR(weight(folder, {{"location", "C:secret.bin"}}), invalid_model, "drive letter");
  CHECK_ERROR(weight(folder, {{"location", ""}}), invalid_model, "empty");
  CHECK_ERROR(weight(folder, {{"location", std::string("a\0b", 3)}}), invalid_model, "control character");
}

// As in a hub's cache: snapshots contain links to files named by their hashes.
TEST_CASE("external_data/links_of_a_download_cache") {
  const TempDir cache;
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots/1234/onnx");
  const std::vector<float> first{1, 2, 3, 4}, second{5, 6, 7, 8};
  const Entries beside{{"location", "model.onnx_data"}};
  cache.write("blobs/5678", external_model(beside));
  cache.write("blobs/9abc", floats({1, 2, 3, 4}));
  cache.write("blobs/model.onnx_data", floats({9, 9, 9, 9}));  // beside the link's target: must not be used
  for (const std::string folder : {"snapshots/1234", "snapshots/1234/onnx"}) {
    const std::string up = folder.ends_with("onnx") ? "../../../blobs/" : "../../blobs/";
    fs::create_symlink(up + "5678", cache / (folder + "/model.onnx"));
    fs::create_symlink(up + "9abc", cache / (folder + "/model.onnx_data"));
    CHECK(weight(cache / folder, beside) == first);
    CHECK_NOTHROW(Model::load(cache / (folder + "/model.onnx")));
  }
  const fs::path snapshot = cache / "snapshots/1234";
  CHECK(weight(snapshot, {{"location", "onnx/model.onnx_data"}}) == first);
  // Links to links, and out of the cache.
  cache.write("elsewhere", floats({5, 6, 7, 8}));
  fs::create_symlink(cache / "elsewhere", cache / "blobs/link");
  fs::create_symlink("../../blobs/link", snapshot / "far");
  CHECK(weight(snapshot, {{"location", "far"}}) == second);
  // Not a regular file, or missing.
  fs::create_symlink("../../blobs", snapshot / "folder");
  CHECK_ERROR(weight(snapshot, {{"location", "folder"}}), io, "folder");
  CHECK_ERROR(weight(snapshot, {{"location", "folder/9abc"}}), invalid_model, "symlink");
  fs::create_symlink("../../blobs/none", snapshot / "broken");
  CHECK_ERROR(weight(snapshot, {{"location", "broken"}}), io, "No such file");
  fs::create_symlink("round", snapshot / "round");
  CHECK_ERROR(weight(snapshot, {{"location", "round"}}), io, "round");
  fs::create_symlink("/dev/zero", snapshot / "device");
  CHECK_ERROR(weight(snapshot, {{"location", "device"}}), io, "not a regular file");
  CHECK_ERROR(weight(snapshot, {{"location", "../../blobs/9abc"}}), invalid_model, "'..'");
}

TEST_CASE("external_data/links_to_files_of_others") {
  const TempDir outer;
  const fs::path folder = outer / "model";
  fs::create_directory(folder);
  const fs::path theirs = outer.write("theirs", floats({9, 9, 9, 9}));
  fs::create_symlink("../theirs", folder / "link");
  const Entries link{{"location", "link"}};
  CHECK(weight(folder, link) == std::vector<float>(4, 9));
  constexpr uid_t nobody = 65534;
  if (::chown(theirs.c_str(), nobody, static_cast<gid_t>(-1)) != 0) {
    MESSAGE("not tried: only root can give files away");
    return;
  }
  CHECK_ERROR(weight(folder, link), invalid_model, "of another owner");
  REQUIRE(::lchown((folder / "link").c_str(), nobody, static_cast<gid_t>(-1)) == 0);
  CHECK(weight(folder, link) == std::vector<float>(4, 9));
}

// A hard link is a name of the file like any other; other names are not checked.
TEST_CASE("external_data/hard_links") {
  const TempDir outer;
  const fs::path folder = outer / "model";
  fs::create_directory(folder);
  fs::create_hard_link(outer.write("outside", floats({1, 2, 3, 4})), folder / "inside");
  CHECK(weight(folder, {{"location", "inside"}}) == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("external_data/tensors_that_overlap") {
  const TempDir folder;
  folder.write("w.bin", floats({1, 2, 3, 4, 5, 6, 7, 8}));
  ExternalData data(folder.path());
  const auto read = [&](std::size_t offset, std::size_t bytes, const char* location = "w.bin") {
    const std::string text = std::to_string(offset) + "0";  // followed by a digit that does not belong to it
    OnnxTensor tensor;
    tensor.external_data = {{"location", location}, {"offset", std::string_view(text).substr(0, text.size() - 1)}};
    return data.read(tensor, bytes).bytes;
  };
  const std::span<const std::byte> all = read(0, 32);
  for (int i = 0; i < 100; ++i) REQUIRE(read(0, 32).data() == all.data());  // shared weights are loaded once
  fs::create_symlink("w.bin", folder / "link");
  CHECK(read(0, 32, "link").data() == all.data());
  for (std::size_t offset = 1; offset < 4; ++offset) CHECK(read(offset, 28)[0] == all[offset]);
  CHECK_ERROR(read(4, 28), limit, "more than 4 times");
  CHECK(read(4, 12)[0] == all[4]);  // 4 * 32 bytes in total now
  CHECK_ERROR(read(4, 1), limit, "more than 4 times");
}

TEST_CASE("external_data/tied_weights_of_a_model_are_there_once") {
  const TempDir folder;
  folder.write("w.bin", floats({1, 2, 3, 4}));
  for (const auto& [type, elems] : {std::pair<int, std::int64_t>(f32, 4), {u8, 16}, {f16, 8}}) {
    ModelText model = relu_model();
    model.nodes = {node("Concat", {"v", "w"}, {"y"}, "both",
                        [](pbf_writer& n) { attribute(n, "axis", 2, [](pbf_writer& a) { a.add_int64(3, 0); }); })};
    for (const char* const name : {"v", "w"})
      model.initializers.push_back(tensor(name, type, {elems}, [](pbf_writer& writer) {
        writer.add_message(13, message([](pbf_writer& entry) {
                             entry.add_string(1, "location");
                             entry.add_string(2, "w.bin");
                           }));
        writer.add_enum(14, 1);
      }));
    const std::string data = model.bytes();
    const Graph graph = load_onnx(bytes_of(data), nullptr, {.external_data_dir = folder.path()}, "test");
    std::vector<const void*> at;
    for (const Value& value : graph.values)
      if (value.is_constant()) at.push_back(value.constant.data());
    REQUIRE(at.size() == 2);
    CHECK(at[0] == at[1]);
  }
}

TEST_CASE("external_data/a_file_that_changes_meanwhile") {
  const TempDir folder;
  folder.write("a", floats({1, 2, 3, 4}));
  folder.write("b", floats({5, 6, 7, 8}));
  ExternalData data(folder.path());
  const auto read = [&](const char* location, const char* offset) {
    OnnxTensor tensor;
    tensor.external_data = {{"location", location}, {"offset", offset}};
    return data.read(tensor, 4);
  };
  read("a", "0");
  read("b", "0");
  fs::rename(folder / "b", folder / "a");
  CHECK_ERROR(read("a", "4"), io, "'a': was changed while it was read");
  CHECK_ERROR(read("b", "4"), io, "'b': No such file");  // the open file is not b's
}

TEST_CASE("external_data/offsets_and_lengths") {
  const TempDir folder;
  folder.write("w.bin", floats({1, 2, 3, 4}));
  const auto read = [&](Entries more) {
    more.emplace_back("location", "w.bin");
    return weight(folder.path(), more);
  };
  CHECK_ERROR(read({{"offset", "4"}}), invalid_model, "beyond the file's 16 bytes");
  CHECK_ERROR(read({{"offset", "16"}}), invalid_model, "offset 16 and length 16 reach beyond the file's 16 bytes");
  CHECK_ERROR(read({{"offset", "17"}}), invalid_model, "behind the file's 16 bytes");
  // 2^64 - 8 + 16 wraps to 8.
  CHECK_ERROR(read({{"offset", "18446744073709551608"}}), invalid_model, "behind");
  CHECK_ERROR(read({{"offset", "18446744073709551616"}}), invalid_model, "not a byte count");
  CHECK_ERROR(read({{"length", "12"}}), invalid_model, "needs 16 bytes");
  CHECK_ERROR(read({{"length", "18446744073709551615"}}), invalid_model, "needs 16 bytes");
  for (const std::string bad : {"-4", "4x", "", " 4", "0x4", "1e1"})
    CHECK_ERROR(read({{"offset", bad}}), invalid_model, "not a byte count");
  CHECK_ERROR(read({{"location", "other.bin"}}), invalid_model, "second location");
}

TEST_CASE("external_data/what_is_there") {
  const TempDir folder;
  CHECK_ERROR(weight(folder.path(), {{"location", "missing.bin"}}), io, "missing.bin");
  fs::create_directory(folder / "sub");
  CHECK_ERROR(weight(folder.path(), {{"location", "sub"}}), io, "folder");
  CHECK_ERROR(weight(folder.path(), {}), invalid_model, "without a location");
  CHECK_ERROR(weight({}, {{"location", "w.bin"}}), io, "external_data_dir");
  folder.write("empty.bin", "");
  CHECK_ERROR(weight(folder.path(), {{"location", "empty.bin"}}), invalid_model, "beyond");
}

TEST_CASE("external_data/limits") {
  const TempDir folder;
  folder.write("w.bin", floats({1, 2, 3, 4}));
  ExternalData data(folder.path());
  const auto read = [&](const std::string& location) {
    OnnxTensor tensor;
    tensor.external_data = {{"location", location}};
    return data.read(tensor, 16);
  };
  // Each path counts, wherever it leads.
  for (std::size_t i = 0; i < limits::external_files; ++i) {
    const std::string name = std::to_string(i);
    fs::create_symlink("w.bin", folder / name);
    REQUIRE(read(name).bytes.size() == 16);
  }
  CHECK_ERROR(read("w.bin"), limit, "more than 4096 external data files");
  CHECK_NOTHROW(read("0"));  // one of the open files

  // Sparse: uses no space on the disk.
  const auto file = folder.write("large.bin", "");
  fs::resize_file(file, limits::external_file_bytes);
  const Entries last{{"location", "large.bin"}, {"offset", std::to_string(limits::external_file_bytes - 16)}};
  CHECK(weight(folder.path(), last) == std::vector<float>(4, 0.0F));
  fs::resize_file(file, limits::external_file_bytes + 1);
  CHECK_ERROR(weight(folder.path(), last), limit, "large.bin");
}

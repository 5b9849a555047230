// Model::load and Model::load_bytes: the one place where a file format meets the executor.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/boundary.h"
#include "lenslet/error.h"
#include "lenslet/model.h"
#include "models/limits.h"
#include "models/load_onnx.h"
#include "models/mapped_file.h"
#include "runtime/exec/model_impl.h"

namespace lenslet {

namespace {

Model load_named(const MappedFile& file, const LoadOptions& options, const std::string& name) {
  Graph graph;
  std::vector<MappedFile> files;
  try {
    graph = load_onnx(file.bytes, file.owner, options, name, &files);
  } catch (const Error& error) {
    throw error.within(name);
  }
  if (file.owner) files.push_back(file);
  const auto let_go = [files = std::move(files)] { std::for_each(files.begin(), files.end(), let_pages_go); };
  Model model = make_model(std::move(graph), let_go);
  let_go();
  return model;
}

}  // namespace

Model Model::load(const std::filesystem::path& file, const LoadOptions& options) {
  return at_boundary([&] {
    const MappedFile mapped = map_file(file, limits::model_file_bytes);
    LoadOptions resolved = options;
    if (resolved.external_data_dir.empty()) resolved.external_data_dir = file.parent_path();
    if (resolved.external_data_dir.empty()) resolved.external_data_dir = ".";
    return load_named(mapped, resolved, file.filename().string());
  });
}

Model Model::load_bytes(std::span<const std::byte> bytes, const LoadOptions& options, const std::string& name) {
  return at_boundary([&] { return load_named({bytes, nullptr}, options, name); });
}

}  // namespace lenslet
